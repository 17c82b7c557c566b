"""Peers that vanish without a word: the system is told to notice, for every listener."""

import asyncio
import socket
from typing import Any

from headwater.protocols.base import Terms
from headwater.protocols.bpsp.server import BpspSession
from headwater.transport.tcp import Bounds, Connections, Listener
from tests.transport.peer import IdlePeer


def test_accepted_connections_have_the_limit() -> None:
    async def check() -> None:
        arrived: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()

        def join(connection: Any, rights: object) -> Any:
            arrived.set_result(connection.transport.get_extra_info("socket"))
            return IdlePeer()

        def session(terms: Terms) -> BpspSession:
            return BpspSession(terms)

        connections = Connections(Bounds(dead_peer_seconds=30.0), join)
        listener = Listener("bpsp", session, connections)
        host, port = await listener.bind("127.0.0.1", 0)
        await listener.serve()
        _, writer = await asyncio.open_connection(host, port)
        accepted = await arrived
        options = {
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 15,
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 5,
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 30_000,
        }
        assert {option: accepted.getsockopt(*option) for option in options} == options
        writer.close()
        listener.stop()
        await connections.dismiss(1.0)

    asyncio.run(check())
