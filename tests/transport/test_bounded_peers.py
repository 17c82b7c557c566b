"""Peers that vanish without a word, or do not read: the system is told what they may cost, for
every listener."""

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.protocols.base import Terms
from headwater.protocols.bpsp.server import BpspSession
from headwater.sockets import UNSENT_BYTES
from headwater.transport.tcp import Bounds, Connections, Listener
from tests.transport.peer import IdlePeer

#: What the system takes at once, and what a peer with a small buffer takes in.
SPARE = 128 * 1024


def accepted(
    check: Callable[[asyncio.Transport], Awaitable[None]], receive_buffer: int | None = None
) -> None:
    """Check a connection that a listener has accepted."""

    async def all_of_it() -> None:
        arrived: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

        def join(connection: Any, rights: object) -> Any:
            arrived.set_result(connection.transport)
            return IdlePeer()

        def session(terms: Terms) -> BpspSession:
            return BpspSession(terms)

        connections = Connections(Bounds(dead_peer_seconds=30.0), join)
        listener = Listener("bpsp", session, connections)
        address = await listener.bind("127.0.0.1", 0)
        await listener.serve()
        with socket.socket() as peer:
            if receive_buffer is not None:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            peer.connect(address)
            await check(await arrived)
        listener.stop()
        await connections.dismiss(1.0)

    asyncio.run(all_of_it())


def test_accepted_connections_have_the_limit() -> None:
    async def check(transport: asyncio.Transport) -> None:
        options = {
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 15,
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 5,
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 30_000,
        }
        wire = transport.get_extra_info("socket")
        assert {option: wire.getsockopt(*option) for option in options} == options

    accepted(check)


def test_the_system_keeps_little_for_a_peer_that_does_not_read() -> None:
    async def check(transport: asyncio.Transport) -> None:
        transport.write(bytes(64 * 1024 * 1024))
        wire = transport.get_extra_info("socket")
        taken = fcntl.ioctl(wire.fileno(), termios.TIOCOUTQ, bytes(4))
        assert 0 < struct.unpack("i", taken)[0] <= UNSENT_BYTES + SPARE

    accepted(check, receive_buffer=4096)
