"""A proxy between clients and a port, through which clients vanish without a word.

From `vanish` on it forwards nothing in either direction, reads nothing, and closes nothing. To the
broker this is a client without power whose network answers for it: no FIN, no RST, and what is sent
is taken by the system until its buffers are full.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Self, cast

CHUNK_BYTES = 64 << 10


class Proxy:
    def __init__(self, to: int) -> None:
        self._to = to
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._vanished = False
        #: The addresses that the broker sees its clients at.
        self.addresses: set[str] = set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.vanish()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def vanish(self) -> None:
        self._vanished = True
        for task in self._passing:
            task.cancel()
        for writer in self._writers:
            transport = cast(asyncio.Transport, writer.transport)
            if not transport.is_closing():
                transport.pause_reading()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self._vanished:
            return  # a client that was just coming is gone, too
        there, further = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers.append(further)
        if self._vanished:
            return
        address = further.get_extra_info("sockname")
        self.addresses.add(f"{address[0]}:{address[1]}")
        for source, target in ((reader, further), (there, writer)):
            task = asyncio.create_task(self._pass(source, target))
            self._passing.add(task)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(CHUNK_BYTES):
                target.write(data)
                await target.drain()
        if not self._vanished:
            target.close()
