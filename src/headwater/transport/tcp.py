"""Listeners: accept connections for one protocol each, up to the limit for all."""

import asyncio
import logging
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import cast

from headwater.accepting import Acceptor, Welcome
from headwater.commands import BrokerPeer
from headwater.errors import OVER_LIMITS, Code, HeadwaterError, Refusal
from headwater.gate import Gate, OpenGate
from headwater.protocols.base import Session, Terms
from headwater.rights import NOBODY, Rights
from headwater.slowing import SHUTDOWN, Slowdowns
from headwater.sockets import bound_peers
from headwater.tls import Encryption, Keyring
from headwater.tls.certificates import common_name
from headwater.traffic import Traffic
from headwater.transport.ceilings import InputCeiling, OutputCeiling
from headwater.transport.clock import Clock
from headwater.transport.connection import Connection
from headwater.transport.turn import Turn

logger = logging.getLogger(__name__)

BACKLOG = 4096
SAMPLES_PER_TURN = 500


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits that connections are held to."""

    connections: int = 20_000
    connections_per_address: int = 20_000
    #: So many clients beyond that may take their time to read why they are turned away.
    turned_away: int = 256
    message_bytes: int = 16 * 1024 * 1024
    topic_bytes: int = 1024
    output_buffer_bytes: int = 1024 * 1024
    #: Of all connections together: messages that have begun to arrive, and what waits to be sent.
    input_bytes: int = 256 * 1024 * 1024
    output_bytes: int = 256 * 1024 * 1024
    unfinished_seconds: float = 30.0
    handshake_seconds: float = 10.0
    dead_peer_seconds: float = 60.0


class Connections:
    """All open connections of a broker."""

    def __init__(
        self,
        bounds: Bounds,
        join: Callable[[Connection, Rights], BrokerPeer],
        protocols: Iterable[str] = (),
        gate: Gate | None = None,
    ) -> None:
        self.bounds = bounds
        self.join = join
        self.gate = gate or OpenGate()
        self.clock = Clock()
        self.turn = Turn()
        self.input_ceiling = InputCeiling(bounds.input_bytes)
        self.output_ceiling = OutputCeiling(bounds.output_bytes, bounds.output_buffer_bytes)
        #: Who was slowed and why, of all that there were.
        self.slowdowns = Slowdowns()
        self._sampled_at = perf_counter()
        self.open: dict[int, Connection] = {}  # by id, the newest last
        #: What went in and out, by protocol, since the broker started.
        self.traffic: dict[str, Traffic] = {name: Traffic() for name in protocols}
        #: How many connections there were, by protocol; those that are open too.
        self.accepted: Counter[str] = Counter()
        self._by_host: Counter[str] = Counter()  # how many are open
        self._ids = count(1)
        self._handshakes: set[Connection] = set()  # not encrypted yet
        self._late_handshakes: set[Connection] = set()  # the same, beyond the limit
        self._turned_away: set[Connection] = set()  # and still there
        self.draining = False

    @property
    def full(self) -> bool:
        return len(self.open) + len(self._handshakes) >= self.bounds.connections

    @property
    def handshakes(self) -> int:
        """How many are not encrypted yet, and are to be."""
        return len(self._handshakes) + len(self._late_handshakes)

    def begin_handshake(self, connection: Connection) -> bool:
        """Whether there is room for it. Some of those beyond the limit may go on as well: only
        inside TLS can they be told why they are turned away."""
        if not self.full:
            self._handshakes.add(connection)
        elif len(self._late_handshakes) + len(self._turned_away) < self.bounds.turned_away:
            self._late_handshakes.add(connection)
        else:
            OVER_LIMITS["connections"] += 1
            return False
        return True

    def end_handshake(self, connection: Connection) -> None:
        self._handshakes.discard(connection)
        self._late_handshakes.discard(connection)

    def check(self, connection: Connection) -> None:
        """Raise Refusal if a connection cannot be taken in."""
        if self.draining:
            raise Refusal(Code.UNAVAILABLE, "the broker is shutting down")
        if self.full:
            raise Refusal(
                Code.UNAVAILABLE,
                "the broker is at its limit of connections (limits.connections)",
                limit="connections",
            )
        most = self.bounds.connections_per_address
        if self._by_host[host_of(connection.address)] >= most:
            raise Refusal(
                Code.UNAVAILABLE,
                f"{most} connections from one address are allowed (limits.connections_per_address)",
                limit="connections_per_address",
            )

    def add(self, connection: Connection) -> None:
        self._by_host[host_of(connection.address)] += 1
        connection.id = next(self._ids)
        connection.since = time.time_ns() // 1000
        self.open[connection.id] = connection

    def turn_away(self, connection: Connection, answer: bytes, why: str) -> None:
        if len(self._turned_away) >= self.bounds.turned_away:
            connection.close_at_once(answer, why)
            return
        self._turned_away.add(connection)
        connection.close(answer, why)

    def remove(self, connection: Connection) -> None:
        self._turned_away.discard(connection)
        if self.open.pop(connection.id, None) is not None:
            host = host_of(connection.address)
            self._by_host[host] -= 1
            if not self._by_host[host]:
                del self._by_host[host]
            connection.meter.pour(self.total_of(connection))

    def total_of(self, connection: Connection) -> Traffic:
        """Where the traffic of those who speak the same is summed up."""
        protocol = connection.session.protocol or "unknown"
        total = self.traffic.get(protocol)
        if total is None:
            total = self.traffic[protocol] = Traffic()
        return total

    def sample(self) -> Iterator[None]:
        """Take the measure of all connections, with pauses."""
        now, at = self.clock.time(), perf_counter()
        passed, self._sampled_at = max(at - self._sampled_at, 1e-6), at
        for number, connection in enumerate(list(self.open.values())):
            connection.meter.sample(now, self.total_of(connection))
            connection.slowed.sample(at, passed)
            connection.look_at_unfinished(now)
            if number % SAMPLES_PER_TURN == SAMPLES_PER_TURN - 1:
                yield

    def drop(self, rights: Rights) -> None:
        """Say goodbye to those who had these rights: they are nobody's any more."""
        for connection in list(self.open.values()):
            if connection.peer.rights is rights:
                connection.dismiss(rights.farewell())

    def hush(self) -> None:
        """Take no more commands from anyone."""
        self.draining = True
        for connection in self.open.values():
            connection.pause(SHUTDOWN)

    async def dismiss(self, seconds: float) -> None:
        """Say goodbye to everyone and wait until they are gone, or the time is up."""
        for connection in list(self.open.values()):
            connection.dismiss(Refusal(Code.UNAVAILABLE, "the broker is shutting down"))
        deadline = self.clock.time() + seconds
        while self.open and self.clock.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in [*self.open.values(), *self._turned_away]:
            connection.transport.abort()
        self.clock.stop()


