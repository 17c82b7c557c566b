"""Encrypts connections that were accepted.

An event loop's server can do both in one step. But then nobody knows of handshakes that never come
to an end, and all of them get the same context.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar, cast

from headwater.errors import OVER_LIMITS
from headwater.tls.keyring import Keyring
from headwater.tls.telling import reason_of

logger = logging.getLogger(__name__)

#: RFC 5246, 7.2, and RFC 8446, 6: a record with a fatal alert, "internal_error".
REFUSAL = bytes((21, 3, 1, 0, 2, 2, 80))
HELLO_BYTES = 64 * 1024

Inside = TypeVar("Inside")


class Encryption(Generic[Inside]):
    """`make` makes what is spoken inside TLS, `begins` is asked whether there is room for its
    handshake, and `ended` is called when that is over."""

    def __init__(
        self,
        keyring: Keyring,
        seconds: float,
        *,
        make: Callable[[], Inside],
        begins: Callable[[Inside], bool],
        ended: Callable[[Inside], None],
    ) -> None:
        self._keyring = keyring
        self._seconds = seconds
        self._make, self._begins, self._ended = make, begins, ended
        self._loop = asyncio.get_running_loop()

    def welcome(self, accepted: socket.socket, address: str) -> Coroutine[Any, Any, None] | None:
        inside = self._make()
        if self._begins(inside):
            return self._encrypt(accepted, address, inside)
        _refuse(accepted)
        return None

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
