"""Queues that clients have made are deleted when nobody consumes them, and others are not."""

import gc
import struct
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwater.broker.broker import Broker
from headwater.broker.queues import ledger, unused
from headwater.broker.queues.feed import Feed
from headwater.broker.queues.ledger import Usage
from headwater.broker.queues.queue import Queue
from headwater.filters import LevelFilter
from headwater.queue_spec import QueueSpec
from tests.broker.client import Client
from tests.broker.queues.test_queue import offsets, run, settle, until

HOUR = 3600.0
MADE = QueueSpec(
    "test/made",
    (LevelFilter.exact("a"),),
    from_start=True,
    empty_seconds=HOUR,
    unused_seconds=100 * HOUR,
)
DECLARED = replace(MADE, name="test/declared", empty_seconds=None, unused_seconds=None)
FROM_NOW = replace(MADE, name="test/from now", from_start=False)
SPECS = {each.name: each for each in (MADE, DECLARED, FROM_NOW)}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What the time is, as far as unused queues are concerned. They are looked at all the time."""
    clock = SimpleNamespace(ahead=0.0, looks=0)

    def now() -> float:
        clock.looks += 1
        return time.time() + float(clock.ahead)

    monkeypatch.setattr(unused, "time", SimpleNamespace(time=now))
    monkeypatch.setattr(unused, "believed", now)
    monkeypatch.setattr(unused, "LONGEST_PAUSE_SECONDS", 0.001)
    return clock


async def look_again(clock: SimpleNamespace) -> None:
    """Until all queues were looked at."""
    seen = clock.looks
    await until(lambda: clock.looks > seen + 2 * len(SPECS))


async def use(broker: Broker, *specs: QueueSpec, messages: int = 0) -> None:
    """Consume queues, take what there is, and leave."""
    for spec in specs:
        client = Client(broker)
        client.consume(spec)
        for number in range(messages):
            client.publish("a", b"%d" % number)
        await settle(broker)
        client.acknowledge(*list(client.held))
        client.leave()


def names(broker: Broker) -> set[str]:
    return {*broker.queues, *broker.engine.notes.queue_names()}


def test_a_queue_that_never_gave_a_message_goes_soon(
    tmp_path: Path, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(broker: Broker) -> None:
        await use(broker, MADE, DECLARED, FROM_NOW)
        await look_again(clock)
        assert names(broker) == SPECS.keys()
        clock.ahead = 2 * HOUR
        await until(lambda: MADE.name not in names(broker))
        await look_again(clock)
        # A message may wait in this one, which would be lost with it.
        assert names(broker) == {DECLARED.name, FROM_NOW.name}
        assert not caplog.messages
        publisher, client = Client(broker), Client(broker)
        publisher.publish("a", b"0")
        client.consume(MADE)
        await settle(broker)
        assert offsets(client) == [0]

    run(tmp_path, check)


def test_one_that_has_given_messages_stays_long(
    tmp_path: Path, clock: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(broker: Broker) -> None:
        await use(broker, MADE, messages=3)
        clock.ahead = 99 * HOUR
        await look_again(clock)
        assert names(broker) == {MADE.name}
        clock.ahead = 101 * HOUR
        await until(lambda: not names(broker))
        said = "queue test/made is deleted, because nobody has consumed it for 100h"
        assert [each for each in caplog.messages if "deleted" in each] == [said]

    run(tmp_path, check)


def test_nothing_is_left_of_one_that_has_gone(tmp_path: Path) -> None:
    """Nobody looks for cycles while a broker is busy."""

    def left() -> Counter[type]:
        return Counter(type(each) for each in gc.get_objects() if isinstance(each, Queue | Feed))

    async def check(broker: Broker) -> None:
        gc.collect()
        before = left()
        gc.disable()
        try:
            client = Client(broker)
            client.consume(MADE)
            client.publish("a", b"0")
            await settle(broker)
            client.leave()
            del client.peer  # or it were part of a cycle of the test
            assert left() > before
            broker.forget_queue(MADE.name)
            await settle(broker)
            assert left() == before
        finally:
            gc.enable()

    run(tmp_path, check)


def test_one_that_is_consumed_stays(tmp_path: Path, clock: SimpleNamespace) -> None:
    async def check(broker: Broker) -> None:
        client = Client(broker)
        client.consume(MADE)
        await use(broker, FROM_NOW)
        clock.ahead = 1000 * HOUR
        await until(lambda: FROM_NOW.name not in names(broker))
        assert names(broker) == {MADE.name}
        client.leave()

    run(tmp_path, check)


def test_their_age_is_remembered(tmp_path: Path, clock: SimpleNamespace) -> None:
    async def before(broker: Broker) -> None:
        await use(broker, MADE, FROM_NOW, DECLARED)

    async def after(broker: Broker) -> None:
        broker.unused.recall(SPECS.get)
        assert len(broker.unused) == 2 and not broker.queues
        clock.ahead = 2 * HOUR
        await until(lambda: MADE.name not in names(broker))
        assert names(broker) == {DECLARED.name, FROM_NOW.name}

    async def later(broker: Broker) -> None:
        broker.unused.recall(SPECS.get)
        clock.ahead = 101 * HOUR
        await until(lambda: FROM_NOW.name not in names(broker))

    async def at_last(broker: Broker) -> None:
        assert names(broker) == {DECLARED.name}

    run(tmp_path, before, after, later, at_last)


def test_one_that_was_consumed_until_a_crash_is_unused_from_then_on(
    tmp_path: Path, clock: SimpleNamespace
) -> None:
    async def before(broker: Broker) -> None:
        Client(broker).consume(MADE)  # and the broker ends

    async def after(broker: Broker) -> None:
        assert noted(broker) == Usage(0, given=False)
        broker.unused.recall(SPECS.get)
        await broker.engine.notes.flush()
        await until(lambda: noted(broker).unused_since > 0)
        assert names(broker) == {MADE.name}
        clock.ahead = 2 * HOUR
        await until(lambda: not names(broker))

    def noted(broker: Broker) -> Usage:
        content = broker.engine.notes.load_queue(MADE.name)
        assert content is not None
        return ledger.usage(content)

    run(tmp_path, before, after)


def test_what_an_earlier_version_wrote_can_be_read() -> None:
    content = struct.pack("<HQI2Q2H", 0xFFFF, 9, 2, 3, 6, 1, 2)
    assert ledger.decode(content, 100) == (9, [(3, 1), (6, 2)])
    assert ledger.usage(content) == Usage(0, given=True)
    now = ledger.with_usage(content, Usage(7, given=True))
    assert ledger.decode(now, 100) == (9, [(3, 1), (6, 2)])
    assert ledger.usage(now) == Usage(7, given=True)


def test_there_may_be_only_so_many(tmp_path: Path, clock: SimpleNamespace) -> None:
    async def check(broker: Broker) -> None:
        limited = Broker(broker.engine, client_queues=2)
        clients = [Client(limited) for _ in range(3)]
        for number, client in enumerate(clients):
            client.consume(replace(MADE, name=f"test/{number}"))
        assert [len(client.refused) for client in clients] == [0, 0, 1]
        assert "clients have made 2 queues" in str(clients[2].refused[0])
        assert clients[2].answers == []
        clients[2].consume(DECLARED)
        clients[2].peer.leave()
        clients[1].leave()
        await settle(limited)
        clock.ahead = 2 * HOUR
        await until(lambda: len(limited.unused) == 1)
        last = Client(limited)
        last.consume(replace(MADE, name="test/3"))
        assert not last.refused
        for client in (clients[0], last):
            client.leave()
        await settle(limited)
        limited.close()

    run(tmp_path, check)
