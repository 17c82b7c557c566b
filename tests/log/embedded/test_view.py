"""Looking at a log while another process writes it."""

import threading
from pathlib import Path
from queue import Queue

import pytest

from headwater.errors import LogDamaged
from headwater.log.embedded.store import LogStore
from headwater.log.embedded.view import View
from tests.log.helpers import contents, fill, flip, rest, seal_all

FIRST = "00000000000000000000.log"


def test_a_view_needs_no_lock_and_follows(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 5)
    view = View.open(tmp_path)
    assert contents(view) == written
    for _ in range(4):
        written += fill(store, 3)
        assert view.end < store.end
        view.refresh()
        assert view.end == store.end
        assert contents(view) == written
    assert view.last_timestamp == store.last_timestamp
    store.close()


def test_a_view_outlives_sealing_and_retention(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 12)
    view = View.open(tmp_path)
    seal_all(store)
    assert contents(view) == written
    dropped = store.retain(store.size // 2, None)
    assert dropped is not None
    view = View.open(tmp_path)
    store.retain(store.segments[-1].size, None)
    assert contents(view, 0) == [m for m in written if m.offset >= store.start]
    store.close()


def test_a_view_finds_its_way_back_when_all_it_knew_was_dropped(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    fill(store, 5)
    view = View.open(tmp_path)
    known = view.end
    written = fill(store, 20)
    store.retain(store.segments[-1].size, None)
    assert store.start > known
    view.refresh()
    assert (view.start, view.end) == (store.start, store.end)
    assert contents(view) == [m for m in written if m.offset >= store.start]
    store.close()


def test_what_is_being_written_is_not_shown(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 3)
    path = tmp_path / FIRST
    with path.open("ab") as file:
        file.write(path.read_bytes()[-400:])
    size = path.stat().st_size
    view = View.open(tmp_path)
    view.refresh()
    assert contents(view) == written
    assert path.stat().st_size == size, "a view changes nothing"
    store.close()


def test_a_view_of_a_log_that_grows_quickly(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=1 << 20)
    frames: Queue[bool] = Queue()

    def write() -> None:
        while frames.get():
            fill(store, 1, size=50_000)
            store.retain(3 << 20, None)
            frames.task_done()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(40):
            # A segment grows beside each look, not more: three are retained, so that none is
            # dropped while it is looked at, however slowly that may be.
            for _ in range(10):
                frames.put(True)
            view = View.open(tmp_path)
            view.refresh()
            assert len(contents(view, view.end - 3)) == min(view.end, 3)
            frames.join()
    finally:
        frames.put(False)
        writer.join()
    assert store.start > 0, "retention had something to do"
    store.close()


def test_a_segment_that_is_being_made_is_not_shown(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 3)
    (tmp_path / "00000000000000000009.log").write_bytes(b"HWATER")
    view = View.open(tmp_path)
    view.refresh()
    assert contents(view) == written
    store.close()


def test_damage_is_not_taken_for_writing(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    fill(store, 3)
    store.close()
    flip(tmp_path / FIRST, (tmp_path / FIRST).stat().st_size // 2)
    with pytest.raises(LogDamaged):
        View.open(tmp_path)


def test_topics_are_counted_from_footers_and_frames(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=6_000)
    written = fill(store, 14)
    store.seal(store.unsealed()[0], rest)
    view = View.open(tmp_path)
    told: list[tuple[int, int]] = []
    counts = view.count_topics(lambda done, total: told.append((done, total)))
    for topic in {m.topic for m in written}:
        assert counts[topic] == sum(m.topic == topic for m in written)
    assert told[-1] == (len(view.segments), len(view.segments))
    assert view.first_timestamp() == written[0].timestamp
    store.close()
