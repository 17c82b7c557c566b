"""Writing and reading a log, one behaviour after the other; the model test mixes them."""

import contextlib
import errno
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.errors import LogLocked
from headwater.log.embedded import reader, segment
from headwater.log.embedded.lock import Lock
from headwater.log.embedded.store import LogStore
from headwater.log.record import FrameRows
from headwater.message import Batch
from tests.log.helpers import (
    START_TIME,
    append,
    contents,
    everything,
    fill,
    make_run,
    messages,
    place,
    read_batches,
    rest,
    seal_all,
)


def test_a_new_log_is_empty(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path / "a" / "log")
    assert (store.start, store.end, store.last_timestamp, store.torn) == (0, 0, 0, 0)
    assert store.size == os.stat(tmp_path / "a/log/00000000000000000000.log").st_size
    assert store.read(0, everything, 100, 10) == ([], 0)
    assert store.offset_at(0) == 0
    store.close()


def test_what_was_appended_is_read_and_survives(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 10)
    assert contents(store) == written
    assert (store.end, store.last_timestamp) == (30, written[-1].timestamp)
    store.close()
    store = LogStore.open(tmp_path)
    assert contents(store) == written
    assert (store.end, store.last_timestamp) == (30, written[-1].timestamp)
    written += fill(store, 3)
    assert contents(store) == written
    store.close()


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    with pytest.raises(LogLocked, match="in use by another process"):
        LogStore.open(tmp_path)
    store.close()
    LogStore.open(tmp_path).close()


def test_segments_roll_by_size(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=4_000)
    written = fill(store, 20)
    assert len(store.segments) > 4
    assert all(s.size <= 4_000 for s in store.segments)
    assert [s.base for s in store.segments[1:]] == [s.end for s in store.segments[:-1]]
    assert contents(store) == written
    store.close()
    assert store.size == sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    store = LogStore.open(tmp_path)
    assert contents(store) == written
    store.close()


