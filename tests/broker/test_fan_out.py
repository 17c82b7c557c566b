"""One topic that goes to very many: others have a turn meanwhile, and nobody misses anything."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from headwater.broker import broker as broker_module
from headwater.broker.broker import PUSHED_UNTIMED, Broker
from headwater.broker.late import MOST_LATE
from headwater.commands import Publish, Subscribe, Subscription, Unsubscribe
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.message import Batch, Run
from headwater.queue_spec import QueueSpec
from headwater.slowing import FAN_OUT
from tests.broker.client import Client, settle
from tests.broker.queues.test_queue import until
from tests.broker.test_repeats import writable
from tests.engines.test_embedded import FailingDisk

COUNT = 3 * PUSHED_UNTIMED


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if pushing a batch to the first few took as long as it may."""
    monkeypatch.setattr(broker_module, "PUSH_SECONDS", -1.0)


class Slow(Client):
    """Takes one batch, and then no more until it is told to."""

    room = 1

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        if not self.room:
            return 0
        self.room -= 1
        return super().deliver(batch, subscriptions)


def subscribed(client: Client, topic: str = "many") -> Client:
    client.peer.handle(Subscribe(("", topic), LevelFilter.exact(topic)))
    return client


def durable(client: Client, number: int, topic: str = "many") -> Client:
    wanted = LevelFilter.exact(topic)
    client.peer.handle(Subscribe(("", topic), wanted, durable=f"subscriber {number}"))
    return client


def consuming(client: Client, number: int, topic: str = "many") -> Client:
    client.consume(QueueSpec(f"queue {number}", (LevelFilter.exact(topic),)))
    return client


#: Those who see only what is durable.
REMEMBERED = pytest.mark.parametrize("taking", [durable, consuming])


def got(client: Client) -> list[bytes]:
    return [payload for _, payload, _ in client.delivered]


