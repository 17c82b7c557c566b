"""Accepts connections and encrypts them.

An event loop's server can do both in one step. But then nobody knows of handshakes that never come
to an end, and all of them get the same context.
"""

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar, cast

from headwater.errors import OVER_LIMITS
from headwater.tls.keyring import Keyring
from headwater.tls.telling import reason_of

logger = logging.getLogger(__name__)

#: RFC 5246, 7.2, and RFC 8446, 6: a record with a fatal alert, "internal_error".
REFUSAL = bytes((21, 3, 1, 0, 2, 2, 80))
# So many are accepted in one turn of the event loop.
ACCEPTED_TOGETHER = 100
# When the system has no more files or memory, it is asked again after so long.
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE_SECONDS = 1.0
HELLO_BYTES = 64 * 1024

Inside = TypeVar("Inside")


class Acceptor(Generic[Inside]):
    """Accepts from sockets that listen. `make` makes what is spoken inside TLS, `begins` is asked
    whether there is room for its handshake, and `ended` is called when that is over."""

    def __init__(
        self,
        sockets: Iterable[socket.socket],
        keyring: Keyring,
        seconds: float,
        *,
        make: Callable[[], Inside],
        begins: Callable[[Inside], bool],
        ended: Callable[[Inside], None],
    ) -> None:
        self._sockets = tuple(sockets)
        self._keyring = keyring
        self._seconds = seconds
        self._make, self._begins, self._ended = make, begins, ended
        self._handshakes: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._stopped = False

    def start(self) -> None:
        for each in self._sockets:
            each.setblocking(False)
            self._loop.add_reader(each, self._accept, each)

    def stop(self) -> None:
        """Accept no more, and end the handshakes."""
        if self._stopped:
            return
        self._stopped = True
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        for task in self._handshakes:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_TOGETHER):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                logger.warning("no connection can be accepted: %s", error.strerror)
                self._loop.remove_reader(listening)
                self._loop.call_later(PAUSE_SECONDS, self._go_on, listening)
                return
            accepted.setblocking(False)
            inside = self._make()
            if not self._begins(inside):
                _refuse(accepted)
                continue
            task = self._loop.create_task(
                self._encrypt(accepted, f"{address[0]}:{address[1]}", inside)
            )
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    def _go_on(self, listening: socket.socket) -> None:
        if not self._stopped:
            self._loop.add_reader(listening, self._accept, listening)

    async def _encrypt(self, accepted: socket.socket, address: str, inside: Inside) -> None:
        """The event loop tells `inside` of the connection when it is encrypted, not before."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: cast(asyncio.Protocol, inside),
                accepted,
                ssl=self._keyring.context,
                ssl_handshake_timeout=self._seconds,
            )
        except OSError as error:
            if isinstance(error, ConnectionAbortedError):  # by the event loop: the time was up
                OVER_LIMITS["handshake_seconds"] += 1
            logger.debug("%s: no TLS handshake: %s", address, reason_of(error))
            error.with_traceback(None)  # or it would keep all this until a cycle is found
        finally:
            self._ended(inside)


def _refuse(accepted: socket.socket) -> None:
    """Say in TLS that it failed, as far as that is possible before a handshake."""
    with contextlib.closing(accepted), contextlib.suppress(OSError):
        accepted.send(REFUSAL)
        accepted.recv(HELLO_BYTES)  # what is left unread would make the system take that back