def test_reading_starts_inside_a_run_and_stops_before_the_end(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    append(store, make_run("a", b"0", b"1", b"2", b"3"))
    batches, following = store.read(1, everything, 100, 3)
    assert [m.payload for m in messages(batches)] == [b"1", b"2"]
    assert following == 3
    assert store.read(3, everything, 100, 3) == ([], 3)
    store.close()


def test_only_wanted_topics_are_read(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 12)
    got = messages(read_batches(store, wanted="t/1".__eq__, max_bytes=10))
    assert got == [m for m in written if m.topic == "t/1"]
    assert store.read(0, "nobody".__eq__, 100, store.end) == ([], store.end)
    store.close()


def test_blocks_without_a_wanted_topic_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LogStore.open(tmp_path, segment_bytes=10_000)
    for topic in "aaabaaaaaaaaaaaaaaaaaaaaaaab":
        append(store, make_run(topic, b"x" * 300_000))
    seal_all(store)
    decoded = []

    def counted(message: bytes, base: int, count: int) -> FrameRows:
        decoded.append(base)
        return FrameRows(message, base, count)

    monkeypatch.setattr("headwater.log.embedded.reader.FrameRows", counted)
    assert [b.offset for b in read_batches(store, wanted="b".__eq__)] == [3, 27]
    assert decoded == [3, 27]
    store.close()


def test_a_frame_with_too_many_topics_is_read_all_the_same(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=10_000)
    append(store, *[make_run(str(n), b"x") for n in range(300)])
    append(store, make_run("z", b"x" * 20_000))
    append(store, make_run("z", b"y"))
    seal_all(store)
    assert [b.offset for b in read_batches(store, wanted="299".__eq__)] == [299]
    store.close()


def test_about_max_bytes_are_read(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    append(store, *[make_run("a", b"x" * 100) for _ in range(50)])
    batches, following = store.read(0, everything, 1_000, store.end)
    assert (len(batches), following) == (10, 10)
    batches, following = store.read(following, everything, 1, store.end)
    assert (len(batches), following) == (1, 11)
    store.close()


def test_an_offset_before_the_start_reads_from_the_start(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 10)
    dropped = store.retain(1, None)
    assert dropped == (0, store.start)
    assert store.start > 0
    assert contents(store, 0) == [m for m in written if m.offset >= store.start]
    store.close()


def test_a_read_that_finds_nothing_does_not_take_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "SLICE_SECONDS", 0.0)
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    fill(store, 10)
    offset = 0
    while offset < store.end:
        found, following = store.read(offset, "nobody".__eq__, 100, store.end)
        assert not found and offset < following <= offset + 3, "one frame at a time"
        offset = following
    store.close()


def test_offsets_by_time(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 12)

    def check(log: LogStore) -> None:
        for time_ in range(written[0].timestamp - 1, written[-1].timestamp + 2):
            expected = [m.offset for m in written if m.timestamp >= time_]
            assert log.offset_at(time_) == (expected[0] if expected else log.end)

    check(store)
    store.close()
    store = LogStore.open(tmp_path)  # times are unknown to the indexes now
    check(store)
    seal_all(store)
    check(store)
    store.close()


def test_offset_by_time_when_the_active_segment_is_empty(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    assert store.offset_at(0) == 0
    append(store, make_run("a", b"x"))
    assert store.offset_at(0) == 0
    assert store.offset_at(START_TIME + 1_000_000) == 1
    store.close()


# Retention


def test_retention_by_size(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 20)
    assert store.retain(store.size, None) is None
    first, keep = store.segments[0], store.segments[1].base
    assert store.retain(store.size - 1, None) == (0, keep)
    assert not first.path.exists()
    assert store.start == keep
    store.retain(0, None)
    assert len(store.segments) == 1, "the active segment stays"
    store.close()
    store = LogStore.open(tmp_path)
    assert contents(store, store.start) == [m for m in written if m.offset >= store.start]
    store.close()


def test_retention_by_age(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    fill(store, 20)
    second = store.segments[1]
    assert store.retain(None, second.last_timestamp) == (0, second.base)
    assert store.retain(None, second.last_timestamp) is None
    store.retain(None, 1 << 62)
    assert len(store.segments) == 1
    store.close()


def test_a_reader_survives_retention_and_sealing(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=20_000)
    written = fill(store, 150)
    end, failures, stop = store.end, [], threading.Event()

    def read_on() -> None:
        expected = {m.offset: m for m in written}
        while not stop.is_set():
            try:
                for m in messages(read_batches(store, 0, end, max_bytes=500)):
                    assert expected[m.offset] == m
            except BaseException as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=read_on) for _ in range(3)]
    for thread in threads:
        thread.start()
    seal_all(store)
    while len(store.segments) > 2:
        time.sleep(0.02)
        store.retain(store.size - 1, None)
        fill(store, 1)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    store.close()


def test_reading_while_appending(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=30_000)
    got: list[Batch] = []

    def follow() -> None:
        at = 0
        while at < 900:
            batches, at = store.read(at, everything, 2_000, store.end)
            got.extend(batches)

    thread = threading.Thread(target=follow)
    thread.start()
    written = fill(store, 300)
    thread.join()
    assert messages(got) == written
    store.close()


# Disks that fail


def failing_pwritev(good_bytes: int) -> object:
    """A pwritev that takes so many bytes and then has no space left."""
    left = good_bytes
    real = os.pwritev

    def pwritev(fd: int, buffers: Sequence[memoryview], offset: int, flags: int) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        data = b"".join(buffers)[:left]
        left -= len(data)
        return real(fd, [data], offset, flags)

    return pwritev


@pytest.mark.parametrize("good_bytes", [0, 1, 10, 500, 1_000])
def test_a_full_disk_leaves_the_store_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good_bytes: int
) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 3)
    size = store.size
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing_pwritev(good_bytes))
        with pytest.raises(OSError, match="No space left"):
            append(store, make_run("a", b"x" * 3_000))
    assert (store.end, store.size) == (9, size)
    assert store.segments[-1].path.stat().st_size == size
    assert contents(store) == written
    written += fill(store, 2)
    assert contents(store) == written
    store.close()
    store = LogStore.open(tmp_path)
    assert (contents(store), store.torn) == (written, 0)
    store.close()


