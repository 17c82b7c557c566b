"""What is remembered beside the log must fit it, and whoever operates it hears when it does not."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from headwater.errors import LogDamaged, LogError
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from tests.engines.test_contract import durable, run_of

FIRST = "00000000000000000000.log"


def make(directory: Path, messages: int, position: int | None = None) -> None:
    """A log that was used, and closed."""

    async def use() -> None:
        engine = await EmbeddedEngine.open(directory, LogSettings())
        for _ in range(messages):
            engine.append(run_of(b"x"))
            assert await durable(engine, engine.end) is None
        if position is not None:
            engine.notes.save_cursor("someone", position)
            engine.notes.save_queue("some queue", lambda: b"state")
        await engine.close()

    asyncio.run(use())


def reopen(directory: Path) -> tuple[str | None, int | None, bytes | None]:
    """What it says, and what it remembers."""

    async def look() -> tuple[str | None, int | None, bytes | None]:
        engine = await EmbeddedEngine.open(directory, LogSettings())
        notes = engine.notes
        found = notes.warning, notes.load_cursor("someone"), notes.load_queue("some queue")
        await engine.close()
        return found

    return asyncio.run(look())


def test_what_fits_is_kept_without_a_word(tmp_path: Path) -> None:
    make(tmp_path, 3, 2)
    assert reopen(tmp_path) == (None, 2, b"state")


def test_a_new_log_has_nothing_to_miss(tmp_path: Path) -> None:
    assert reopen(tmp_path) == (None, None, None)
    (tmp_path / "state.db").unlink()
    assert reopen(tmp_path) == (None, None, None)


@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_a_state_that_is_gone_is_told_once(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path, 3, 2)
    if how == "deleted":
        (tmp_path / "state.db").unlink()
    else:
        os.truncate(tmp_path / "state.db", 0)
    warning, position, _ = reopen(tmp_path)
    assert warning is not None and "state.db is missing or empty" in warning
    assert position is None
    assert warning in caplog.text
    assert reopen(tmp_path)[0] is None


def test_the_state_of_another_log_does_not_count(tmp_path: Path) -> None:
    make(tmp_path / "a", 3, 2)
    make(tmp_path / "b", 3)
    shutil.copy(tmp_path / "a" / "state.db", tmp_path / "b" / "state.db")
    warning, position, queue = reopen(tmp_path / "b")
    assert warning is not None and "another log" in warning
    assert (position, queue) == (None, None)
    assert reopen(tmp_path / "b")[0] is None


def test_a_log_that_was_removed_leaves_no_positions_behind(tmp_path: Path) -> None:
    """Otherwise a subscriber would skip what comes next, up to where it was in the old one."""
    make(tmp_path, 3, 2)
    shutil.rmtree(tmp_path / "log")
    warning, position, _ = reopen(tmp_path)
    assert warning is not None and "another log" in warning
    assert position is None


def test_a_position_beyond_the_end_is_set_back(tmp_path: Path) -> None:
    """With `log.sync` = "os", a crash of the machine takes messages that were delivered."""
    make(tmp_path, 3, 3)
    lock = tmp_path / "log" / "LOCK"
    lock.write_bytes(lock.read_bytes()[:9])  # as if the end had never been synced
    path = tmp_path / "log" / FIRST
    os.truncate(path, path.stat().st_size - 1)
    warning, position, _ = reopen(tmp_path)
    assert warning is not None and "set back" in warning
    assert position == 2
    assert reopen(tmp_path)[0] is None


def test_a_log_that_lost_its_end_is_refused_with_the_positions_untouched(tmp_path: Path) -> None:
    make(tmp_path, 3, 3)
    before = (tmp_path / "state.db").read_bytes()
    (tmp_path / "log" / FIRST).unlink()
    with pytest.raises(LogDamaged, match="offset 0 to offset 2: the file is missing"):
        reopen(tmp_path)
    assert (tmp_path / "state.db").read_bytes() == before


def test_a_state_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    make(tmp_path, 3, 2)
    (tmp_path / "state.db").write_bytes(b"no database at all" * 500)
    with pytest.raises(LogError, match=r"state\.db cannot be used: .*move it away"):
        reopen(tmp_path)
