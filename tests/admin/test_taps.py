"""Taps: what is counted, what is kept, and what is left out."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headwater.admin import taps
from headwater.admin.taps import MOST_TAPS, ROW_BYTES, ROWS_PER_SECOND, Taps
from headwater.broker.broker import Broker
from headwater.errors import Refusal
from headwater.filters import LevelFilter, RegexFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from tests.broker.client import Client

Test = Callable[[Broker, Taps, Client], Coroutine[Any, Any, None]]


class Clock:
    """The clock of the taps, which stands still: this process may, too, for longer than they wait.
    It counts how often it is looked at."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.now

    async def is_looked_at(self) -> None:
        """Twice: with the second look, all that follows the first one is done."""
        seen = self.looks
        async with asyncio.timeout(60):
            while self.looks < seen + 2:
                await asyncio.sleep(0.01)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(taps, "time", clock)
    return clock


def with_broker(test: Test, directory: Path) -> None:
    async def main() -> None:
        engine = await EmbeddedEngine.open(directory, LogSettings())
        broker = Broker(engine)
        made = Taps(broker)
        try:
            await test(broker, made, Client(broker))
        finally:
            made.stop()
            broker.close()
            await engine.close()

    asyncio.run(main())


def test_all_are_counted_and_some_are_kept(tmp_path: Path) -> None:
    async def test(broker: Broker, made: Taps, client: Client) -> None:
        tap = made.open(RegexFilter.parse("a/.*"), "")
        client.publish("a/1", *[b"x" * 5000] * 1000)
        client.publish("b/1", b"other")
        catch = made.fetch(tap)
        assert (catch.passed, catch.matched) == (1000, 1000)
        assert len(catch.rows) == ROWS_PER_SECOND
        assert catch.skipped == 1000 - ROWS_PER_SECOND
        assert [row.offset for row in catch.rows] == list(range(ROWS_PER_SECOND))
        first = catch.rows[0]
        assert first.size == 5000 and len(first.payload) == ROW_BYTES
        client.publish("a/2", b"more")
        later = made.fetch(tap)
        assert later.passed == 1 and len(later.rows) + later.skipped == 1

    with_broker(test, tmp_path)


def test_the_allowance_comes_back(tmp_path: Path, clock: Clock) -> None:
    async def test(broker: Broker, made: Taps, client: Client) -> None:
        tap = made.open(LevelFilter.exact("a"), "")
        client.publish("a", *[b"x"] * 500)
        made.fetch(tap)
        clock.now = 0.1
        made.fetch(tap)
        client.publish("a", *[b"x"] * 500)
        assert len(made.fetch(tap).rows) == ROWS_PER_SECOND // 10

    with_broker(test, tmp_path)


def test_a_text_is_looked_for_in_so_many(tmp_path: Path) -> None:
    async def test(broker: Broker, made: Taps, client: Client) -> None:
        tap = made.open(LevelFilter.exact("a"), "YES")
        client.publish("a", b"no", b"oh yes", b"no")
        catch = made.fetch(tap)
        assert (catch.passed, catch.matched, catch.skipped) == (3, 1, 0)
        assert [row.payload for row in catch.rows] == [b"oh yes"]
        client.publish("a", *[b"no"] * 5000)
        catch = made.fetch(tap)
        assert catch.passed == 5000 and catch.matched == 0
        assert catch.skipped >= 5000 - taps.EXAMINED_PER_SECOND

    with_broker(test, tmp_path)


def test_there_are_only_so_many(tmp_path: Path) -> None:
    async def test(broker: Broker, made: Taps, client: Client) -> None:
        numbers = [made.open(LevelFilter.exact("a"), "") for _ in range(MOST_TAPS)]
        with pytest.raises(Refusal, match="live tails already"):
            made.open(LevelFilter.exact("a"), "")
        assert broker.subscriptions == MOST_TAPS
        made.close(numbers[0])
        made.open(LevelFilter.exact("a"), "")
        with pytest.raises(Refusal, match="there is no tap"):
            made.fetch(numbers[0])

    with_broker(test, tmp_path)


def test_forgotten_ones_are_dropped(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taps, "FORGOTTEN_SECONDS", 0.2)

    async def test(broker: Broker, made: Taps, client: Client) -> None:
        kept, _ = made.open(LevelFilter.exact("a"), ""), made.open(LevelFilter.exact("a"), "")
        clock.now = 0.15
        made.fetch(kept)
        await clock.is_looked_at()
        assert len(made) == 2
        clock.now = 0.3
        async with asyncio.timeout(60):
            while len(made) > 1:
                await asyncio.sleep(0.01)
        await clock.is_looked_at()
        assert len(made) == 1 and broker.subscriptions == 1
        made.fetch(kept)

    with_broker(test, tmp_path)
