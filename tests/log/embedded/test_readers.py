"""The threads that read the log: who has read least lately goes first."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from headwater.log.embedded import readers
from headwater.log.embedded.readers import THREADS, ReaderThreads

PATIENCE = 60.0


class Busy:
    """Reader threads that are held up, so that everyone else has to wait for their turn."""

    def __init__(self) -> None:
        self.threads = ReaderThreads()
        self.order: list[str] = []
        self._free = threading.Event()
        self._held = threading.Semaphore(0)
        self._reads: list[asyncio.Task[None]] = []

    async def hold_up(self) -> None:
        for number in range(THREADS):
            self.ask(f"holder {number}", self._hold)
        for _ in range(THREADS):
            await asyncio.to_thread(self._held.acquire)

    def ask(self, reader: str, work: Callable[[], None]) -> None:
        self._reads.append(asyncio.ensure_future(self.threads.read(reader, work)))

    def ask_in_turn(self, *names: str) -> None:
        for name in names:
            self.ask(name, partial(self.order.append, name))

    async def release(self) -> None:
        await asyncio.sleep(0)  # all have asked
        self._free.set()
        await asyncio.wait_for(asyncio.gather(*self._reads), PATIENCE)

    def _hold(self) -> None:
        self._held.release()
        self._free.wait(PATIENCE)


def run(check: Callable[[Busy], Awaitable[None]]) -> None:
    async def whole() -> None:
        busy = Busy()
        try:
            await check(busy)
        finally:
            busy.threads.close()

    asyncio.run(whole())


def test_a_newcomer_does_not_wait_behind_those_who_read_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check(busy: Busy) -> None:
        await busy.hold_up()
        busy.ask_in_turn(*["scanner"] * 10, "newcomer")
        await busy.release()
        assert busy.order.index("newcomer") <= THREADS
        assert sorted(busy.order) == ["newcomer", *["scanner"] * 10]

    run(check)


def test_nobody_saves_up_time_by_reading_nothing() -> None:
    async def check(busy: Busy) -> None:
        await busy.threads.read("old", lambda: None)
        for _ in range(20):
            await busy.threads.read("busy", lambda: threading.Event().wait(0.005))
        await busy.hold_up()
        busy.ask_in_turn("old", "old", "old", "new", "new", "new")
        await busy.release()
        assert busy.order.index("new") <= THREADS

    run(check)


def test_clocks_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MOST_CLOCKS", 8)

    async def check(busy: Busy) -> None:
        for number in range(100):
            await busy.threads.read(number, lambda: None)
        assert not busy.threads._clocks, "nobody reads"
        await busy.hold_up()
        busy.ask_in_turn(*map(str, range(100)))
        await busy.release()
        assert len(set(busy.order)) == 100
        assert not busy.threads._clocks

    run(check)


def test_a_read_that_nobody_waits_for_is_not_done() -> None:
    async def check(busy: Busy) -> None:
        await busy.hold_up()
        unwanted = asyncio.ensure_future(busy.threads.read("gone", lambda: busy.order.append("no")))
        busy.ask_in_turn("wanted")
        await asyncio.sleep(0)
        assert busy.threads.waiting == 2
        unwanted.cancel()
        await busy.release()
        assert busy.order == ["wanted"]
        assert busy.threads.waiting == 0
        assert sum(busy.threads.waits.counts) == sum(busy.threads.times.counts) == THREADS + 1

    run(check)


def test_what_a_read_raises_is_raised() -> None:
    async def check(busy: Busy) -> None:
        with pytest.raises(ZeroDivisionError):
            await busy.threads.read("who", lambda: 1 // 0)

    run(check)


def test_who_still_waits_at_the_end_is_told() -> None:
    async def check(busy: Busy) -> None:
        await busy.hold_up()
        waiting = asyncio.ensure_future(busy.threads.read("late", lambda: None))
        await asyncio.sleep(0)
        closing = asyncio.create_task(asyncio.to_thread(busy.threads.close))
        while busy.threads.waiting:
            await asyncio.sleep(0.001)
        await busy.release()
        await closing
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, PATIENCE)

    run(check)
