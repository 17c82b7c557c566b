"""The clients against a real broker."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.client import BpspClient, Client, Message, PsmbClient, Target, connect
from headwater.errors import Code, Disconnected, HeadwaterError, Refusal
from tests.e2e.process import PATIENCE, BrokerProcess, eventually, held_port

SCHEMES = ("psmb", "bpsp")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as running:
        running.keep_ports()
        yield running


def url(broker: BrokerProcess, scheme: str) -> str:
    return f"{scheme}://127.0.0.1:{broker.ports[scheme]}"


async def take(client: Client, count: int) -> list[Message]:
    async def some() -> list[Message]:
        return [await anext(client) for _ in range(count)]

    return await asyncio.wait_for(some(), PATIENCE)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_publish_and_receive(broker: BrokerProcess, scheme: str) -> None:
    async def check() -> None:
        async with connect(url(broker, scheme)) as one, connect(url(broker, scheme)) as other:
            await one.subscribe("a/b")
            await other.publish("a/b", b"1", b"", b"3" * 100_000)
            got = await take(one, 3)
            assert [message.payload for message in got] == [b"1", b"", b"3" * 100_000]
            assert {message.topic for message in got} == {"a/b"}

    asyncio.run(check())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_it_comes_back_after_the_broker_was_away(broker: BrokerProcess, scheme: str) -> None:
    async def check() -> None:
        async with connect(url(broker, scheme)) as client:
            await client.subscribe("t")
            await client.publish("t", b"before")
            assert (await take(client, 1))[0].payload == b"before"
            broker.kill()
            broker.start()
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


def test_a_request_that_is_open_when_the_connection_goes_fails(broker: BrokerProcess) -> None:
    async def check() -> None:
        async with connect(url(broker, "bpsp")) as client:
            requests = [
                asyncio.create_task(client.publish("t", *[b"x" * 1000] * 1000)) for _ in range(50)
            ]
            await asyncio.sleep(0)
            broker.kill()
            broker.start()
            results = await asyncio.wait_for(
                asyncio.gather(*requests, return_exceptions=True), PATIENCE
            )
            assert any(isinstance(result, Disconnected) for result in results)

    asyncio.run(check())


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_there_is_a_sentence(scheme: str, unused_port: int) -> None:
    async def check() -> None:
        with pytest.raises(Disconnected, match=r"cannot connect to 127\.0\.0\.1"):
            async with connect(f"{scheme}://127.0.0.1:{unused_port}") as client:
                await client.subscribe("t")

    asyncio.run(check())


@pytest.fixture
def unused_port() -> Iterator[int]:
    """Nobody else gets it meanwhile."""
    with held_port() as held:
        yield int(held.getsockname()[1])


def test_refusals_reach_the_caller(broker: BrokerProcess) -> None:
    async def check() -> None:
        async with BpspClient("127.0.0.1", broker.ports["bpsp"]) as client:
            with pytest.raises(Refusal, match="wildcard") as refused:
                await client.publish("a/+", b"x")
            assert refused.value.code is Code.MALFORMED
            await client.subscribe("a", "tag")
            with pytest.raises(Refusal, match="already subscribed"):
                await client.subscribe("a", "tag")
            await client.unsubscribe("a", "tag")
            await client.subscribe("a", "tag")
        async with PsmbClient("127.0.0.1", broker.ports["psmb"]) as psmb:
            with pytest.raises(Refusal, match="bad pattern"):
                await psmb.subscribe("(")
            with pytest.raises(Refusal, match="ASCII"):
                await psmb.subscribe("ö")
            with pytest.raises(Refusal, match="no headers"):
                await psmb.publish("t", b"x", headers=(("a", "b"),))

    asyncio.run(check())


def test_headers_and_names_travel(broker: BrokerProcess) -> None:
    async def check() -> None:
        address = f"bpsp://ann:pass@127.0.0.1:{broker.ports['bpsp']}"
        async with connect(address) as client:
            await client.subscribe("t")
            await client.publish("t", b"x", headers=(("kind", 'a "b" \\ c'),))
            headers = dict((await take(client, 1))[0].headers)
            assert headers["kind"] == 'a "b" \\ c'
            assert headers["x-from"] == "ann"

    asyncio.run(check())


def test_a_durable_subscriber_goes_on_where_it_stopped(broker: BrokerProcess) -> None:
    def until_proven() -> None:
        for _ in eventually():  # the client answers the broker's NOP by itself
            if broker.position("psmb/9/t") == 1:
                return

    async def check() -> None:
        port = broker.ports["psmb"]
        async with PsmbClient("127.0.0.1", port) as publisher:
            await publisher.publish("t", b"1")
            async with PsmbClient("127.0.0.1", port) as first:
                await first.subscribe("t", subscriber=9)
                assert (await take(first, 1))[0].payload == b"1"
                await asyncio.to_thread(until_proven)
            await publisher.publish("t", b"2")
            async with PsmbClient("127.0.0.1", port) as second:
                await second.subscribe("t", subscriber=9)
                assert (await take(second, 1))[0].payload == b"2"

    asyncio.run(check())


def test_an_application_that_does_not_take_messages_stops_the_flow(broker: BrokerProcess) -> None:
    async def check() -> None:
        async with connect(url(broker, "psmb")) as slow, connect(url(broker, "psmb")) as publisher:
            await slow.subscribe("t")
            for number in range(200):
                await publisher.publish("t", *[b"%d" % number + b"x" * 1000] * 100)
            assert len(slow._inbox._items) <= 70
            got = await take(slow, 200 * 100)
            assert [m.payload for m in got[::100]] == [
                b"%d" % number + b"x" * 1000 for number in range(200)
            ]

    asyncio.run(check())


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("psmb://localhost/a/.*?b#c", Target("psmb", "localhost", None, "", "", "a/.*?b#c")),
        ("bpsp://u:p%40@[::1]:7/x", Target("bpsp", "::1", 7, "u", "p@", "x")),
        ("bpsp://host", Target("bpsp", "host", None, "", "", "")),
    ],
)
def test_urls(text: str, target: Target) -> None:
    assert Target.parse(text) == target


@pytest.mark.parametrize("text", ["localhost/a", "http://localhost/a", "psmb:///a", "bpsp://h:x/a"])
def test_bad_urls_are_named(text: str) -> None:
    with pytest.raises(HeadwaterError, match="URL"):
        Target.parse(text)
