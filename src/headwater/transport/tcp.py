"""Listeners: accept connections for one protocol each, up to the limit for all."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

from headwater.errors import Code, HeadwaterError, Refusal
from headwater.protocols.base import Session, Terms
from headwater.transport.clock import Clock
from headwater.transport.connection import Connection, Peer

logger = logging.getLogger(__name__)

BACKLOG = 4096
DRAINING = "the broker is shutting down"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits that connections are held to."""

    connections: int = 20_000
    message_bytes: int = 16 * 1024 * 1024
    topic_bytes: int = 1024
    output_buffer_bytes: int = 1024 * 1024
    handshake_seconds: float = 10.0


class Connections:
    """All open connections of a broker."""

    def __init__(self, bounds: Bounds, join: Callable[[Connection], Peer]) -> None:
        self.bounds = bounds
        self.join = join
        self.clock = Clock()
        self.open: set[Connection] = set()
        self.draining = False

    @property
    def full(self) -> bool:
        return len(self.open) >= self.bounds.connections

    def hush(self) -> None:
        """Take no more commands from anyone."""
        self.draining = True
        for connection in self.open:
            connection.pause(DRAINING)

    async def dismiss(self, seconds: float) -> None:
        """Say goodbye to everyone and wait until they are gone, or the time is up."""
        for connection in list(self.open):
            connection.dismiss(Refusal(Code.UNAVAILABLE, "the broker is shutting down"))
        deadline = self.clock.time() + seconds
        while self.open and self.clock.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self.open):
            connection.transport.abort()
        self.clock.stop()


class Listener:
    """One protocol on one address: the host of its connections."""

    def __init__(
        self, name: str, session: Callable[[Terms], Session], connections: Connections
    ) -> None:
        bounds = connections.bounds
        self._name = name
        self._session = session
        self._connections = connections
        self.clock = connections.clock
        self.output_buffer_bytes = bounds.output_buffer_bytes
        self.handshake_seconds = bounds.handshake_seconds
        self._server: asyncio.Server | None = None

    async def listen(
        self, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        """Accept connections; returns the address that was bound."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(self), host, port, backlog=BACKLOG, ssl=tls
            )
        except OSError as error:
            raise HeadwaterError(
                f"cannot listen for {self._name} on {host}:{port}: {error.strerror}; "
                f'choose another address with [listen] {self._name} = "host:port"'
            ) from None
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def arrived(self, connection: Connection) -> tuple[Session, Peer] | None:
        everyone, bounds = self._connections, self._connections.bounds
        peername = connection.transport.get_extra_info("peername")
        address = f"{peername[0]}:{peername[1]}" if peername else "unknown"
        secure = connection.transport.get_extra_info("sslcontext") is not None
        session = self._session(
            Terms(address, bounds.message_bytes, bounds.topic_bytes, time.time(), secure)
        )
        if everyone.full or everyone.draining:
            why = "shutting down" if everyone.draining else "at its limit of connections"
            connection.close(
                session.farewell(Refusal(Code.UNAVAILABLE, f"the broker is {why}")), why
            )
            return None
        everyone.open.add(connection)
        return session, everyone.join(connection)

    def left(self, connection: Connection) -> None:
        self._connections.open.discard(connection)
