"""The Prism client against a broker in the same process, from socket to socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headwater.broker.broker import Broker
from headwater.client import Client, Message, PrismClient, connect
from headwater.errors import Code, Disconnected, HeadwaterError, Refusal
from headwater.gate import KnownApp
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.protocols.prism import codec as prism
from headwater.transport.tcp import Bounds, Connections, Listener
from tests.client.gate import gate_of
from tests.e2e.process import PATIENCE

SECRET = "a secret for tests"
BOUND = prism.PrismQueue(
    "shop", "bound", ("order.#",), prefetch=100, ack_seconds=60.0, max_deliveries=16
)


class Running:
    def __init__(self, broker: Broker, connections: Connections, port: int) -> None:
        self.broker, self.connections, self.port = broker, connections, port

    def client(self, secret: str = SECRET) -> PrismClient:
        return PrismClient("127.0.0.1", self.port, app="shop", secret=secret)

    def cut(self) -> None:
        """All connections are lost."""
        for connection in list(self.connections.open.values()):
            connection.transport.abort()


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[Running]:
    engine = await EmbeddedEngine.open(data, LogSettings())
    apps: dict[str, KnownApp] = {"shop": KnownApp(prism.NAME, SECRET)}
    broker = Broker(engine, gate=gate_of(data, apps))
    connections = Connections(Bounds(), broker.join, gate=broker.gate)
    service = prism.PrismService(prism.PrismSettings(queues=(BOUND,)), apps)
    listener = Listener(prism.NAME, service.session, connections)
    try:
        _, port = await listener.bind("127.0.0.1", 0)
        await listener.serve()
        yield Running(broker, connections, port)
    finally:
        listener.stop()
        await connections.dismiss(1.0)
        broker.close()
        await engine.close()


async def take(client: Client, count: int) -> list[Message]:
    async def some() -> list[Message]:
        return [await anext(client) for _ in range(count)]

    return await asyncio.wait_for(some(), PATIENCE)


def test_publish_and_receive(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker, broker.client() as one, broker.client() as other:
            await one.subscribe()
            await other.publish("order/new", b"text", b"", b"\xff\x00", b"x" * 65_536)
            await other.publish("a.b/c", b"{}", headers=(("content-type", "application/json"),))
            assert broker.broker.engine.watermark == 5
            got = await take(one, 5)
            assert [m.payload for m in got] == [b"text", b"", b"\xff\x00", b"x" * 65_536, b"{}"]
            assert [m.topic for m in got] == ["order/new"] * 4 + ["a.b/c"]
            assert got[-1].headers == (("content-type", "application/json"),)

    asyncio.run(check())


def test_it_asks_for_more_than_one_message_at_a_time(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.subscribe()
            await client.publish("order/new", *[b"x"] * 101)  # its pong comes behind them
            assert broker.broker.queues["prism/shop/default"].in_flight == 100

    asyncio.run(check())


def test_what_is_not_acknowledged_comes_back(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker, broker.client() as publisher:
            async with broker.client() as done:
                await done.subscribe("bound")
                await publisher.publish("order/new", b"1", b"2")
                assert [m.payload for m in await take(done, 2)] == [b"1", b"2"]
            await publisher.publish("other", b"not bound")
            await publisher.publish("order", b"3")
            with pytest.raises(RuntimeError):
                async with broker.client() as failing:
                    await failing.subscribe("bound")
                    assert (await take(failing, 1))[0].payload == b"3"
                    raise RuntimeError("the application fails")
            async with broker.client() as last:
                await last.subscribe("bound")
                assert (await take(last, 1))[0].payload == b"3"

    asyncio.run(check())


def test_it_comes_back_after_the_connection_was_lost(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.subscribe("t")
            await client.publish("t", b"before")
            assert (await take(client, 1))[0].payload == b"before"
            broker.cut()
            with pytest.raises(Disconnected):
                await client.publish("t", b"nobody knows")
            await client.publish("t", b"after")
            while (await take(client, 1))[0].payload != b"after":
                pass  # what was on its way when the connection was lost may come again

    asyncio.run(check())


def test_a_wrong_secret_is_told(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker:
            with pytest.raises(Refusal, match="401 there is no such client") as refused:
                async with broker.client("wrong"):
                    pass
            assert refused.value.code is Code.NOT_PERMITTED

    asyncio.run(check())


def test_limits_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            with pytest.raises(Refusal, match="65536"):
                await client.publish("t", bytes(65_537))
            with pytest.raises(Refusal, match="content-type"):
                await client.publish("t", b"", headers=(("kind", "x"),))
            await client.publish("t", b"still here")

    asyncio.run(check())


def test_a_url_names_the_client_and_its_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker:
            address = f"127.0.0.1:{broker.port}"
            async with connect(f"prism://shop:{SECRET.replace(' ', '%20')}@{address}/t") as client:
                await client.publish("t", b"1")
            monkeypatch.setenv("HEADWATER_PRISM_CLIENT_ID", "shop")
            monkeypatch.setenv("HEADWATER_PRISM_CLIENT_SECRET", SECRET)
            async with connect(f"prism://{address}/t") as client:
                await client.publish("t", b"2")
            assert broker.broker.engine.end == 2

    asyncio.run(check())


def test_without_a_secret_there_is_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_PRISM_CLIENT_SECRET", raising=False)
    with pytest.raises(HeadwaterError, match="HEADWATER_PRISM_CLIENT_SECRET"):
        connect("prism://shop@localhost/t")
