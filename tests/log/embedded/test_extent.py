"""A log that is shorter than it was is refused, on either side, and repaired with all accounted."""

import os
import threading
from pathlib import Path

import pytest

from headwater.errors import LogDamaged
from headwater.log.embedded import lock
from headwater.log.embedded.lock import Extent
from headwater.log.embedded.repair import Repaired, repair
from headwater.log.embedded.store import LogStore
from headwater.log.embedded.verify import verify
from tests.log.helpers import (
    append,
    contents,
    fill,
    identity_in,
    make_run,
    never_noted,
    place,
    seal_all,
)

Patches = pytest.MonkeyPatch

FIRST = "00000000000000000000.log"


def noted(directory: Path) -> Extent:
    return lock.extent(directory, identity_in(directory))


def several_segments(directory: Path) -> list[Path]:
    """A closed log of 21 messages in some segments, all but the last sealed."""
    store = LogStore.open(directory, segment_bytes=3_000)
    fill(store, 7)
    seal_all(store)
    paths = [segment.path for segment in store.segments]
    store.close()
    assert len(paths) > 3
    return paths


def refused(directory: Path) -> tuple[int, int | None]:
    """The offsets that are named as lost; nothing was touched."""
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    with pytest.raises(LogDamaged, match="headwater log repair") as caught:
        LogStore.open(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    return caught.value.first, caught.value.last


def lost(directory: Path) -> list[tuple[int, int | None]]:
    return [(each.first, each.end) for report in verify(directory) for each in report.damage]


def mend(directory: Path) -> list[Repaired]:
    repaired = list(repair(directory))
    assert lost(directory) == []
    return repaired


def test_what_is_durable_is_noted(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    assert noted(tmp_path) == (0, 0)
    append(store, make_run("t", b"1"))
    assert noted(tmp_path) == (0, 0)
    store.sync()
    assert noted(tmp_path) == (0, 1)
    append(store, make_run("t", b"2"))
    store.close()
    assert noted(tmp_path) == (0, 2)


def test_a_new_segment_is_noted(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=1)
    store.append(place([make_run("t", b"1")], 0, 5))
    assert noted(tmp_path) == (0, 0)
    store.append(place([make_run("t", b"2")], 1, 5))
    assert noted(tmp_path) == (0, 1)
    store.close()


def test_going_back_is_noted(tmp_path: Path) -> None:
    """What was synced and never reported is dropped when the broker gives up."""
    store = LogStore.open(tmp_path)
    append(store, make_run("t", b"1"))
    append(store, make_run("t", b"2"))
    store.sync()
    store.rewind(1)
    assert noted(tmp_path) == (0, 1)
    store.close()
    LogStore.open(tmp_path).close()


def test_retention_is_noted_before_it_drops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    fill(store, 7)
    starts = []
    unlink = Path.unlink

    def noting(path: Path, missing_ok: bool = False) -> None:
        starts.append(noted(tmp_path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", noting)
    dropped = store.retain(3_000, None)
    assert dropped is not None
    assert starts[-1] == (dropped[1], 21)
    assert len(starts) > 1
    store.close()
    LogStore.open(tmp_path).close()


def test_retention_is_noted_for_good_before_it_drops(tmp_path: Path, monkeypatch: Patches) -> None:
    """Otherwise a crash of the machine could leave the old note, and look like a lost segment."""
    several_segments(tmp_path)
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    happened = []
    sync, unlink = lock.Lock.sync, Path.unlink

    def synced(held: lock.Lock) -> None:
        happened.append("sync")
        sync(held)

    def watched(path: Path, missing_ok: bool = False) -> None:
        happened.append("unlink")
        unlink(path, missing_ok)

    monkeypatch.setattr(lock.Lock, "sync", synced)
    monkeypatch.setattr(Path, "unlink", watched)
    store.retain(1, None)
    store.close()
    assert happened[:2] == ["sync", "unlink"] and happened.count("sync") == 1


def test_a_missing_last_segment_is_refused(tmp_path: Path) -> None:
    *rest, last = several_segments(tmp_path)
    base = int(last.stem)
    last.unlink()
    assert refused(tmp_path) == (base, 20)
    assert lost(tmp_path) == [(base, 21)]
    (repaired,) = mend(tmp_path)
    assert (repaired.name, repaired.lost) == (rest[-1].name, ((base, 21),))
    store = LogStore.open(tmp_path)
    assert store.end == 21  # offsets that were given out mean no other message
    more = fill(store, 1)
    assert contents(store, base) == more
    assert store.holes == {(base, 21)}
    store.close()


def test_a_missing_first_segment_is_refused(tmp_path: Path) -> None:
    first, second, *_ = several_segments(tmp_path)
    base = int(second.stem)
    first.unlink()
    assert refused(tmp_path) == (0, base - 1)
    assert lost(tmp_path) == [(0, base)]
    (repaired,) = mend(tmp_path)
    assert (repaired.name, repaired.damaged, repaired.lost) == (FIRST, None, ((0, base),))
    store = LogStore.open(tmp_path)
    assert (store.start, store.end) == (0, 21)
    assert [message.offset for message in contents(store)] == list(range(base, 21))
    store.close()


def test_a_log_without_segments_is_refused(tmp_path: Path) -> None:
    for path in several_segments(tmp_path):
        path.unlink()
    assert refused(tmp_path) == (0, 20)
    assert lost(tmp_path) == [(0, 21)]
    mend(tmp_path)
    store = LogStore.open(tmp_path)
    assert (store.start, store.end, contents(store)) == (0, 21, [])
    store.close()


@pytest.mark.parametrize("cut", [1, 100, 2_000])
def test_a_log_that_was_cut_after_a_clean_stop_is_refused(tmp_path: Path, cut: int) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 3)
    store.close()
    path = tmp_path / FIRST
    os.truncate(path, path.stat().st_size - cut)
    first, last = refused(tmp_path)
    assert (first < 9, last) == (True, 8)
    mend(tmp_path)
    store = LogStore.open(tmp_path)
    assert contents(store) == [message for message in written if message.offset < first]
    assert store.end == 9
    store.close()


@pytest.mark.parametrize("size", [0, 10])
def test_an_emptied_segment_is_refused(tmp_path: Path, size: int) -> None:
    store = LogStore.open(tmp_path)
    fill(store, 3)
    store.close()
    os.truncate(tmp_path / FIRST, size)
    refused(tmp_path)
    assert lost(tmp_path)[-1] == (0, 9)
    mend(tmp_path)
    store = LogStore.open(tmp_path)
    assert (contents(store), store.end) == ([], 9)
    store.close()


def test_nothing_is_missed_that_was_never_noted(tmp_path: Path) -> None:
    """A log of an earlier version, or one whose LOCK is lost."""
    first, second, *_ = several_segments(tmp_path)
    first.unlink()
    never_noted(tmp_path)
    LogStore.open(tmp_path).close()
    assert noted(tmp_path) == (int(second.stem), 21)


def test_bounds_of_another_log_do_not_count(tmp_path: Path) -> None:
    for name in ("a", "b"):
        store = LogStore.open(tmp_path / name)
        fill(store, 3 if name == "a" else 1)
        store.close()
    (tmp_path / "b" / "LOCK").write_bytes((tmp_path / "a" / "LOCK").read_bytes())
    store = LogStore.open(tmp_path / "b")
    assert store.end == 3
    store.close()


def test_a_log_in_use_is_not_found_damaged(tmp_path: Path) -> None:
    """Retention and the end move on while someone verifies."""
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    done = threading.Event()
    found: list[tuple[int, int | None]] = []

    def look() -> None:
        while not done.is_set():
            found.extend(lost(tmp_path))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(150):
            fill(store, 1)
            store.sync()
            store.retain(12_000, None)
    finally:
        done.set()
        looking.join()
    store.close()
    assert found == []
