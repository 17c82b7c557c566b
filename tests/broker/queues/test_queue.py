"""Queues, on a real log."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headwater.broker.broker import Broker
from headwater.broker.queues import dead, ledger
from headwater.broker.queues.queue import Queue
from headwater.broker.receipts import AwaitedReceipt
from headwater.errors import Refusal
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.log.embedded.file import LogFile
from headwater.message import Batch, Run
from headwater.queue_spec import QueueSpec
from tests.broker.client import Client

SHARED = QueueSpec("test/q", (LevelFilter.exact("a"),), prefetch=10)
EVERYONE = replace(SHARED, shared=False, from_start=True, prefetch=None)
DEFAULT_LOG = LogSettings()


@asynccontextmanager
async def broker_on(
    directory: Path, repeat_seconds: float = 120.0, log: LogSettings = DEFAULT_LOG
) -> AsyncIterator[Broker]:
    engine = await EmbeddedEngine.open(directory, log)
    broker = Broker(engine, repeat_seconds=repeat_seconds)
    await broker.recall()
    try:
        yield broker
    finally:
        broker.close()
        await engine.close()


async def settle(broker: Broker) -> None:
    """Wait until everything is durable and was offered to whom it belongs."""
    done = asyncio.Event()
    broker.engine.when_durable(broker.engine.end, lambda _: done.set())
    broker.engine.hurry()
    await done.wait()
    while broker.busy:  # it may read from the disk
        await asyncio.sleep(0.001)


class Diligent(Client):
    """Acknowledges what it gets before any time can be over: a repeat (`again`), or all of it."""

    def __init__(self, broker: Broker, wanted: Callable[[int, bool], bool]) -> None:
        super().__init__(broker)
        self._wanted = wanted

    def offer(
        self, batch: Batch, key: tuple[str, str], again: bool, most: int
    ) -> tuple[int, Sequence[int]] | None:
        offered = super().offer(batch, key, again, most)
        if offered is not None:
            done = [offset for offset in offered[1] if self._wanted(offset, again)]
            # Not before the broker has noted who has them.
            asyncio.get_running_loop().call_soon(self.acknowledge, *done)
        return offered


def offsets(client: Client) -> list[int]:
    return [offset for offset, _, _ in client.delivered]


Check = Callable[[Broker], Awaitable[None]]


def run(directory: Path, *checks: Check, log: LogSettings = DEFAULT_LOG) -> None:
    """Each check gets the broker after a restart."""

    async def everything() -> None:
        for check in checks:
            async with broker_on(directory, log=log) as broker:
                await check(broker)

    asyncio.run(everything())


def test_a_message_goes_to_one_consumer(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        one, two = Client(broker), Client(broker)
        one.consume(SHARED)
        two.consume(SHARED)
        for number in range(10):
            one.publish("a", str(number).encode())
            await settle(broker)
        assert sorted(offsets(one) + offsets(two)) == list(range(10))
        assert len(one.delivered) == len(two.delivered) == 5

    run(tmp_path, check)


def test_a_batch_is_spread_over_the_consumers(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        clients = [Client(broker) for _ in range(3)]
        for client in clients:
            client.consume(SHARED)
        clients[0].publish("a", *[b"x"] * 9)
        await settle(broker)
        assert [len(client.delivered) for client in clients] == [3, 3, 3]

    run(tmp_path, check)


def test_prefetch_holds_messages_back_until_some_are_acknowledged(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        client = Client(broker)
        client.consume(SHARED)
        client.publish("a", *[b"x"] * 25)
        await settle(broker)
        assert offsets(client) == list(range(10))
        client.acknowledge(0, 1, 2)
        await settle(broker)
        assert offsets(client) == list(range(13))
        client.acknowledge(*range(3, 13))
        await settle(broker)
        assert offsets(client) == list(range(23))

    run(tmp_path, check)


def test_a_lost_consumers_messages_go_to_another_one_at_once(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        one, two = Client(broker), Client(broker)
        one.consume(SHARED)
        one.publish("a", b"0", b"1", b"2")
        await settle(broker)
        one.acknowledge(1)
        two.consume(SHARED)
        one.leave()
        await settle(broker)
        assert two.delivered == [(0, b"0", True), (2, b"2", True)]

    run(tmp_path, check)


def test_what_was_not_acknowledged_survives_a_restart_and_what_was_does_not(
    tmp_path: Path,
) -> None:
    async def before(broker: Broker) -> None:
        client = Client(broker)
        client.consume(SHARED)
        client.publish("a", *[b"%d" % number for number in range(15)])
        await settle(broker)
        client.acknowledge(0, 1, 2, 4, 6)

    async def after(broker: Broker) -> None:
        client = Client(broker)
        client.consume(replace(SHARED, prefetch=None))
        await settle(broker)
        assert sorted(offsets(client)) == [3, 5, *range(7, 15)]
        assert {again for offset, _, again in client.delivered if offset < 10} == {True}

    run(tmp_path, before, after)


def test_a_shared_queue_begins_when_it_is_first_asked_for(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        client = Client(broker)
        client.publish("a", b"before")
        await settle(broker)
        client.consume(SHARED)
        client.publish("a", b"after")
        client.publish("b", b"not wanted")
        await settle(broker)
        assert [payload for _, payload, _ in client.delivered] == [b"after"]

    run(tmp_path, check)


def test_everyone_who_is_there_gets_a_broadcast(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        one, two = Client(broker), Client(broker)
        one.publish("a", b"waits for the first")
        await settle(broker)
        one.consume(EVERYONE)
        await settle(broker)
        two.consume(EVERYONE)
        one.publish("a", b"for both")
        await settle(broker)
        assert offsets(one) == [0, 1]
        assert offsets(two) == [1]

    run(tmp_path, check)


def test_what_one_left_of_a_broadcast_goes_to_the_next_that_comes(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        one, two, three = Client(broker), Client(broker), Client(broker)
        one.consume(EVERYONE)
        two.consume(EVERYONE)
        one.publish("a", b"0", b"1", b"2")
        await settle(broker)
        two.acknowledge(0, 1, 2)
        one.acknowledge(1)
        one.leave()
        await settle(broker)
        assert offsets(two) == [0, 1, 2]  # it had them
        three.consume(EVERYONE)
        await settle(broker)
        assert three.delivered == [(0, b"0", True), (2, b"2", True)]
        three.acknowledge(0, 2)
        three.leave()
        two.leave()
        late = Client(broker)
        late.publish("a", b"3")
        await settle(broker)
        late.consume(EVERYONE)
        await settle(broker)
        assert late.delivered == [(3, b"3", False)]

    run(tmp_path, check)


def test_a_window_of_the_connection_holds_a_broadcast_back(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        slow, fast = Client(broker, window=5), Client(broker)
        slow.consume(EVERYONE)
        fast.consume(EVERYONE)
        fast.publish("a", *[b"x"] * 12)
        await settle(broker)
        assert offsets(slow) == list(range(5))
        assert offsets(fast) == list(range(12))
        slow.acknowledge(*range(5))
        await settle(broker)
        assert offsets(slow) == list(range(10))

    run(tmp_path, check)


def test_what_is_not_acknowledged_in_time_is_delivered_again(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        client = Diligent(broker, lambda offset, again: offset == 0 or again)
        client.consume(replace(SHARED, ack_seconds=0.3))
        client.publish("a", b"0", b"1")
        await until(lambda: len(client.delivered) == 3)
        # Time is over for this one last, so by then it is for everything before it.
        client.publish("a", b"2")
        await until(lambda: len(client.delivered) == 5)
        assert client.delivered == [
            *((0, b"0", False), (1, b"1", False), (1, b"1", True)),
            *((2, b"2", False), (2, b"2", True)),
        ]

    run(tmp_path, check)


DYING = replace(SHARED, ack_seconds=0.05, max_deliveries=3, dead_topic="dead/app/q")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_message_that_nobody_acknowledges_becomes_a_dead_letter(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        client = Client(broker)
        client.consume(DYING)
        client.publish("a", b"poison")
        queue = broker.queues[SHARED.name]
        await until(lambda: len(client.delivered) == 3 and not queue.buried and not client.held)
        (letter,) = [batch async for batch in broker.dead.letters(queue)]
        assert letter.run.topic == "dead/app/q"
        assert letter.run.payloads == [b"poison"]
        assert (letter.run.protocol, letter.run.publisher) == ("test", "me")
        about = dict(letter.run.headers)
        assert about["dead-topic"] == "a"
        assert about["dead-offset"] == "0"
        assert about["dead-deliveries"] == "3"
        assert "0.05 s" in about["dead-reason"]
        # Another one goes the same way behind it, and the first is not delivered again meanwhile.
        client.publish("a", b"marker")
        await until(lambda: len(client.delivered) == 6 and not queue.buried)
        assert [payload for _, payload, _ in client.delivered] == [b"poison"] * 3 + [b"marker"] * 3

    run(tmp_path, check)


def test_dead_letters_are_redriven_to_their_topic_and_then_gone(tmp_path: Path) -> None:
    async def die(broker: Broker) -> None:
        client = Client(broker)
        client.consume(DYING)
        client.publish("a", *[b"%d" % number for number in range(5)])
        queue = broker.queues[SHARED.name]
        await until(lambda: broker.engine.watermark == 10 and not queue.buried)

    async def redrive(broker: Broker) -> None:
        queue = broker.queue(DYING)
        seen = []
        assert await broker.dead.count(queue) == 5
        assert await broker.dead.redrive(queue, 2, lambda *done: seen.append(done)) == 2
        assert await broker.dead.count(queue) == 3
        assert seen == [(2, 2)]
        assert await broker.dead.redrive(queue, None, lambda *done: seen.append(done)) == 3
        assert await broker.dead.count(queue) == 0
        client = Diligent(broker, lambda offset, again: True)  # or they would be dead again soon
        client.consume(replace(SHARED))
        await settle(broker)
        assert [payload for _, payload, _ in client.delivered] == [b"%d" % n for n in range(5)]
        (batch, *_) = [broker.engine.recent(offset) for offset in offsets(client)]
        assert batch is not None and batch.run.topic == "a"
        ((name, value),) = batch.run.headers  # its place among the dead letters, for a crash
        assert name == "dead-redriven" and value.endswith(" 7")

    async def still_gone(broker: Broker) -> None:
        assert await broker.dead.count(broker.queue(DYING)) == 0

    run(tmp_path, die, redrive, still_gone)


async def dead_letters(broker: Broker, count: int) -> Queue:
    """So many, numbered, of messages of topic a."""
    client = Client(broker)
    client.consume(DYING)
    client.publish("a", *[b"%d" % number for number in range(count)])
    queue = broker.queues[SHARED.name]
    await until(lambda: broker.engine.watermark == 2 * count and not queue.buried)
    client.leave()
    return queue


async def published_again(broker: Broker, since: int) -> list[bytes]:
    """What there is of topic a from an offset on."""
    batches, _ = await broker.engine.read(since, lambda topic: topic == "a", 1 << 20)
    return [payload for batch in batches for payload in batch.since(since).run.payloads]


def test_one_operation_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead, "CHUNK", 2)

    async def check(broker: Broker) -> None:
        queue = await dead_letters(broker, 5)
        refused: list[str] = []

        def meanwhile(*_: object) -> None:
            for work in (broker.dead.redrive(queue, None, print), broker.dead.purge(queue)):
                with pytest.raises(Refusal) as caught:
                    work.send(None)
                refused.append(str(caught.value))

        assert await broker.dead.redrive(queue, None, meanwhile) == 5
        assert set(refused) == {
            f"a redrive ({done} of 5) of dead letters of test/q is running; try again when it is "
            "done"
            for done in (2, 4, 5)
        }
        await settle(broker)
        assert await published_again(broker, 10) == [b"%d" % number for number in range(5)]
        assert await broker.dead.redrive(queue, None, print) == 0  # the next one may

    run(tmp_path, check)


def test_a_redrive_that_a_crash_interrupts_does_not_publish_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "CHUNK", 2)

    async def interrupted(broker: Broker) -> None:
        queue = await dead_letters(broker, 5)

        def crash(done: int, total: int) -> None:
            if done == 4:
                raise asyncio.CancelledError

        with monkeypatch.context() as patch:
            # The messages are durable, their position is not.
            patch.setattr(dead.DeadLetters, "_save", lambda *_: None)
            with pytest.raises(asyncio.CancelledError):
                await broker.dead.redrive(queue, None, crash)
        assert await published_again(broker, 10) == [b"0", b"1", b"2", b"3"]
        # A consumer that has seen the header cannot make letters look redriven that are not.
        seen = broker.engine.recent(13)
        assert seen is not None
        signature = dict(seen.run.headers)["dead-redriven"].partition(" ")[0]
        for forged in (f"{signature} 10", f"{signature} x", f"{signature} {'9' * 5000}", "é 1"):
            forgery = Run("b", [b""], protocol="test", headers=(("dead-redriven", forged),))
            broker.publish(forgery, AwaitedReceipt(), None)
        await settle(broker)

    async def after(broker: Broker) -> None:
        queue = broker.queue(DYING)
        assert await broker.dead.count(queue) == 1
        assert await broker.dead.redrive(queue, None, lambda *_: None) == 1
        assert await published_again(broker, 10) == [b"0", b"1", b"2", b"3", b"4"]

    run(tmp_path, interrupted, after)


def test_a_position_of_dead_letters_never_goes_back(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        queue = await dead_letters(broker, 3)
        assert await broker.dead.purge(queue) == 3
        broker.dead._save(queue.spec.name, 4)
        assert await broker.dead.count(queue) == 0

    run(tmp_path, check)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), OSError(5, "I/O error")])
def test_burying_waits_until_the_message_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    monkeypatch.setattr(dead, "RETRY_SECONDS", 0.01)
    read, failures = LogFile.read, [error, error]

    def failing(self: LogFile, position: int, length: int) -> bytes:
        if failures:
            raise failures.pop()
        return read(self, position, length)

    async def check(broker: Broker) -> None:
        monkeypatch.setattr(LogFile, "read", failing)
        queue = await dead_letters(broker, 3)
        assert not failures and await broker.dead.count(queue) == 3

    run(tmp_path, check, log=LogSettings(tail_bytes=0))


def test_burying_goes_on_after_any_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead, "FAULT_SECONDS", 0.01)
    publish, failures = dead.DeadLetters._publish, [KeyError("a bug")]

    async def failing(self: dead.DeadLetters, runs: Sequence[Run]) -> None:
        if failures:
            raise failures.pop()
        await publish(self, runs)

    monkeypatch.setattr(dead.DeadLetters, "_publish", failing)

    async def check(broker: Broker) -> None:
        queue = await dead_letters(broker, 3)
        assert not failures and await broker.dead.count(queue) == 3

    run(tmp_path, check)


def test_letters_of_one_time_are_durable_in_one_step(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        await dead_letters(broker, 50)
        assert sum(broker.engine.syncs.counts) < 20

    run(tmp_path, check)


def test_looking_at_a_queue_changes_nothing(tmp_path: Path) -> None:
    held = replace(SHARED, max_deliveries=1)

    async def leave(broker: Broker) -> None:
        client = Client(broker)
        client.consume(SHARED)
        client.publish("a", b"0", b"1")
        await settle(broker)
        assert len(client.held) == 2

    async def look(broker: Broker) -> None:
        noted = broker.engine.notes.load_queue(SHARED.name)
        seen = broker.look_at(held)  # in whose eyes both are dead
        assert (seen.position, seen.to_repeat) == (2, 2)
        assert await broker.dead.count(seen) == 0 and not seen.buried
        assert broker.queues == {}
        assert broker.engine.notes.load_queue(SHARED.name) == noted
        client = Client(broker)
        client.consume(SHARED)
        await settle(broker)
        assert sorted(client.held) == [0, 1]

    run(tmp_path, leave, look)


def test_purged_dead_letters_do_not_come_back(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        client = Client(broker)
        client.consume(DYING)
        client.publish("a", b"0", b"1")
        queue = broker.queues[SHARED.name]
        await until(lambda: broker.engine.watermark == 4 and not queue.buried)
        assert await broker.dead.purge(queue) == 2
        assert await broker.dead.count(queue) == 0

    run(tmp_path, check)


def test_a_name_is_one_connections_until_it_leaves(tmp_path: Path) -> None:
    from headwater.commands import Identify
    from headwater.errors import Code

    async def check(broker: Broker) -> None:
        one, two = Client(broker), Client(broker)
        one.peer.handle(Identify("one", answer=b"yes", sole="name"))
        two.peer.handle(Identify("two", answer=b"yes", sole="name"))
        assert one.answers == [b"yes"]
        assert two.answers == []
        assert [error.code for error in two.refused] == [Code.ALREADY_EXISTS]
        one.leave()
        two.peer.handle(Identify("two", answer=b"yes", sole="name"))
        assert two.answers == [b"yes"]

    run(tmp_path, check)


def test_a_consumer_may_ask_for_another_prefetch(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        asking, silent = Client(broker), Client(broker)
        asking.consume(replace(SHARED, prefetch=1), prefetch=3)
        silent.consume(replace(SHARED, prefetch=1))
        asking.publish("a", *[b"x"] * 10)
        await settle(broker)
        assert (len(asking.held), len(silent.held)) == (3, 1)

    run(tmp_path, check)


def test_the_content_of_a_ledger() -> None:
    items = [(5, 1), (1 << 60, 3)]
    far = 1 << 61
    assert ledger.decode(ledger.encode(7, dict(items)), far) == (7, items)
    assert ledger.decode(ledger.encode(0, {}), far) == (0, [])
    assert ledger.decode(ledger.encode(0, {1: 100_000}), far) == (0, [(1, 65535)])
    assert ledger.decode(ledger.encode(9, {3: 1, 6: 2}), 5) == (5, [(3, 1)])


def test_what_one_returns_while_anothers_is_read_is_not_forgotten(tmp_path: Path) -> None:
    async def check() -> None:
        async with broker_on(tmp_path, log=LogSettings(tail_bytes=0)) as broker:
            first, second, third = Client(broker, 1), Client(broker, 1), Client(broker)
            for client in (first, second):
                client.consume(SHARED)
                client.publish("a", b"x")
                await settle(broker)
            third.consume(SHARED)
            second.leave()  # offset 1 is read from the disk for the third
            assert broker.busy
            first.leave()  # offset 0 is older than what is being read
            await settle(broker)
            assert offsets(third) == [0, 1]

    asyncio.run(check())


@pytest.mark.parametrize("shared", [True, False])
def test_a_queue_reads_old_messages_from_disk(tmp_path: Path, shared: bool) -> None:
    """More than what stays in memory, and repeats of it."""
    spec = replace(SHARED, shared=shared, from_start=True, prefetch=5000)

    async def fill(broker: Broker) -> None:
        client = Client(broker)
        for _ in range(40):
            client.publish("a", *[bytes(1000)] * 500)
            await settle(broker)
        client.publish("a", b"last")
        await settle(broker)

    async def consume(broker: Broker) -> None:
        client = Client(broker, window=1 << 30)
        client.consume(spec)
        acknowledged: set[int] = set()
        while len(acknowledged) < 20_001:
            await until(partial(bool, client.held))
            held = sorted(client.held)
            assert acknowledged.isdisjoint(held)
            client.acknowledge(*held[::2])
            acknowledged.update(held[::2])
            broken, client = client, Client(broker, window=1 << 30)
            broken.leave()  # what it still held comes again
            client.consume(spec)

    run(tmp_path, fill, consume)


def test_who_leaves_twice_is_counted_once(tmp_path: Path) -> None:
    """A connection whose commands wait in line when it is closed says so twice."""

    async def main() -> None:
        async with broker_on(tmp_path) as broker:
            stays, leaves = Client(broker), Client(broker)
            for each in (stays, leaves):
                each.consume(SHARED)
            leaves.leave()
            leaves.leave()
            assert broker.subscriptions == 1
            stays.publish("a", b"x")
            await settle(broker)
            assert [payload for _, payload, _ in stays.delivered] == [b"x"]

    asyncio.run(main())
