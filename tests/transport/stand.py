"""A broker with one listener, in the loop of the test, and clients with real sockets.

Whatever clients send while the test does not wait is found by one turn.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from headwater.broker.broker import Broker
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.message import Headers
from headwater.protocols.base import Answered, Delivered
from headwater.protocols.bpsp import codec as bpsp
from headwater.server.loop import loop_factory
from headwater.transport.tcp import Bounds, Connections, Listener

PATIENCE = 60


class BpspWire:
    """A client's socket, and what the broker has said."""

    def __init__(self, port: int) -> None:
        self.session = bpsp.BpspClientSession(1 << 24)
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setblocking(False)
        self.delivered: list[tuple[str, bytes]] = []
        self.headers: list[Headers] = []
        self.answers = 0

    def send(self, data: bytes) -> None:
        """At once, without a turn of the loop; it has to fit into the socket's buffers."""
        assert self.socket.send(data) == len(data)

    async def send_all(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def read_until(self, state: Callable[["BpspWire"], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not state(self):
                data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 18)
                assert data, "the broker has hung up"
                for event in self.session.receive(data):
                    if isinstance(event, Delivered):
                        self.delivered += [(event.topic, each) for each in event.payloads]
                        self.headers += [event.headers] * len(event.payloads)
                    elif isinstance(event, Answered):
                        self.answers += 1

    def publish(self, topic: str, *payloads: bytes, ack: bool = False) -> bytes:
        return self.session.publish(topic, payloads, (), ack=ack, echo=True)


class TurnStand:
    def __init__(self, engine: EmbeddedEngine, bounds: Bounds) -> None:
        self.engine = engine
        self.broker = Broker(engine)
        self.connections = Connections(bounds, self.broker.join)
        engine.attach(self.connections.turn)
        self.listener = Listener("bpsp", bpsp.BpspSession, self.connections)
        self.port = 0
        self.clients: list[BpspWire] = []

    async def client(self) -> BpspWire:
        """One that has been answered once."""
        made = BpspWire(self.port)
        self.clients.append(made)
        made.send(made.session.connect())
        await made.read_until(lambda wire: wire.answers == 1)
        return made

    async def subscriber(self, pattern: str) -> BpspWire:
        made = await self.client()
        made.send(made.session.subscribe(pattern))
        await made.read_until(lambda wire: wire.answers == 2)
        return made


@asynccontextmanager
async def a_stand(directory: Path, bounds: Bounds) -> AsyncIterator[TurnStand]:
    made = TurnStand(await EmbeddedEngine.open(directory, LogSettings(sync="os")), bounds)
    _, made.port = await made.listener.bind("127.0.0.1", 0)
    await made.listener.serve()
    try:
        yield made
    finally:
        for client in made.clients:
            client.socket.close()
        made.listener.stop()
        await made.connections.dismiss(1.0)
        await made.broker.stop()
        await made.engine.close()


async def until(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not state():
            await asyncio.sleep(0.001)


def run(
    directory: Path,
    check: Callable[[TurnStand], Awaitable[None]],
    loop: str = "uvloop",
    bounds: Bounds | None = None,
) -> None:
    async def main() -> None:
        async with a_stand(directory, bounds or Bounds()) as made:
            await check(made)

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(main())
