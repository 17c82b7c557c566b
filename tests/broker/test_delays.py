"""Messages that are delivered later, and messages that have expired."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.broker import cursor, delays
from headwater.broker.broker import Broker
from headwater.broker.router import DELAYED
from headwater.commands import Subscribe
from headwater.filters import LevelFilter
from headwater.log.embedded import engine
from headwater.log.embedded.engine import LogSettings
from headwater.message import DELIVER_AT, EXPIRE_AT, Headers
from tests.broker.client import Client
from tests.broker.queues.test_queue import SHARED, broker_on, settle

NOW = 1_800_000_000.0

pytestmark = pytest.mark.plain  # the clock is replaced


class SetClock:
    """The time of day, as far as delays, expiry and the log know it."""

    def __init__(self) -> None:
        self.now = NOW

    def time(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)

    def monotonic(self) -> float:
        return time.monotonic()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    made = SetClock()
    monkeypatch.setattr(delays, "time", made)
    monkeypatch.setattr(cursor, "time", made)
    monkeypatch.setattr(engine, "time", made)
    monkeypatch.setattr(delays, "LONGEST_SLEEP", 0.002)
    return made


def later(seconds: float, header: str = DELIVER_AT) -> Headers:
    return ((header, str(int((NOW + seconds) * 1000))),)


def run(
    directory: Path, test: Callable[[Broker], Awaitable[None]], log: LogSettings | None = None
) -> None:
    async def main() -> None:
        async with broker_on(directory, log=log or LogSettings()) as broker:
            await test(broker)

    asyncio.run(main())


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not so():
            await asyncio.sleep(0.001)


def subscribe(broker: Broker, wanted: LevelFilter, durable: str | None = None) -> Client:
    client = Client(broker)
    client.peer.handle(Subscribe(("", wanted.text), wanted, durable=durable, from_start=True))
    return client


def payloads(client: Client) -> list[bytes]:
    return [payload for _, payload, _ in client.delivered]


def test_messages_come_when_they_are_due(tmp_path: Path, clock: SetClock) -> None:
    async def test(broker: Broker) -> None:
        everything = LevelFilter.parse("*")
        live, durable = subscribe(broker, everything), subscribe(broker, everything, "someone")
        consumer, publisher = Client(broker), Client(broker)
        consumer.consume(SHARED)
        publisher.publish("a", b"third", headers=later(30))
        publisher.publish("a", b"second", b"with it", headers=later(20))
        publisher.publish("a", b"first")
        await settle(broker)
        assert publisher.answers == [b"OK", b"OKOK", b"OK"]  # they are durable
        everyone = (live, durable, consumer)
        assert [payloads(each) for each in everyone] == [[b"first"]] * 3
        assert len(broker.delays) == 3
        clock.now += 25
        await until(lambda: len(consumer.delivered) == 3)
        clock.now += 25
        await until(lambda: len(consumer.delivered) == 4)
        await settle(broker)
        order = [b"first", b"second", b"with it", b"third"]
        assert [payloads(each) for each in everyone] == [order] * 3
        await until(lambda: len(broker.delays) == 0)

    run(tmp_path, test)


@pytest.mark.parametrize("until_then", ["waits", "is due"])
def test_a_restart_loses_nothing(tmp_path: Path, clock: SetClock, until_then: str) -> None:
    async def put_off(broker: Broker) -> None:
        Client(broker).publish("a", b"later", headers=later(20))
        await settle(broker)

    async def await_it(broker: Broker) -> None:
        reader = subscribe(broker, LevelFilter.exact("a"), "someone")
        if until_then == "waits":
            await settle(broker)
            assert payloads(reader) == []
            clock.now += 21
        await until(lambda: payloads(reader) == [b"later"])

    async def look(broker: Broker) -> None:
        assert len(broker.delays) == 0

    run(tmp_path, put_off)
    clock.now += 30 if until_then == "is due" else 0
    run(tmp_path, await_it)
    run(tmp_path, look)


def state_in(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("state.db*")}


def put_back(directory: Path, state: dict[str, bytes]) -> None:
    for path in directory.glob("state.db*"):
        path.unlink()
    for name, content in state.items():
        (directory / name).write_bytes(content)


def test_what_was_not_noted_before_a_crash_is_found(tmp_path: Path, clock: SetClock) -> None:
    async def nothing(broker: Broker) -> None: ...

    async def put_off(broker: Broker) -> None:
        Client(broker).publish("a", b"later", headers=later(20))
        await settle(broker)

    async def look(broker: Broker) -> None:
        assert len(broker.delays) == 1
        reader = subscribe(broker, LevelFilter.exact("a"))
        clock.now += 30
        await until(lambda: payloads(reader) == [b"later"])

    run(tmp_path, nothing)
    before = state_in(tmp_path)
    run(tmp_path, put_off)
    put_back(tmp_path, before)
    run(tmp_path, look)


def test_a_crash_does_not_publish_twice(tmp_path: Path, clock: SetClock) -> None:
    """The entry is removed a moment after the messages are durable."""

    async def put_off(broker: Broker) -> None:
        Client(broker).publish("a", b"later", headers=later(20))
        await settle(broker)

    async def release(broker: Broker) -> None:
        reader = subscribe(broker, LevelFilter.exact("a"))
        # Somebody who only pretends to be the broker.
        Client(broker).publish("a", b"forged", headers=((delays.FROM, "0" * 32 + " 0"),))
        await until(lambda: payloads(reader) == [b"forged"])
        clock.now += 30
        await until(lambda: payloads(reader) == [b"forged", b"later"])

    async def count(broker: Broker) -> None:
        reader = subscribe(broker, LevelFilter.exact("a"), "someone")
        Client(broker).publish("a", b"last")
        await until(lambda: b"last" in payloads(reader))
        assert payloads(reader) == [b"forged", b"later", b"last"]
        assert len(broker.delays) == 0

    run(tmp_path, put_off)
    before = state_in(tmp_path)
    run(tmp_path, release)
    put_back(tmp_path, before)
    run(tmp_path, count)


def test_a_forged_header_takes_nothing_away(tmp_path: Path, clock: SetClock) -> None:
    async def test(broker: Broker) -> None:
        publisher = Client(broker)
        publisher.publish("a", b"later", headers=later(20))
        publisher.publish("a", b"forged", headers=((delays.FROM, "0" * 32 + " 0"),))
        await settle(broker)

    async def look(broker: Broker) -> None:
        reader = subscribe(broker, LevelFilter.exact("a"), "someone")
        await until(lambda: payloads(reader) == [b"forged", b"later"])

    run(tmp_path, test)
    clock.now += 30
    run(tmp_path, look)


def test_a_queue_leaves_out_what_has_expired(tmp_path: Path, clock: SetClock) -> None:
    async def test(broker: Broker) -> None:
        broker.queue(SHARED)
        publisher, first = Client(broker), Client(broker)
        first.consume(SHARED)
        publisher.publish("a", b"held", headers=later(10, EXPIRE_AT))
        publisher.publish("a", b"held, and good for longer", headers=later(100, EXPIRE_AT))
        await settle(broker)
        assert len(first.held) == 2
        first.leave()
        publisher.publish("a", b"missed", headers=later(10, EXPIRE_AT))
        publisher.publish("a", b"good")
        await settle(broker)
        clock.now += 20
        second = Client(broker)
        second.consume(SHARED)
        await settle(broker)
        assert payloads(second) == [b"held, and good for longer", b"good"]

    run(tmp_path, test)


def test_a_subscriber_that_comes_late_misses_what_has_expired(
    tmp_path: Path, clock: SetClock
) -> None:
    async def test(broker: Broker) -> None:
        publisher = Client(broker)
        publisher.publish("a", b"old", headers=later(10, EXPIRE_AT))
        publisher.publish("a", b"delayed too long", headers=later(5) + later(6, EXPIRE_AT))
        publisher.publish("a", b"good", headers=later(100, EXPIRE_AT))
        await settle(broker)
        clock.now += 20
        await until(lambda: len(broker.delays) == 0)
        reader = subscribe(broker, LevelFilter.exact("a"), "someone")
        await settle(broker)
        assert payloads(reader) == [b"good"]

    run(tmp_path, test)


def test_nobody_gets_what_had_expired_when_it_came(tmp_path: Path, clock: SetClock) -> None:
    async def test(broker: Broker) -> None:
        live = subscribe(broker, LevelFilter.exact("a"))
        durable = subscribe(broker, LevelFilter.exact("a"), "someone")
        consumer, publisher = Client(broker), Client(broker)
        consumer.consume(SHARED)
        await settle(broker)
        publisher.publish("a", b"too late", headers=later(-1, EXPIRE_AT))
        publisher.publish("a", b"good")
        await settle(broker)
        assert [payloads(each) for each in (live, durable, consumer)] == [[b"good"]] * 3

    run(tmp_path, test)


def test_what_is_no_time_is_refused(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        publisher = Client(broker)
        for value in ("", "soon", "-1", "1.5", "9" * 16, "٣"):
            publisher.publish("a", b"x", headers=((DELIVER_AT, value),))
            publisher.publish("a", b"x", headers=((EXPIRE_AT, value),))
        publisher.publish(DELAYED, b"x")
        assert len(publisher.refused) == 13
        assert "milliseconds since 1970" in str(publisher.refused[0])
        assert "the broker's own topic" in str(publisher.refused[-1])
        assert broker.engine.end == 0

    run(tmp_path, test)


def test_what_retention_took_is_told(
    tmp_path: Path, clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: Broker) -> None:
        publisher = Client(broker)
        publisher.publish("a", b"later", headers=later(20))
        for _ in range(40):
            publisher.publish("b", b"x" * 100_000)
            await settle(broker)
        await until(lambda: broker.engine.start > 0)
        clock.now += 30
        await until(lambda: len(broker.delays) == 0)
        assert broker.gaps.count == 1
        assert "which were to be delivered later" in caplog.text

    log = LogSettings(segment_bytes=64 * 1024, retention_bytes=128 * 1024, tail_bytes=1)
    run(tmp_path, test, log)


@pytest.mark.parametrize(
    ("given", "due", "stored"),
    [
        ({}, 0, {}),
        ({"deliver-after": "50"}, 1050, {"deliver-at": "1050"}),
        ({"deliver-after": "50", "deliver-at": "1020"}, 1050, {"deliver-at": "1050"}),
        ({"expire-after": "50"}, 0, {"expire-at": "1050"}),
        ({"expire-after": "50", "expire-at": "1020"}, 0, {"expire-at": "1020"}),
        (
            {"deliver-at": "2000", "expire-after": "50"},
            2000,
            {"deliver-at": "2000", "expire-at": "2050"},
        ),
        ({"deliver-at": "10", "expire-after": "50"}, 10, {"deliver-at": "10", "expire-at": "1050"}),
    ],
)
def test_times_from_now_on_become_times_of_day(
    given: dict[str, str], due: int, stored: dict[str, str]
) -> None:
    found = delays.timed((("other", "x"), *given.items()), 1000)
    assert found == (due, (("other", "x"), *stored.items()))


def test_a_repeat_is_one_whatever_the_time(tmp_path: Path, clock: SetClock) -> None:
    """BMTP's clients say in how many seconds they want a message to be delivered."""

    async def publish(broker: Broker) -> None:
        publisher = Client(broker)
        for again in (False, True):
            soon = (("deliver-after", "20000"),)
            publisher.publish("a", b"x", once=(1,), again=again, headers=soon)
            await settle(broker)
            clock.now += 1
        assert len(broker.delays) == 1
        assert publisher.answers == [b"OK", b"OK"]

    async def repeat(broker: Broker) -> None:
        publisher = Client(broker)
        publisher.publish("a", b"x", once=(1,), again=True, headers=(("deliver-after", "20000"),))
        await settle(broker)
        assert len(broker.delays) == 1

    run(tmp_path, publish)
    run(tmp_path, repeat)