def test_a_disk_that_cannot_even_be_cut_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 3)

    def broken(fd: int, length: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", failing_pwritev(1_000))
        patch.setattr(os, "ftruncate", broken)
        with pytest.raises(OSError, match="No space left"):
            append(store, make_run("a", b"x" * 3_000))
    written += fill(store, 1)  # shorter than what lies there
    store.close()
    store = LogStore.open(tmp_path)
    assert (contents(store), store.torn) == (written, 0)
    store.close()


def test_what_cannot_be_noted_leaves_no_frame_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written, and refused because LOCK could not be written; nor could that be taken back
    at once. What comes in its place later has to be found after a restart."""
    store = LogStore.open(tmp_path)
    append(store, make_run("t", b"first"))
    store.sync()

    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, "no")

    refused = place([make_run("t", b"refused")], store.end, store.last_timestamp + 1)
    with monkeypatch.context() as patch:
        patch.setattr(Lock, "note", fail)
        store.append(refused)
        with pytest.raises(OSError, match="no"):
            store.sync()
        with pytest.raises(OSError, match="no"):
            store.rewind(1)
    append(store, make_run("t", b"accepted"))
    store.sync()
    store.close()
    store = LogStore.open(tmp_path)
    assert [message.payload for message in contents(store)] == [b"first", b"accepted"]
    store.close()


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def short(fd: int, buffers: Sequence[memoryview], offset: int, flags: int) -> int:
        return real(fd, [b"".join(buffers)[:7]], offset, flags)

    monkeypatch.setattr(os, "pwritev", short)
    store = LogStore.open(tmp_path)
    written = fill(store, 2)
    assert contents(store) == written
    store.close()


@pytest.mark.parametrize("call", ["pwritev", "fsync", "replace"])
def test_a_segment_that_cannot_be_made_leaves_the_store_usable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 1)

    def broken(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, broken)
        with pytest.raises(OSError, match="No space left"):
            append(store, make_run("a", b"x" * 5_000))
    assert [path.name for path in segment.files(tmp_path)] == ["00000000000000000000.log"]
    assert list(tmp_path.glob("*.tmp")) == []
    assert contents(store) == written
    written += fill(store, 5)
    store.close()
    store = LogStore.open(tmp_path)
    assert contents(store) == written
    store.close()


def test_what_was_not_durable_is_dropped_when_its_offsets_come_again(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 2)
    append(store, make_run("lost", b"1", b"2"))
    append(store, make_run("lost", b"3"))
    again = place([make_run("kept", b"4")], 6, START_TIME + 100)
    store.append(again)
    assert contents(store) == [*written, *messages(again)]
    with pytest.raises(ValueError, match="cannot go back to offset 5"):
        store.rewind(5)
    with pytest.raises(ValueError, match="offset 99 where 7 should be"):
        store.append(place([make_run("far", b"")], 99, START_TIME))
    store.close()
    store = LogStore.open(tmp_path)
    assert contents(store) == [*written, *messages(again)]
    store.close()


def test_large_appends_become_several_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.log.embedded.store._FRAME_BYTES", 1_000)
    store = LogStore.open(tmp_path)
    batches = append(store, *[make_run(f"t{n}", b"x" * 400) for n in range(10)])
    held = store.segments[-1].held
    assert held is not None
    assert len(held.index) == 5
    assert contents(store) == messages(batches)
    store.close()


def descriptors_below(directory: Path) -> int:
    """Open files of this process, without those of other threads, which come and go."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += each.readlink().is_relative_to(directory)
    return found


def test_the_index_forgets_old_segments_and_finds_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_OPEN_SEGMENTS", 2)
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 30)
    before = descriptors_below(tmp_path)
    for _ in range(3):
        assert contents(store) == written
    assert descriptors_below(tmp_path) <= before + 2
    store.seal(store.unsealed()[0], rest)
    assert contents(store) == written
    store.close()