def run(directory: Path, check: Callable[[Broker], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        engine = await EmbeddedEngine.open(directory, LogSettings())
        broker = Broker(engine)
        await check(broker)
        broker.close()
        await engine.close()

    asyncio.run(all_of_it())


def test_another_topic_does_not_wait_for_all_of_them(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        many = [subscribed(Client(broker)) for _ in range(COUNT)]
        other, publisher = subscribed(Client(broker), "other"), Client(broker)
        publisher.publish("many", b"1")
        publisher.publish("other", b"2")
        assert got(other) == [b"2"]
        assert [got(each) for each in many].count([b"1"]) == PUSHED_UNTIMED
        await settle(broker)
        assert [got(each) for each in many] == [[b"1"]] * COUNT

    run(tmp_path, check)


@pytest.mark.parametrize("messages", [2, MOST_LATE, 2 * MOST_LATE])
def test_what_comes_meanwhile_comes_in_order(tmp_path: Path, messages: int) -> None:
    """Also more of it than is kept for those who wait."""

    async def check(broker: Broker) -> None:
        many = [subscribed(subscribed(Client(broker)), "too") for _ in range(COUNT)]
        publisher, expected = Client(broker), []
        for number in range(messages):
            publisher.publish("many", b"%d" % number)
            publisher.publish("unwanted", b"nobody wants it")
            publisher.publish("too", b"%d too" % number)
            expected += [b"%d" % number, b"%d too" % number]
        await settle(broker)
        assert [got(each) for each in many] == [expected] * COUNT
        publisher.publish("many", b"the next one")
        await settle(broker)
        assert [got(each)[-1] for each in many] == [b"the next one"] * COUNT

    run(tmp_path, check)


def test_one_without_room_reads_on_later(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        slow = [subscribed(Slow(broker)) for _ in range(COUNT)]
        publisher = Client(broker)
        for number in range(5):
            publisher.publish("many", b"%d" % number)
        await settle(broker)
        assert [got(each) for each in slow] == [[b"0"]] * COUNT
        for each in slow:
            assert isinstance(each, Slow)
            each.room = 10
            each.peer.drained()
        await settle(broker)
        assert [got(each) for each in slow] == [[b"%d" % number for number in range(5)]] * COUNT

    run(tmp_path, check)


def test_own_messages_do_not_come_back(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        many = [subscribed(Client(broker)) for _ in range(COUNT)]
        last = many[-1]
        Client(broker).publish("many", b"1")
        own = Run("many", [b"own"], protocol="test", publisher="last")
        last.peer.handle(Publish(own, echo=False))
        Client(broker).publish("many", b"2")
        await settle(broker)
        assert got(last) == [b"1", b"2"]
        assert [got(each) for each in many[:-1]] == [[b"1", b"own", b"2"]] * (COUNT - 1)

    run(tmp_path, check)


def test_who_has_left_or_wants_no_more_gets_nothing(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        many = [subscribed(Client(broker)) for _ in range(COUNT)]
        Client(broker).publish("many", b"1")
        many[-1].leave()
        many[-2].peer.handle(Unsubscribe(("", "many")))
        await settle(broker)
        assert got(many[-1]) == got(many[-2]) == []
        assert [got(each) for each in many[:-2]] == [[b"1"]] * (COUNT - 2)

    run(tmp_path, check)


@pytest.mark.plain
def test_what_was_not_stored_is_not_given_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(broker: Broker) -> None:
        many = [subscribed(Client(broker)) for _ in range(COUNT)]
        await settle(broker)
        later: list[Iterator[None]] = []
        monkeypatch.setattr(broker.chores, "add", later.append)
        disk, publisher = FailingDisk(monkeypatch), Client(broker)
        disk.failures = 1
        publisher.publish("many", b"1")
        broker.engine.hurry()
        await until(lambda: bool(publisher.refused) and writable(broker))
        publisher.publish("many", b"2")
        for chore in later:
            assert list(chore)
        assert [got(each)[-1:] for each in many] == [[b"2"]] * COUNT
        assert [got(each) for each in many].count([b"2"]) == COUNT - PUSHED_UNTIMED

    run(tmp_path, check)


def test_whoever_publishes_to_very_many_waits_until_all_have_it(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        many = [subscribed(Client(broker)) for _ in range(COUNT)]
        publisher, other = Client(broker), Client(broker)
        publisher.publish("many", b"1")
        other.publish("other", b"2")
        assert publisher.paused == {FAN_OUT}
        assert not other.paused
        await settle(broker)
        assert [got(each) for each in many] == [[b"1"]] * COUNT
        while publisher.paused:
            await asyncio.sleep(0)
        assert not broker.fan_outs

    run(tmp_path, check)


class Failing(Client):
    """Cannot be given anything."""

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        raise RuntimeError("the test wants it")


def test_one_that_fails_keeps_no_other_from_going_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(broker: Broker) -> None:
        many = [subscribed(Client(broker)) for _ in range(COUNT // 2)]
        subscribed(Failing(broker))
        behind = [subscribed(Client(broker)) for _ in range(COUNT // 2)]
        Client(broker).publish("many", b"1")
        await settle(broker)
        assert [got(each) for each in many + behind] == [[b"1"]] * COUNT
        assert not broker.fan_outs

    run(tmp_path, check)
    assert [each.message for each in caplog.records] == ["a subscriber cannot go on"]


class Waking(Client):
    """What it is given lets another go on at once."""

    other: Client | None = None

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        if self.other is not None:
            self.other.peer.drained()
        return super().deliver(batch, subscriptions)


def test_one_that_goes_on_in_the_middle_of_a_push_is_given_that_batch_too(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        waking = subscribed(Waking(broker))
        many = [subscribed(Client(broker)) for _ in range(COUNT)]
        publisher = Client(broker)
        publisher.publish("many", b"1")
        assert isinstance(waking, Waking)
        assert got(many[-1]) == []
        waking.other = many[-1]
        publisher.publish("many", b"2")
        waking.other = None
        await settle(broker)
        publisher.publish("many", b"3")
        await settle(broker)
        assert [got(each) for each in many] == [[b"1", b"2", b"3"]] * COUNT

    run(tmp_path, check)


class Witness(Client):
    """Looks around whenever it is given something."""

    seen = -1

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        self.seen = self.look()
        return super().deliver(batch, subscriptions)

    look: Callable[[], int]


@REMEMBERED
def test_those_of_another_topic_do_not_wait_for_all_who_see_only_what_is_durable(
    tmp_path: Path, taking: Callable[[Client, int], Client]
) -> None:
    async def check(broker: Broker) -> None:
        many = [taking(Client(broker), number) for number in range(COUNT)]
        other, publisher = Witness(broker), Client(broker)
        durable(other, COUNT, "other")
        other.look = lambda: [got(each) for each in many].count([b"1"])
        publisher.publish("many", b"1")
        publisher.publish("other", b"2")
        await settle(broker)
        assert other.seen == PUSHED_UNTIMED
        assert [got(each) for each in many] == [[b"1"]] * COUNT

    run(tmp_path, check)


@REMEMBERED
@pytest.mark.parametrize("messages", [2, 2 * MOST_LATE])
def test_what_is_durable_comes_in_order(
    tmp_path: Path, taking: Callable[[Client, int], Client], messages: int
) -> None:
    async def check(broker: Broker) -> None:
        many = [taking(Client(broker), number) for number in range(COUNT)]
        publisher, expected = Client(broker), [b"%d" % number for number in range(messages)]
        for number in range(messages):
            publisher.publish("many", b"%d" % number)
            publisher.publish("unwanted", b"nobody wants it")
            if number % 5 == 0:  # some are stored while others are still given
                broker.engine.hurry()
                await asyncio.sleep(0)
        await settle(broker)
        assert [got(each) for each in many] == [expected] * COUNT

    run(tmp_path, check)


@REMEMBERED
def test_whoever_publishes_more_waits_until_all_have_what_is_durable(
    tmp_path: Path, taking: Callable[[Client, int], Client]
) -> None:
    async def check(broker: Broker) -> None:
        many = [taking(Client(broker), number) for number in range(COUNT)]
        publisher, other = Client(broker), Client(broker)
        publisher.publish("many", b"1")
        broker.engine.hurry()
        while not broker.fan_outs:
            await asyncio.sleep(0)
        other.publish("other", b"2")
        assert not other.paused
        publisher.publish("many", b"3")
        assert publisher.paused == {FAN_OUT}
        await settle(broker)
        assert [got(each) for each in many] == [[b"1", b"3"]] * COUNT
        while publisher.paused:
            await asyncio.sleep(0)
        assert not broker.fan_outs

    run(tmp_path, check)
