"""A client that is sent away can read why; the bytes, the time and the number are bounded."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import pytest

from headwater.protocols.bpsp import codec as bpsp
from headwater.rights import Rights
from headwater.server.loop import loop_factory
from headwater.transport import connection
from headwater.transport.tcp import Bounds, Connections, Listener
from tests.transport.peer import IdlePeer

PATIENCE = 60
REQUEST = bpsp.frame(bpsp.CONNECT)


@asynccontextmanager
async def full_listener(turned_away: int = 10) -> AsyncIterator[int]:
    """The port of a listener that turns everyone away but the one who is there."""

    def join(_: object, rights: Rights) -> Any:
        return IdlePeer()

    connections = Connections(Bounds(connections=1, turned_away=turned_away), join)
    listener = Listener("bpsp", bpsp.BpspSession, connections)
    host, port = await listener.bind("127.0.0.1", 0)
    await listener.serve()
    reader, writer = await asyncio.open_connection(host, port)
    await reader.readexactly(1)
    try:
        yield port
    finally:
        writer.close()
        listener.stop()
        await connections.dismiss(1.0)


def client(port: int) -> socket.socket:
    """One that has sent a request before the listener saw it, which runs in the same thread."""
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(REQUEST)
    made.setblocking(False)
    return made


async def told(wire: socket.socket) -> bytes:
    """All that it reads, up to an end that is no reset."""
    data = b""
    async with asyncio.timeout(PATIENCE):
        while chunk := await asyncio.get_running_loop().sock_recv(wire, 1 << 16):
            data += chunk
    return data


async def cut_off(wire: socket.socket, sends: bytes) -> None:
    """Returns when the listener takes no more of what the client sends."""
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionResetError, BrokenPipeError):
            while True:
                await asyncio.get_running_loop().sock_sendall(wire, sends)
                await asyncio.sleep(0.01)


def run(main: Callable[[], Awaitable[None]], loop: str = "uvloop") -> None:
    async def check() -> None:
        await main()

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(check())


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_client_at_the_limit_reads_why_although_it_has_spoken(loop: str) -> None:
    async def check() -> None:
        async with full_listener() as port:
            with closing(client(port)) as wire:
                assert b'"x-status-code""503";' in await told(wire)
                wire.send(REQUEST)  # nor is it reset while it may be reading
                wire.send(REQUEST)

    run(check, loop)


def test_only_so_many_may_take_their_time() -> None:
    async def check() -> None:
        async with full_listener(turned_away=1) as port:
            with closing(client(port)) as first:
                await told(first)
                with closing(client(port)) as second, pytest.raises(ConnectionResetError):
                    await told(second)
            async with asyncio.timeout(PATIENCE):  # until the listener knows that the first is gone
                while True:
                    with closing(client(port)) as third, suppress(ConnectionResetError):
                        await told(third)
                        break

    run(check)


def test_only_so_many_bytes_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER_BYTES", 1000)
    monkeypatch.setattr(connection, "LINGER_SECONDS", 2 * PATIENCE)

    async def check() -> None:
        async with full_listener() as port:
            with closing(client(port)) as wire:
                await told(wire)
                await cut_off(wire, bytes(2000))

    run(check)


def test_nobody_takes_longer_than_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "LINGER_SECONDS", 0.25)

    async def check() -> None:
        async with full_listener() as port:
            with closing(client(port)) as wire:
                await told(wire)
                await cut_off(wire, b"x")

    run(check)
