"""Sealing: the same messages in a smaller file, and crashes in the middle of it."""

import os
import shutil
from pathlib import Path

import pytest

from headwater.errors import LogDamaged
from headwater.log.embedded.store import LogStore
from headwater.log.embedded.verify import verify
from tests.log.helpers import append, contents, fill, flip, make_run, read_batches, rest, seal_all


class Stop(Exception):
    pass


def stop(seconds: float) -> None:
    raise Stop


def full_log(directory: Path) -> LogStore:
    """A log with one full segment of many frames."""
    store = LogStore.open(directory, segment_bytes=400_000)
    while len(store.segments) < 2:
        fill(store, 50)
    return store


def test_sealing_keeps_messages_and_saves_space(tmp_path: Path) -> None:
    store = full_log(tmp_path)
    before = contents(store)
    runs = [(batch.offset, batch.end) for batch in read_batches(store)]
    sizes = [segment.size for segment in store.segments]
    pauses: list[float] = []
    for segment in store.unsealed():
        store.seal(segment, pauses.append)
    assert len(pauses) > 1
    assert all(seconds >= 0 for seconds in pauses)
    assert store.unsealed() == []
    assert [segment.sealed for segment in store.segments] == [True, False]
    assert store.segments[0].size < sizes[0] / 2
    assert store.segments[0].size == store.segments[0].path.stat().st_size
    assert contents(store) == before
    assert [(batch.offset, batch.end) for batch in read_batches(store)] == runs
    store.close()
    store = LogStore.open(tmp_path)
    assert contents(store) == before
    assert [report.damage for report in verify(tmp_path)] == [[], []]
    store.close()


def test_small_frames_are_put_together_and_large_ones_apart(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=6 << 20)
    for _ in range(100):
        append(store, make_run("small", b"x" * 100))
    append(store, *[make_run(f"large/{n}", os.urandom(100_000)) for n in range(50)])
    append(store, make_run("next", b"x" * (2 << 20)))
    before = contents(store)
    seal_all(store)
    report = next(verify(tmp_path))
    assert 4 <= report.frames <= 7
    assert contents(store) == before
    assert [b.offset for b in read_batches(store, wanted="large/49".__eq__)] == [149]
    store.close()


def test_a_reader_that_began_before_goes_on_after(tmp_path: Path) -> None:
    store = full_log(tmp_path)
    written = contents(store)
    reader = read_batches(store, max_bytes=1_000)
    first = next(reader)
    seal_all(store)
    rest_ = list(reader)
    assert sum(len(b.run) for b in [first, *rest_]) == len(written)
    store.close()


def test_sealing_that_is_stopped_leaves_everything_as_it_was(tmp_path: Path) -> None:
    store = full_log(tmp_path)
    before = contents(store)
    with pytest.raises(Stop):
        store.seal(store.unsealed()[0], stop)
    assert list(tmp_path.glob("*.tmp")) == []
    assert len(store.unsealed()) == 1
    assert contents(store) == before
    seal_all(store)
    assert contents(store) == before
    store.close()


def test_a_crash_before_the_sealed_file_has_the_name(tmp_path: Path) -> None:
    store = full_log(tmp_path / "log")
    written = contents(store)

    def crash(seconds: float) -> None:
        if not (tmp_path / "copy").exists():
            shutil.copytree(tmp_path / "log", tmp_path / "copy")

    store.seal(store.unsealed()[0], crash)
    store.close()
    assert list((tmp_path / "copy").glob("*.tmp"))
    store = LogStore.open(tmp_path / "copy")
    assert list((tmp_path / "copy").glob("*.tmp")) == []
    assert [segment.sealed for segment in store.segments] == [False, False]
    assert contents(store) == written
    store.close()


def test_a_crash_when_the_sealed_file_is_complete_but_has_another_name(tmp_path: Path) -> None:
    store = full_log(tmp_path)
    written = contents(store)
    path = store.segments[0].path
    before = path.read_bytes()
    seal_all(store)
    store.close()
    path.rename(path.with_suffix(".log.tmp"))
    path.write_bytes(before)
    store = LogStore.open(tmp_path)
    assert contents(store) == written
    assert list(tmp_path.glob("*.tmp")) == []
    store.close()


def test_a_segment_that_retention_drops_meanwhile_stays_dropped(tmp_path: Path) -> None:
    store = full_log(tmp_path)
    path = store.segments[0].path

    def drop(seconds: float) -> None:
        store.retain(0, None)

    store.seal(store.unsealed()[0], drop)
    assert not path.exists()
    assert len(store.segments) == 1
    gone = store.segments[0]
    store.close()
    store = LogStore.open(tmp_path)
    assert store.start == gone.base
    store.close()


def test_a_segment_that_was_dropped_before_is_not_sealed(tmp_path: Path) -> None:
    store = full_log(tmp_path)
    segment = store.unsealed()[0]
    store.retain(0, None)
    store.seal(segment, rest)
    assert not segment.path.exists()
    store.close()


def test_damage_is_not_sealed_in(tmp_path: Path) -> None:
    store = full_log(tmp_path)
    segment = store.unsealed()[0]
    flip(segment.path, segment.size // 2)
    with pytest.raises(LogDamaged, match=segment.name):
        store.seal(segment, rest)
    assert list(tmp_path.glob("*.tmp")) == []
    assert store.unsealed() == [segment]
    store.close()