def host_of(address: str) -> str:
    return address.rpartition(":")[0]


class Listener:
    """One protocol on one address: the host of its connections."""

    def __init__(
        self,
        name: str,
        session: Callable[[Terms], Session],
        connections: Connections,
        keyring: Keyring | None = None,
        *,
        anonymous: bool = True,
    ) -> None:
        """With a keyring, it speaks TLS."""
        bounds = connections.bounds
        self._name = name
        self._anonymous = anonymous
        self._keyring = keyring
        self._session = session
        self._connections = connections
        self.clock = connections.clock
        self.turn = connections.turn
        self.input_ceiling = connections.input_ceiling
        self.output_ceiling = connections.output_ceiling
        self.slowdowns = connections.slowdowns
        self.output_buffer_bytes = bounds.output_buffer_bytes
        self.handshake_seconds = bounds.handshake_seconds
        self.unfinished_seconds = bounds.unfinished_seconds
        self._server: asyncio.Server | None = None
        self._acceptor: Acceptor | None = None

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Take an address, and return the one that was bound. Nobody is accepted before `serve`:
        so either all listeners of a broker get theirs, or no client sees any of them."""
        loop = asyncio.get_running_loop()
        try:
            # For the addresses: it is not the one who accepts.
            self._server = await loop.create_server(
                self._made, host, port, backlog=BACKLOG, start_serving=False
            )
        except OSError as error:
            raise HeadwaterError(
                f"cannot listen for {self._name} on {host}:{port}: {error.strerror}; "
                f'choose another address with [listen] {self._name} = "host:port"'
            ) from None
        for each in self._server.sockets:
            bound_peers(each, self._connections.bounds.dead_peer_seconds)
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def serve(self) -> None:
        assert self._server is not None
        sockets = [socket.socket(fileno=os.dup(each.fileno())) for each in self._server.sockets]
        for each in sockets:
            each.listen(BACKLOG)
        if self._keyring is None:
            welcome: Welcome = self._welcome
        else:
            welcome = Encryption(
                self._keyring,
                self.handshake_seconds,
                make=lambda: Connection(self),
                begins=self._connections.begin_handshake,
                ended=self._connections.end_handshake,
            ).welcome
        self._acceptor = Acceptor(sockets, welcome)
        self._acceptor.start()

    async def _welcome(self, accepted: socket.socket, address: str) -> None:
        with suppress(OSError):  # it is gone already
            await asyncio.get_running_loop().connect_accepted_socket(self._made, accepted)

    def _made(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, Connection(self))

    def stop(self) -> None:
        if self._acceptor is not None:
            self._acceptor.stop()
        if self._server is not None:
            self._server.close()

    def arrived(self, connection: Connection) -> tuple[Session, BrokerPeer] | None:
        everyone, bounds = self._connections, self._connections.bounds
        everyone.end_handshake(connection)
        peername = connection.transport.get_extra_info("peername")
        connection.address = address = f"{peername[0]}:{peername[1]}" if peername else "unknown"
        secure = connection.transport.get_extra_info("sslcontext") is not None
        connection.secure = secure
        connection.certified = common_name(connection.transport) if secure else ""
        known = True
        try:
            everyone.check(connection)
            rights = everyone.gate.arriving(connection.certified, self._anonymous)
            known = rights.principal is not NOBODY
            peer = everyone.join(connection, rights)
        except Refusal as error:
            refusal: Refusal | None = error
        else:
            refusal = None
        session = self._session(
            Terms(
                address,
                bounds.message_bytes,
                bounds.topic_bytes,
                time.time(),
                secure,
                connection.certified,
                known,
            )
        )
        if refusal is not None:
            logger.warning("%s was turned away: %s", address, refusal)
            everyone.turn_away(connection, session.farewell(refusal), str(refusal))
            return None
        everyone.add(connection)
        return session, peer

    def recognised(self, connection: Connection) -> None:
        self._connections.accepted[connection.session.protocol] += 1

    def left(self, connection: Connection) -> None:
        self._connections.remove(connection)
