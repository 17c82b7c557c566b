"""Limits over real sockets: what is refused, how it is told and counted, and that nothing is
dropped."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from headwater.client import Client, connect
from headwater.control import call
from headwater.errors import HeadwaterError
from headwater.identity.book import AccessBook
from headwater.protocols.bmtp.envelope import PRODUCER
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET, BpspWire, BrokerProcess, eventually
from tests.flight.client import Client as FlightCaller
from tests.flight.client import rows

PASSWORD = "correct horse"
MOST = {
    "MESSAGE_BYTES": 1000,
    "TOPIC_BYTES": 60,
    "SUBSCRIPTIONS": 2,
    "CLIENT_QUEUES": 1,
    "CONNECTIONS_PER_USER": 3,
    "TOPICS_PER_USER": 2,
    "QUEUES_PER_USER": 1,
    "STORED_BYTES_PER_USER": 4096,
}
#: More of anything than is allowed.
TOO_MANY = range(10)
LONG = "a-topic-" * 8


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("strict") / "data"
    book = AccessBook(data)
    for name in ("ann", "bob", "carl"):
        book.add_user(name, "client", PASSWORD)
    limits = {f"HEADWATER_LIMITS_{name}": str(most) for name, most in MOST.items()}
    with BrokerProcess(data, toml=ALL_FIVE, **limits) as broker:
        yield broker


def answer(wire: BpspWire) -> str:
    """Why a request was refused; empty: it was not."""
    opcode, _, text = wire.frame()
    return text.decode() if opcode == bpsp.ERR else ""


def user(broker: BrokerProcess, name: str) -> tuple[BpspWire, str]:
    wire = broker.bpsp()
    wire.request(bpsp.CONNECT, x_username=name, x_password=PASSWORD)
    return wire, answer(wire)


def first(reasons: Iterator[str]) -> str:
    return next(filter(None, reasons))


# Each goes over a limit, and returns what the client is told.


def bpsp_message(broker: BrokerProcess) -> str:
    wire = broker.bpsp()
    wire.request(bpsp.PUB, bytes(1001), x_topic="t")
    return answer(wire)


def bpsp_topic(broker: BrokerProcess) -> str:
    wire = broker.bpsp()
    wire.request(bpsp.PUB, b"x", x_topic=LONG)
    return answer(wire)


def bpsp_tag(broker: BrokerProcess) -> str:
    wire = broker.bpsp()
    wire.request(bpsp.SUB, x_topic="t", x_sub_tag=LONG)
    return answer(wire)


def bpsp_name(broker: BrokerProcess) -> str:
    wire = broker.bpsp()
    wire.request(bpsp.CONNECT, x_username=LONG)
    return answer(wire)


def bpsp_subscriptions(broker: BrokerProcess) -> str:
    wire = broker.bpsp()

    def subscribe(number: int) -> str:
        wire.request(bpsp.SUB, x_topic=f"t/{number}")
        return answer(wire)

    return first(map(subscribe, TOO_MANY))


def bpsp_logins(broker: BrokerProcess) -> str:
    return first(user(broker, "ann")[1] for _ in TOO_MANY)


def bpsp_topics(broker: BrokerProcess) -> str:
    wire, _ = user(broker, "bob")

    def publish(number: int) -> str:
        wire.request(bpsp.PUB, b"x", x_topic=f"bob/{number}")
        return answer(wire)

    return first(map(publish, TOO_MANY))


def bpsp_stored(broker: BrokerProcess) -> str:
    wire, _ = user(broker, "carl")

    def publish(_: int) -> str:
        wire.request(bpsp.PUB, bytes(1000), x_topic="carl")
        return answer(wire)

    return first(map(publish, TOO_MANY))


def psmb_message(broker: BrokerProcess) -> str:
    wire = broker.publisher("t")
    wire.send(psmb.message_header(1001))
    return wire.rest().decode()


def psmb_topic(broker: BrokerProcess) -> str:
    wire = broker.psmb()
    wire.send(psmb.PsmbClientSession.hello() + psmb.PsmbClientSession.publishing(LONG))
    return wire.rest()[9:].decode()


def told(url: str, act: Callable[[Client], Awaitable[None]]) -> str:
    """What a client of ours is told."""

    async def ask() -> None:
        async with connect(url) as client:
            await act(client)

    with pytest.raises(HeadwaterError) as caught:
        asyncio.run(asyncio.wait_for(ask(), PATIENCE))
    return str(caught.value)


def publishing(topic: str, size: int) -> Callable[[Client], Awaitable[None]]:
    async def act(client: Client) -> None:
        await client.publish(topic, bytes(size))

    return act


async def consume_more_and_more(client: Client) -> None:
    for number in TOO_MANY:
        await client.subscribe(str(number))


def bmtp_url(broker: BrokerProcess) -> str:
    return f"bmtp://127.0.0.1:{broker.ports['bmtp']}"


def prism_url(broker: BrokerProcess) -> str:
    return f"prism://{APP}:{SECRET}@127.0.0.1:{broker.ports['prism']}"


def crystal_url(broker: BrokerProcess) -> str:
    return f"crystal://{SECRET}@127.0.0.1:{broker.ports['crystal']}"


def bmtp_message(broker: BrokerProcess) -> str:
    return told(bmtp_url(broker), publishing("1", 1001))


def bmtp_topic(broker: BrokerProcess) -> str:
    """The topics of channels are short, or configured; a producer_id may be as long as a topic."""

    async def act(client: Client) -> None:
        await client.publish("1", b"x", headers=((PRODUCER, LONG),))

    return told(bmtp_url(broker), act)


def bmtp_queues(broker: BrokerProcess) -> str:
    return told(bmtp_url(broker), consume_more_and_more)


def prism_message(broker: BrokerProcess) -> str:
    return told(prism_url(broker), publishing("t", 1001))


def prism_topic(broker: BrokerProcess) -> str:
    return told(prism_url(broker), publishing(LONG, 1))


def prism_queues(broker: BrokerProcess) -> str:
    return told(prism_url(broker), consume_more_and_more)


def crystal_message(broker: BrokerProcess) -> str:
    return told(crystal_url(broker), publishing("t", 1001))


def crystal_topic(broker: BrokerProcess) -> str:
    return told(crystal_url(broker), publishing(LONG, 1))


def flies(broker: BrokerProcess, topic: str, size: int) -> str:
    caller = FlightCaller(broker.ports["flight"])
    rows = pa.record_batch({"topic": [topic], "value": [bytes(size)]})
    with pytest.raises(flight.FlightServerError) as caught:
        caller.put(rows, do="append", producer="p", sequence=1)
    caller.close()
    return str(caught.value)


def flight_message(broker: BrokerProcess) -> str:
    return flies(broker, "t", 1001)


def flight_topic(broker: BrokerProcess) -> str:
    return flies(broker, LONG, 1)


@pytest.mark.parametrize(
    ("limit", "go_over", "reason"),
    [
        ("message_bytes", bpsp_message, "1001 bytes of data are over the limit of 1000"),
        ("message_bytes", psmb_message, "BYE"),
        ("message_bytes", bmtp_message, "too large"),
        ("message_bytes", prism_message, "a body may have 1000 bytes, not 1001"),
        ("message_bytes", crystal_message, "the broker does not understand this"),
        ("message_bytes", flight_message, "row 0: value is over the limit of 1000 bytes"),
        ("topic_bytes", bpsp_topic, "the topic is longer than 60 bytes"),
        ("topic_bytes", bpsp_tag, "the subscription's tag is longer than 60 bytes"),
        ("topic_bytes", bpsp_name, "the user name is longer than 60 bytes"),
        ("topic_bytes", psmb_topic, "the text has no end within 60 bytes"),
        ("topic_bytes", bmtp_topic, "too large"),
        ("topic_bytes", prism_topic, "the topic is longer than 60 bytes"),
        ("topic_bytes", crystal_topic, "the broker does not understand this"),
        ("topic_bytes", flight_topic, "row 0: the topic is longer than 60 bytes"),
        ("subscriptions", bpsp_subscriptions, "limits.subscriptions"),
        ("connections_per_user", bpsp_logins, "limits.connections_per_user"),
        ("topics_per_user", bpsp_topics, "limits.topics_per_user"),
        ("stored_bytes_per_user", bpsp_stored, "limits.stored_bytes_per_user"),
        ("queues_per_user", prism_queues, "limits.queues_per_user"),
        ("client_queues", bmtp_queues, "not permitted (status 4)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_limit_tells_the_client_and_is_counted_by_its_name(
    strict: BrokerProcess, limit: str, go_over: Callable[[BrokerProcess], str], reason: str
) -> None:
    before = strict.refusals(limit)
    assert reason in go_over(strict)
    assert strict.refusals(limit) == before + 1


def test_a_refusal_that_comes_again_is_counted_again(strict: BrokerProcess) -> None:
    before = strict.refusals("topic_bytes")
    for _ in range(2):
        bmtp_topic(strict)
    wire = strict.bpsp()
    for _ in range(2):
        assert wire.publish(LONG, b"x") == 413
    assert strict.refusals("topic_bytes") == before + 4


def test_connections_of_all(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_LIMITS_CONNECTIONS="1") as broker:
        broker.bpsp()
        second = BpspWire(broker.ports["bpsp"])
        assert "limits.connections" in answer(second)
        assert second.rest() == b""
        second.close()
        assert broker.refusals("connections") == 1


@pytest.mark.parametrize(
    ("limit", "begun", "reason"),
    [
        ("handshake_seconds", b"", "the handshake took too long"),
        ("unfinished_seconds", bpsp.frame(bpsp.PUB, b"", bytes(9))[:-1], "took too long to arrive"),
    ],
)
def test_who_takes_too_long_is_told_and_counted(
    tmp_path: Path, limit: str, begun: bytes, reason: str
) -> None:
    with BrokerProcess(tmp_path / "data", **{f"HEADWATER_LIMITS_{limit.upper()}": "1"}) as broker:
        wire = broker.bpsp()
        wire.send(begun)
        assert reason in answer(wire)
        assert wire.rest() == b""
        assert broker.refusals(limit) == 1


def test_connections_from_one_address(tmp_path: Path) -> None:
    limits = {"HEADWATER_LIMITS_CONNECTIONS_PER_ADDRESS": "2"}
    with BrokerProcess(tmp_path / "data", **limits) as broker:
        first, _ = broker.bpsp(), broker.bpsp()
        third = BpspWire(broker.ports["bpsp"])
        opcode, headers, text = third.frame()
        assert (opcode, headers["x-status-code"]) == (bpsp.ERR, "503")
        assert b"limits.connections_per_address" in text
        assert third.rest() == b""
        third.close()
        # PSMB has no words at this point, and closes in order.
        other = broker.psmb()
        other.send(psmb.PsmbClientSession.hello())
        assert other.rest() == b""
        assert broker.refusals("connections_per_address") == 2
        first.close()
        for _ in eventually():
            wire = BpspWire(broker.ports["bpsp"])
            found = wire.frame()[0]
            wire.close()
            if found == bpsp.INFO:
                break


def test_connections_of_one_user(tmp_path: Path) -> None:
    AccessBook(tmp_path / "data").add_user("alice", "client", PASSWORD)
    limits = {"HEADWATER_LIMITS_CONNECTIONS_PER_USER": "1"}
    with BrokerProcess(tmp_path / "data", **limits) as broker:
        one, two = broker.bpsp(), broker.bpsp()
        for wire, status in ((one, 200), (two, 507)):
            wire.request(bpsp.CONNECT, x_username="alice", x_password=PASSWORD)
            assert wire.status() == status
        assert broker.refusals("connections_per_user") == 1


@pytest.mark.both_loops
def test_a_fast_publisher_is_slowed_and_loses_nothing(broker: BrokerProcess) -> None:
    broker.stop()
    broker.set(HEADWATER_LIMITS_MESSAGES_PER_SECOND="2000")
    broker.start()
    subscriber, publisher, other = broker.bpsp(), broker.publisher("t"), broker.bpsp()
    subscriber.subscribe("t")
    began = time.monotonic()
    payloads = [b"%d" % number for number in range(6000)]
    for at in range(0, 6000, 500):
        publisher.messages(*payloads[at : at + 500])
        assert other.publish("elsewhere", b"not slowed") == 200
    assert time.monotonic() - began >= 1.5  # 2,000 at once, and 4,000 more at their pace
    assert [subscriber.frame()[2] for _ in payloads] == payloads
    slowed = call(broker.data, "metrics")["loop"]["slowed"]
    assert next(each for each in slowed if each["reason"] == "rate")["times"] > 0


def test_stored_bytes_of_one_user(tmp_path: Path) -> None:
    AccessBook(tmp_path / "data").add_user("alice", "client", PASSWORD)
    limits = {"HEADWATER_LIMITS_STORED_BYTES_PER_USER": "10KiB"}
    with BrokerProcess(tmp_path / "data", **limits) as broker:
        wire = broker.bpsp()
        wire.request(bpsp.CONNECT, x_username="alice", x_password=PASSWORD)
        assert wire.status() == 200
        assert wire.publish("a", bytes(8000)) == 200
        wire.request(bpsp.PUB, bytes(8000), x_topic="a")
        opcode, headers, text = wire.frame()
        assert (opcode, headers["x-status-code"]) == (bpsp.ERR, "507")
        assert b"limits.stored_bytes_per_user" in text
        assert broker.bpsp().publish("a", bytes(8000)) == 200  # of someone else
        assert broker.refusals("stored_bytes_per_user") == 1


def test_the_limits_of_a_user_hold_over_flight(tmp_path: Path) -> None:
    book = AccessBook(tmp_path / "data")
    book.add_user("alice", "client", PASSWORD)
    token = book.add_token("alice")["token"]
    limits = {
        "HEADWATER_LIMITS_STORED_BYTES_PER_USER": "10KiB",
        "HEADWATER_LIMITS_MESSAGES_PER_SECOND_PER_USER": "100",
    }
    with BrokerProcess(tmp_path / "data", **limits) as broker:
        wire = broker.bpsp()
        wire.request(bpsp.CONNECT, x_username="alice", x_password=PASSWORD)
        assert wire.status() == 200
        assert wire.publish("a", bytes(8000)) == 200
        with closing(FlightCaller(broker.ports["flight"], token)) as client:
            command = {"do": "append", "producer": "p", "sequence": 1}
            with pytest.raises(flight.FlightServerError, match=r"limits\.stored_bytes_per_user"):
                client.put(rows(("a", bytes(8000))), **command)
            assert client.act("log")["end"] == 1
            assert broker.refusals("stored_bytes_per_user") == 1
            assert client.put(rows(("a", bytes(2000))), **command)["count"] == 1
            began = time.monotonic()
            for sequence in range(2, 5):  # 100 at once, and each further 100 take a second
                client.put(rows(*[("a", b"x")] * 70), do="append", producer="p", sequence=sequence)
            assert time.monotonic() - began >= 0.3
        slowed = call(broker.data, "metrics")["loop"]["slowed"]
        assert next(each for each in slowed if each["reason"] == "rate")["times"] > 0
        assert broker.refusals("stored_bytes_per_user") == 1
