"""Many patterns, and costly ones: nobody waits for them but those who subscribed with them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.broker import router as router_module
from headwater.broker.broker import Broker
from headwater.broker.matching import matcher
from headwater.commands import Subscribe
from headwater.filters import LevelFilter, RegexFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from tests.broker.client import Client, settle
from tests.broker.test_matcher import HOSTILE

PATIENCE = 60


def with_broker(directory: Path, check: Callable[[Broker], Awaitable[None]]) -> None:
    async def main() -> None:
        engine = await EmbeddedEngine.open(directory, LogSettings(sync="os"))
        broker = Broker(engine)
        try:
            await check(broker)
        finally:
            await broker.stop()
            await engine.close()

    asyncio.run(main())


def subscribe(client: Client, pattern: str, durable: str | None = None) -> None:
    wanted = RegexFilter.parse(pattern)
    client.peer.handle(Subscribe((pattern, ""), wanted, durable=durable, from_start=True))


def payloads(client: Client) -> list[bytes]:
    return [payload for _, payload, _ in client.delivered]


async def until(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not state():
            await asyncio.sleep(0.001)


@pytest.fixture
def never_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "AT_ONCE_SECONDS", 0.0)


@pytest.mark.usefixtures("never_at_once")
@pytest.mark.parametrize("durable", [None, "me"])
def test_many_patterns_are_asked_later_and_miss_nothing(
    tmp_path: Path, durable: str | None
) -> None:
    async def check(broker: Broker) -> None:
        publisher, subscriber, other = Client(broker), Client(broker), Client(broker)
        for number in range(50):
            subscribe(subscriber, rf"s/\w/{number}(/\w+)?", durable)
        other.peer.handle(Subscribe(("*", ""), LevelFilter.parse("*")))
        expected = []
        for number in range(200):
            publisher.publish(f"s/x/{number % 60}", b"%d" % number)
            expected += [b"%d" % number] if number % 60 < 50 else []
        assert len(other.delivered) == 200  # who has no pattern does not wait
        if durable is None:
            assert len(subscriber.delivered) < len(expected)
        await until(lambda: len(subscriber.delivered) >= len(expected))
        await settle(broker)
        assert payloads(subscriber) == expected

    with_broker(tmp_path, check)


@pytest.mark.usefixtures("never_at_once")
def test_subscriptions_that_come_and_go_meanwhile(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        publisher, subscriber, other = Client(broker), Client(broker), Client(broker)
        for number in range(50):
            subscribe(subscriber, rf"s/\w/{number}")
        for number in range(100):
            publisher.publish(f"s/x/{number % 50}", b"%d" % number)
            if number % 3 == 0:
                subscribe(other, rf"o/{number}\d")
            await asyncio.sleep(0)
        other.leave()
        await until(lambda: len(subscriber.delivered) >= 100)
        assert payloads(subscriber) == [b"%d" % number for number in range(100)]

    with_broker(tmp_path, check)


def test_a_pattern_that_is_not_simple_is_asked_elsewhere(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        publisher, subscriber, other = Client(broker), Client(broker), Client(broker)
        subscribe(subscriber, "(?i)s/.*")
        subscribe(other, "s/.*")
        for number in range(20):
            publisher.publish(f"{'sSt'[number % 3]}/{number % 7}", b"%d" % number)
        assert len(other.delivered) == 7
        await until(lambda: len(subscriber.delivered) >= 14)
        wanted = [b"%d" % number for number in range(20) if number % 3 < 2]
        assert payloads(subscriber) == wanted
        publisher.publish("s/0", b"known")
        assert payloads(subscriber)[-1] == b"known"  # at the head again

    with_broker(tmp_path, check)


def test_who_asks_for_too_much_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matcher, "LONGEST_SECONDS", 0.001)

    async def check(broker: Broker) -> None:
        publisher, hostile, other = Client(broker), Client(broker), Client(broker)
        subscribe(hostile, HOSTILE)
        subscribe(other, "a*")
        publisher.publish("a" * 1024, b"x")
        assert payloads(other) == [b"x"]
        await until(lambda: hostile.closed)
        hostile.leave()
        publisher.publish("a" * 1024, b"y")
        assert payloads(other) == [b"x", b"y"]
        assert not broker.router.route("a" * 1024).undecided
        again = Client(broker)
        subscribe(again, HOSTILE)
        assert [str(error) for error in again.refused] == [router_module.TOO_COSTLY]

    with_broker(tmp_path, check)
