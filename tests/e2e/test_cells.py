"""Five by five: what one protocol publishes reaches subscribers of every protocol."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headwater.client import (
    BmtpClient,
    BpspClient,
    Client,
    CrystalClient,
    Message,
    PrismClient,
    PsmbClient,
)
from headwater.errors import Refusal
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET, BrokerProcess

PROTOCOLS = ("psmb", "bmtp", "prism", "bpsp", "crystal")
TOPIC = "bmtp/42"  # a name that all of them have
#: All five protocols on either event loop.
LOOPS = {"json": "uvloop", "binary": "asyncio"}

TEXT = 'Grüße, 世界: "quoted" \\ back\tslash'.encode()
JSON = b'{"temperature": 21.50, "tags": ["a", "b"]}'
BINARY = bytes(range(256))
EMPTY = b""
LARGE = ("0123456789abcdef" * 3840).encode()  # 60 KiB: what fits into a packet of BMTP
HUGE = b"x" * 1_000_000

#: Who cannot publish what: their messages are text, or have a limit.
CANNOT = {
    ("bmtp", BINARY): "json",
    ("crystal", BINARY): "text",
    ("bmtp", HUGE): "64 KiB",
    ("prism", HUGE): "64 KiB",
}


def client_of(protocol: str, broker: BrokerProcess, envelope: str = "json") -> Client:
    port = broker.ports[protocol]
    if protocol == "psmb":
        return PsmbClient("127.0.0.1", port)
    if protocol == "bpsp":
        return BpspClient("127.0.0.1", port)
    if protocol == "bmtp":
        return BmtpClient("127.0.0.1", port, envelope="json" if envelope == "json" else "binary")
    if protocol == "prism":
        return PrismClient("127.0.0.1", port, app=APP, secret=SECRET)
    return CrystalClient("127.0.0.1", port, secret=SECRET)


async def subscribe(client: Client) -> None:
    await client.subscribe("" if isinstance(client, PrismClient) else TOPIC)


async def next_message(client: Client) -> Message:
    return await asyncio.wait_for(anext(client), PATIENCE)


@pytest.fixture(scope="module", params=["json", "binary"])
def envelope(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, envelope: str) -> Iterator[BrokerProcess]:
    toml = f'{ALL_FIVE}\n[bmtp]\nenvelope = "{envelope}"\n'
    place = tmp_path_factory.mktemp("cells") / "data"
    with BrokerProcess(place, toml=toml, HEADWATER_LOOP=LOOPS[envelope]) as running:
        yield running


Check = Callable[[dict[str, Client], dict[str, Client]], Awaitable[None]]


def with_everyone(broker: BrokerProcess, envelope: str, check: Check) -> None:
    """A publisher and a subscriber of each protocol, all connected to the one broker."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            publishers: dict[str, Client] = {}
            subscribers: dict[str, Client] = {}
            for protocol in PROTOCOLS:
                for clients in (publishers, subscribers):
                    client = client_of(protocol, broker, envelope)
                    clients[protocol] = await stack.enter_async_context(client)
                await subscribe(subscribers[protocol])
            await check(publishers, subscribers)

    asyncio.run(main())


def as_crystal_shows(payload: bytes) -> bytes:
    """Crystal's payloads are text."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return b"data:application/octet-stream;base64," + base64.b64encode(payload)
    return payload


@pytest.mark.parametrize(
    "payload", [TEXT, JSON, BINARY, EMPTY, LARGE], ids=["text", "json", "binary", "empty", "large"]
)
def test_the_25_cells(broker: BrokerProcess, envelope: str, payload: bytes) -> None:
    async def check(publishers: dict[str, Client], subscribers: dict[str, Client]) -> None:
        seen = 0
        for source, publisher in publishers.items():
            why = CANNOT.get((source, payload))
            if why is not None and why in ("text", envelope):
                with pytest.raises(Refusal):
                    await publisher.publish(TOPIC, payload)
                continue
            await publisher.publish(TOPIC, payload)
            for target, subscriber in subscribers.items():
                message = await next_message(subscriber)
                wanted = as_crystal_shows(payload) if target == "crystal" else payload
                assert message.payload == wanted, f"{source} to {target}"
                assert message.topic == TOPIC, f"{source} to {target}"
                seen += 1
        left_out = sum(why in ("text", envelope) for (_, p), why in CANNOT.items() if p == payload)
        assert seen == 25 - 5 * left_out

    with_everyone(broker, envelope, check)


def test_what_is_too_large_for_bmtp_is_left_out_there_and_whole_elsewhere(
    broker: BrokerProcess, envelope: str
) -> None:
    async def check(publishers: dict[str, Client], subscribers: dict[str, Client]) -> None:
        for source in ("psmb", "bpsp", "crystal"):
            await publishers[source].publish(TOPIC, HUGE)
            await publishers[source].publish(TOPIC, b"after " + source.encode())
            for target, subscriber in subscribers.items():
                if target != "bmtp":
                    assert (await next_message(subscriber)).payload == HUGE
                assert (await next_message(subscriber)).payload == b"after " + source.encode()
        for source in ("bmtp", "prism"):
            with pytest.raises(Refusal):
                await publishers[source].publish(TOPIC, HUGE)

    with_everyone(broker, envelope, check)


def test_headers_travel_where_they_can(broker: BrokerProcess, envelope: str) -> None:
    async def check(publishers: dict[str, Client], subscribers: dict[str, Client]) -> None:
        about = (("content-type", "application/json"), ("colour", "blue"))
        await publishers["bpsp"].publish(TOPIC, b"{}", headers=about)
        from_bpsp = {name: await next_message(each) for name, each in subscribers.items()}
        assert set(about) <= set(from_bpsp["bpsp"].headers)
        assert ("content-type", "application/json") in from_bpsp["prism"].headers
        await publishers["prism"].publish(TOPIC, b"{}", headers=about[:1])
        from_prism = {name: await next_message(each) for name, each in subscribers.items()}
        assert about[0] in from_prism["bpsp"].headers
        assert about[0] in from_prism["prism"].headers
        assert dict(from_prism["crystal"].headers)["publisher"] == APP
        assert dict(from_prism["bpsp"].headers)["x-from"] == APP

    with_everyone(broker, envelope, check)


def test_all_of_them_on_one_port(tmp_path: Path) -> None:
    """The 25 cells once more, everyone on the port that recognises protocols."""
    with BrokerProcess(tmp_path / "data", toml=ALL_FIVE) as broker:
        broker.ports = dict.fromkeys(PROTOCOLS, broker.ports["any"])

        async def check(publishers: dict[str, Client], subscribers: dict[str, Client]) -> None:
            for source, publisher in publishers.items():
                await publisher.publish(TOPIC, source.encode())
                for subscriber in subscribers.values():
                    assert (await next_message(subscriber)).payload == source.encode()

        with_everyone(broker, "json", check)
