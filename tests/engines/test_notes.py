"""The states of very many queues are gathered in slices, and all of them are written."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import LogUnavailable
from headwater.log.embedded import notes
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings

QUEUES = 50
NAMES = [f"test/{number:02}" for number in range(QUEUES)]


class Turns:
    """Counts the turns of the loop, and notes in which of them a queue was asked for its state."""

    def __init__(self) -> None:
        self.now = 0
        self.asked: list[int] = []
        self._task = asyncio.create_task(self._count())

    def snapshot(self, content: bytes) -> bytes:
        self.asked.append(self.now)
        return content

    async def _count(self) -> None:
        while True:
            self.now += 1
            await asyncio.sleep(0)

    def stop(self) -> None:
        self._task.cancel()


def run(directory: Path, *checks: Callable[[EmbeddedEngine], Awaitable[None]]) -> None:
    async def everything() -> None:
        for check in checks:
            engine = await EmbeddedEngine.open(directory, LogSettings())
            await check(engine)
            await engine.close()

    asyncio.run(everything())


def save_all(engine: EmbeddedEngine, turns: Turns) -> None:
    for name in NAMES:
        engine.notes.save_queue(name, partial(turns.snapshot, name.encode()))


async def all_are_there(engine: EmbeddedEngine) -> None:
    assert engine.notes.queue_names() == NAMES
    assert [engine.notes.load_queue(name) for name in NAMES] == [name.encode() for name in NAMES]


@pytest.mark.parametrize("flush", [False, True])
def test_others_have_their_turn_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: bool
) -> None:
    monkeypatch.setattr(notes, "SLICE_SECONDS", 0.0)

    async def check(engine: EmbeddedEngine) -> None:
        turns = Turns()
        save_all(engine, turns)
        if flush:
            await engine.notes.flush()
        while len(turns.asked) < QUEUES:
            await asyncio.sleep(0)
        turns.stop()
        assert len(set(turns.asked)) == QUEUES, "one in each turn"

    run(tmp_path, check, all_are_there)


async def gather_between(engine: EmbeddedEngine, turns: Turns) -> None:
    """Flush, and have the timer come in the middle of it."""
    save_all(engine, turns)
    flushing = asyncio.create_task(engine.notes.flush())
    while len(turns.asked) < 3:
        await asyncio.sleep(0)
    engine._own_notes._begin()
    async with asyncio.timeout(60):
        await flushing


def test_a_flush_ends_when_the_timer_gathers_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "SLICE_SECONDS", 0.0)

    async def check(engine: EmbeddedEngine) -> None:
        turns = Turns()
        await gather_between(engine, turns)
        assert len(turns.asked) == QUEUES
        turns.stop()

    run(tmp_path, check, all_are_there)


def test_a_flush_fails_with_a_write_that_took_what_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.log.embedded.state import StateDatabase

    monkeypatch.setattr(notes, "SLICE_SECONDS", 0.0)
    save, saves = StateDatabase.save, list[int]()

    def fail_once(*arguments: Any) -> None:
        saves.append(1)
        if len(saves) == 1:
            raise OSError("no")
        save(*arguments)

    async def check(engine: EmbeddedEngine) -> None:
        turns = Turns()
        monkeypatch.setattr(StateDatabase, "save", fail_once)
        with pytest.raises(LogUnavailable, match="positions cannot be saved"):
            await gather_between(engine, turns)
        turns.stop()

    run(tmp_path, check, all_are_there)


def test_who_fails_to_begin_keeps_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: LogUnavailable | None) -> None:
        raise RuntimeError("a bug")

    async def check(engine: EmbeddedEngine) -> None:
        for _ in range(2):
            begun = asyncio.Event()
            engine.notes.when_saved(fail)
            engine.notes.when_saved(lambda error, begun=begun: begun.set())  # type: ignore[misc]
            async with asyncio.timeout(60):
                await begun.wait()

    run(tmp_path, check)
    assert caplog.text.count("RuntimeError: a bug") == 2


def test_a_flush_that_is_cancelled_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "SLICE_SECONDS", 0.0)

    async def check(engine: EmbeddedEngine) -> None:
        turns = Turns()
        save_all(engine, turns)
        flushing = asyncio.create_task(engine.notes.flush())
        while len(turns.asked) < 3:
            await asyncio.sleep(0)
        flushing.cancel()
        turns.stop()

    run(tmp_path, check, all_are_there)


def test_a_deleted_queue_does_not_come_back(tmp_path: Path) -> None:
    first, *others = NAMES

    async def check(engine: EmbeddedEngine) -> None:
        turns = Turns()
        save_all(engine, turns)
        await engine.notes.flush()
        engine.notes.delete_queue(first)
        assert engine.notes.load_queue(first) is None
        assert engine.notes.queue_names() == others
        await engine.notes.flush()
        assert engine.notes.queue_names() == others
        turns.stop()

    async def again(engine: EmbeddedEngine) -> None:
        assert engine.notes.queue_names() == others
        engine.notes.delete_queue(others[0])
        engine.notes.save_queue(others[0], lambda: b"anew")

    async def made_anew(engine: EmbeddedEngine) -> None:
        assert engine.notes.load_queue(others[0]) == b"anew"

    run(tmp_path, check, again, made_anew)


def test_a_deletion_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.log.embedded.state import StateDatabase

    monkeypatch.setattr(notes, "RETRY_SECONDS", 0.01)
    save = StateDatabase.save

    def fail(*arguments: object) -> None:
        raise OSError("no")

    async def check(engine: EmbeddedEngine) -> None:
        engine.notes.save_queue("q", lambda: b"state")
        await engine.notes.flush()
        monkeypatch.setattr(StateDatabase, "save", fail)
        engine.notes.delete_queue("q")
        while engine.notes.fault is None:
            await asyncio.sleep(0.001)
        monkeypatch.setattr(StateDatabase, "save", save)
        while engine.notes.fault is not None:
            await asyncio.sleep(0.001)

    async def again(engine: EmbeddedEngine) -> None:
        assert engine.notes.queue_names() == []

    run(tmp_path, check, again)


def test_what_has_no_older_value_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that is new, and numbers. Positions that a crash of the machine takes away are those
    of a moment before."""
    from headwater.log.embedded.state import StateDatabase

    synced: list[bool] = []
    save = StateDatabase.save

    def note(*arguments: Any) -> None:
        synced.append(arguments[-1])
        save(*arguments)

    monkeypatch.setattr(StateDatabase, "save", note)

    async def check(engine: EmbeddedEngine) -> None:
        notes = engine.notes
        works: list[tuple[Callable[[], None], bool]] = [
            (lambda: notes.save_queue("q", lambda: b"new"), True),
            (lambda: notes.save_queue("q", lambda: b"known"), False),
            (lambda: notes.save_cursor("c", 0), False),
            (lambda: notes.save_number("n", 1), True),
        ]
        for work, sync in works:
            synced.clear()
            work()
            while not synced:
                await asyncio.sleep(0.001)
            assert synced == [sync]

    run(tmp_path, check)
