"""The coarse clock that looks after many connections."""

import asyncio
from collections.abc import Callable

import pytest

from headwater.transport.clock import TICK_SECONDS, Clock


async def ticks(clock: Clock, count: int) -> None:
    until = clock.now + count
    while clock.now < until:
        await asyncio.sleep(TICK_SECONDS / 5)


def test_who_is_due_is_called_once_and_again_if_it_says_so() -> None:
    async def check() -> None:
        clock = Clock()
        heard: list[str] = []

        def due(name: str, again: float | None) -> Callable[[], float | None]:
            def call() -> float | None:
                heard.append(name)
                return again

            return call

        once, often, never = due("once", None), due("often", TICK_SECONDS), due("never", None)
        clock.add(TICK_SECONDS, once)
        clock.add(TICK_SECONDS, often)
        clock.add(TICK_SECONDS, never)
        clock.remove(never)
        await ticks(clock, 4)
        assert heard.count("once") == 1
        assert heard.count("often") >= 3
        assert "never" not in heard
        clock.stop()

    asyncio.run(check())


def test_adding_again_replaces_the_time() -> None:
    async def check() -> None:
        clock = Clock()
        heard: list[int] = []

        def due() -> None:
            heard.append(clock.now)

        clock.add(TICK_SECONDS, due)
        clock.add(3 * TICK_SECONDS, due)
        await ticks(clock, 5)
        assert heard == [3]
        assert clock.seconds_since(3) >= 2 * TICK_SECONDS
        clock.stop()

    asyncio.run(check())


def test_a_timer_that_fails_takes_no_other_along(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        clock = Clock()
        called = []

        def fail() -> None:
            raise RuntimeError("a bug")

        clock.add(TICK_SECONDS, fail)
        clock.add(TICK_SECONDS, lambda: called.append(1))
        while not called:
            await asyncio.sleep(0.01)
        clock.stop()

    asyncio.run(check())
    assert "a timer of a connection failed" in caplog.text
