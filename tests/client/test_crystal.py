"""The CrystalConnector client against a broker in the same process, from socket to socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets

from headwater.broker.broker import Broker
from headwater.client import Client, CrystalClient, Message, connect
from headwater.errors import Code, Disconnected, HeadwaterError, Refusal
from headwater.gate import KnownApp
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.protocols.crystal import codec as crystal
from headwater.protocols.crystal import crystal_pb2 as pb
from headwater.transport import connection as transport
from headwater.transport.tcp import Bounds, Connections, Listener
from tests.client.gate import gate_of
from tests.e2e.process import PATIENCE

SECRET = "a secret for tests"


class Running:
    def __init__(self, broker: Broker, connections: Connections, port: int) -> None:
        self.broker, self.connections, self.port = broker, connections, port

    def client(self, secret: str = SECRET, client_id: str = "") -> CrystalClient:
        return CrystalClient("127.0.0.1", self.port, secret=secret, client_id=client_id)

    def cut(self) -> None:
        """All connections are lost."""
        for connection in list(self.connections.open.values()):
            connection.transport.abort()


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[Running]:
    engine = await EmbeddedEngine.open(data, LogSettings())
    apps: dict[str, KnownApp] = {}
    broker = Broker(engine, gate=gate_of(data, apps))
    connections = Connections(Bounds(), broker.join, gate=broker.gate)
    service = crystal.CrystalService(crystal.CrystalSettings(SECRET), apps)
    listener = Listener(crystal.NAME, service.session, connections)
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
            await one.subscribe("shop/orders")
            await one.subscribe("shop/orders")
            await other.publish("shop/orders", b"1", b"", b"3" * 100_000)
            await other.publish("shop/news", b"not for one")
            await other.publish("shop/orders", "猫".encode())
            assert broker.broker.engine.watermark == 5
            got = await take(one, 4)
            assert [m.payload for m in got] == [b"1", b"", b"3" * 100_000, "猫".encode()]
            assert {m.topic for m in got} == {"shop/orders"}
            assert {m.headers for m in got} == {(("publisher", "headwater"),)}

    asyncio.run(check())


def test_channels_that_are_known_beforehand_share_a_link(tmp_path: Path) -> None:
    async def check() -> None:
        channels = {
            "a/b": crystal.ALL,
            "a/out": crystal.OUTGOING,
            "lobby": crystal.INCOMING,
        }
        async with running(tmp_path) as broker:
            client = CrystalClient(
                "127.0.0.1", broker.port, secret=SECRET, client_name="Ann", channels=channels
            )
            async with client, broker.client() as other:
                await client.publish("a/b", b"own")
                await client.publish("a/out", b"x")
                await other.publish("lobby", b"hello")
                assert len(broker.connections.open) == 2
                got = await take(client, 2)
                assert [(m.topic, m.payload) for m in got] == [("a/b", b"own"), ("lobby", b"hello")]
                assert got[0].headers == (("publisher", "Ann"),)

    asyncio.run(check())


def test_what_nobody_waits_for_does_not_settle_what_comes_later(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            for number in range(20):
                await client.publish("a/b", *[b"x" * 1000] * 50, ack=False)
                await client.publish("a/b", b"%d" % number)
                assert broker.broker.engine.watermark >= 51 * (number + 1)

    asyncio.run(check())


def test_refusals_reach_the_caller(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            for wrong in (broker.client("wrong"), broker.client("wrong", "a/b")):
                with pytest.raises(Refusal) as refused:
                    await wrong.subscribe("t")
                assert refused.value.code is Code.NOT_PERMITTED
            with pytest.raises(Refusal, match="no headers"):
                await client.publish("t", b"x", headers=(("a", "b"),))
            with pytest.raises(Refusal, match="not UTF-8"):
                await client.publish("t", b"\xff")
            with pytest.raises(Refusal, match="channel"):
                await client.subscribe("/t")
            await client.publish("t", b"still there")

    asyncio.run(check())


def test_a_client_id_belongs_to_one_connection(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker:
            async with broker.client(client_id="a/b") as one, broker.client(client_id="a/b") as two:
                await one.subscribe("t")
                await one.publish("t", b"a second link has another number")
                with pytest.raises(Refusal) as refused:
                    await two.subscribe("t")
                assert refused.value.code is Code.ALREADY_EXISTS
            while broker.connections.open:
                await asyncio.sleep(0.01)
            async with broker.client(client_id="a/b") as three:
                await three.subscribe("t")

    asyncio.run(check())


def test_it_comes_back_after_its_connections_were_lost(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path) as broker, broker.client() as client:
            await client.subscribe("t")
            await client.publish("t", b"before")
            assert (await take(client, 1))[0].payload == b"before"
            broker.cut()
            received = asyncio.create_task(take(client, 1))
            while not received.done():
                # The subscription may come back later than the publisher: say it again.
                try:
                    await client.publish("t", b"after")
                except Disconnected:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)
            assert received.result()[0].payload == b"after"

    asyncio.run(check())


def test_a_client_of_the_websockets_package(tmp_path: Path) -> None:
    """A client that nobody here wrote: it masks, negotiates and closes in its own way."""

    async def check() -> None:
        async with (
            running(tmp_path) as broker,
            websockets.connect(f"ws://127.0.0.1:{broker.port}/any/path") as client,
        ):
            request = pb.Authenticate(client_name="Cat", secret_key=SECRET)
            request.client_id.name = "cat"
            channel = pb.NamespacedName(namespace="shop", name="orders")
            request.channels.add(id=channel, direction=pb.ALL)
            await client.send(request.SerializeToString())
            assert await client.recv() == b"\x0a\x00"
            await client.send(pb.Publish(channel=channel, payload="meow").SerializeToString())
            forward = pb.Forward(publisher="Cat", channel=channel, payload="meow")
            answers = {await client.recv(), await client.recv()}
            assert answers == {b"\x0a\x00", forward.SerializeToString()}
            await client.send("text")
            assert await client.recv() == b"\x10\x00"
            await (await client.ping())

    asyncio.run(check())


def authenticate(name: str) -> bytes:
    request = pb.Authenticate(client_name=name, secret_key=SECRET)
    request.client_id.name = name
    data: bytes = request.SerializeToString()
    return data


async def claim(port: int, name: str) -> bytes:
    """The answer to a client that asks for a name, and leaves."""
    async with websockets.connect(f"ws://127.0.0.1:{port}") as client:
        await client.send(authenticate(name))
        answer = await client.recv()
        assert isinstance(answer, bytes)
        return answer


NAME_EXISTS = pb.Result(error=pb.NAME_EXISTS).SerializeToString()


@asynccontextmanager
async def a_cat(directory: Path) -> AsyncIterator[tuple[int, Any]]:
    """The port of a broker, and a client that has the name."""
    async with (
        running(directory) as broker,
        websockets.connect(f"ws://127.0.0.1:{broker.port}", ping_interval=None) as client,
    ):
        await client.send(authenticate("cat"))
        assert await client.recv() == b"\x0a\x00"
        yield broker.port, client


@pytest.fixture
def soon_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "CHALLENGE_SECONDS", 0.5)


@pytest.mark.usefixtures("soon_judged")
def test_a_client_that_vanished_loses_its_name(tmp_path: Path) -> None:
    async def check() -> None:
        async with a_cat(tmp_path) as (port, gone):
            gone.transport.pause_reading()  # it hears nothing any more, and says nothing
            async with asyncio.timeout(PATIENCE):
                answers = [await claim(port, "cat")]
                while answers[-1] != b"\x0a\x00":
                    await asyncio.sleep(0.05)
                    answers.append(await claim(port, "cat"))
            assert answers[0] == NAME_EXISTS
            gone.transport.abort()

    asyncio.run(check())


@pytest.mark.usefixtures("soon_judged")
def test_a_client_that_is_there_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often others claim it."""

    async def check() -> None:
        async with a_cat(tmp_path) as (port, _):
            judged: list[transport.Connection] = []
            judge = transport.Connection._judge

            def noting(each: transport.Connection) -> None:
                judge(each)
                judged.append(each)

            monkeypatch.setattr(transport.Connection, "_judge", noting)
            async with asyncio.timeout(PATIENCE):
                while len(judged) < 3:
                    assert await claim(port, "cat") == NAME_EXISTS
                    await asyncio.sleep(0.05)
            assert await claim(port, "cat") == NAME_EXISTS

    asyncio.run(check())


def test_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("crystal://secret@localhost/t", "crystal://:secret@localhost:7"):
        client = connect(url)
        assert isinstance(client, CrystalClient)
        assert client._secret == "secret"
    monkeypatch.setenv("HEADWATER_CRYSTAL_SECRET_KEY", "from the environment")
    client = connect("crystal://localhost/t")
    assert isinstance(client, CrystalClient)
    assert (client._secret, client._port) == ("from the environment", 33927)
    monkeypatch.delenv("HEADWATER_CRYSTAL_SECRET_KEY")
    with pytest.raises(HeadwaterError, match="HEADWATER_CRYSTAL_SECRET_KEY"):
        connect("crystal://localhost/t")
