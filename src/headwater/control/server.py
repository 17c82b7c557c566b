"""The broker's side of the control socket."""

import asyncio
import inspect
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from headwater.control import protocol
from headwater.control.arguments import check
from headwater.control.protocol import ControlRequest
from headwater.errors import Code, HeadwaterError, Refusal

logger = logging.getLogger(__name__)

Handler = Callable[..., Awaitable[Any]]

# Progress that nobody reads is not kept.
_MOST_UNREAD_BYTES = 64 * 1024
# So long someone who finds no room may take to ask for something.
_TURNED_AWAY_SECONDS = 1.0


class Control:
    """Answers requests in `directory`.

    `handlers` has a coroutine function for each command, by the name of the command. It takes what
    the request has in "with" as keyword arguments; if it has a parameter `progress`, it gets a
    callable for it, to be called with what is done and the total, in the thread of the loop. What
    it returns goes to JSON. A HeadwaterError is the answer, too; so is an OSError.

    A command that has begun runs to its end, even if the one who asked for it has gone.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        connections: int = protocol.MOST_CONNECTIONS,
        unfinished_seconds: float = protocol.UNFINISHED_SECONDS,
    ) -> None:
        self._handlers = handlers
        self._most = connections
        self._seconds = unfinished_seconds
        self._connections: set[asyncio.Task[None]] = set()
        # All that has to be undone by `stop`.
        self._stack = ExitStack()

    async def start(self, directory: Path) -> None:
        """Listen. Whoever calls this holds the lock of the log: a socket that is there is a
        leftover of a broker that was killed."""
        with ExitStack() as stack:
            path = stack.enter_context(protocol.address(directory))
            _remove_leftover(path)
            listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listening.bind(path)
            identity = _identity(path)
            stack.callback(_remove, path, identity)
            os.chmod(path, 0o600)  # nobody can connect before it listens
            server = await asyncio.start_unix_server(
                self._connected, sock=listening, limit=protocol.MOST_BYTES
            )
            stack.callback(server.close)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        """Remove the socket, and end what still runs."""
        self._stack.close()
        running = [task for task in self._connections if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) > self._most:
                await self._turn_away(reader, writer)
            else:
                await self._converse(reader, writer)
        except ConnectionError:
            pass  # it did not wait for the answer
        except TimeoutError:
            writer.transport.abort()  # it sent half a request, or did not read the answer
        except asyncio.CancelledError:
            _write(writer, protocol.error("the broker is stopping"))
        finally:
            self._connections.discard(task)
            writer.close()

    async def _turn_away(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the request first, or the answer could get lost with what was not read."""
        async with asyncio.timeout(_TURNED_AWAY_SECONDS):
            await _read_line(await reader.read(1), reader)
        sentence = f"the broker has {self._most} control connections already; try again"
        _write(writer, protocol.error(sentence, Code.UNAVAILABLE.value))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while first := await reader.read(1):
            async with asyncio.timeout(self._seconds):
                line = await _read_line(first, reader)
            if line == b"":
                return
            _write(writer, await self._answer(line, writer))
            async with asyncio.timeout(self._seconds):
                await writer.drain()

    async def _answer(self, line: bytes | None, writer: asyncio.StreamWriter) -> bytes:
        try:
            if line is None:
                raise HeadwaterError(f"a request has at most {protocol.MOST_BYTES} bytes")
            return protocol.result(await self._handle(ControlRequest.parse(line), writer))
        except Refusal as error:
            return protocol.error(str(error), error.code.value)
        except HeadwaterError as error:
            return protocol.error(str(error))
        except OSError as error:  # of the log's files: a disk or a limit, not a fault of ours
            logger.error("a request on the control socket failed: %s", error)
            sentence = f"the broker cannot do this now: {error.strerror or error}"
            return protocol.error(sentence, Code.UNAVAILABLE.value)
        except Exception:
            logger.exception("a request on the control socket failed")
            return protocol.error("internal error; the log of the broker says more")

    async def _handle(self, request: ControlRequest, writer: asyncio.StreamWriter) -> Any:
        handler = self._handlers.get(request.do)
        if handler is None:
            raise HeadwaterError(f'this broker knows no command "{request.do}"')
        arguments = dict(request.arguments)
        if "progress" in arguments:
            raise HeadwaterError(f'{request.do}: "progress" is no argument')
        if "progress" in inspect.signature(handler).parameters:
            arguments["progress"] = _progress_to(writer)
        check(request.do, handler, arguments)
        return await handler(**arguments)


async def _read_line(first: bytes, reader: asyncio.StreamReader) -> bytes | None:
    """The line that begins with `first`; None if it is too long, empty if it has no end."""
    if first == b"\n":
        return first
    too_long = False
    while True:
        try:
            line = first + await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError as error:
            # Read on to its end, or the answer could get lost with what was not read.
            too_long = True
            await reader.readexactly(error.consumed)
        else:
            return None if too_long or len(line) > protocol.MOST_BYTES + 1 else line


def _write(writer: asyncio.StreamWriter, line: bytes) -> None:
    if not writer.is_closing():  # uvloop does not forgive that
        writer.write(line)


def _progress_to(writer: asyncio.StreamWriter) -> protocol.Progress:
    def progress(done: int, total: int) -> None:
        if writer.transport.get_write_buffer_size() < _MOST_UNREAD_BYTES:
            _write(writer, protocol.progress(done, total))

    return progress


def _remove_leftover(path: str) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise HeadwaterError(
                f"{protocol.NAME} in the data directory is not a socket; move it away"
            )
        os.unlink(path)


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def _remove(path: str, identity: tuple[int, int]) -> None:
    """Remove a socket, unless another one has taken its place."""
    with suppress(OSError):
        if _identity(path) == identity:
            os.unlink(path)
