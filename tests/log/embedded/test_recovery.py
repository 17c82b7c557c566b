"""Opening a log after a crash, and refusing to open a damaged one."""

import shutil
import time
from pathlib import Path

import pytest
from crc32c import crc32c

from headwater.errors import LogDamaged, LogError
from headwater.log import record
from headwater.log.embedded import frame, segment
from headwater.log.embedded.store import LogStore
from tests.log.helpers import (
    START_TIME,
    append,
    contents,
    fill,
    flip,
    identity_in,
    make_run,
    messages,
    never_noted,
    place,
    seal_all,
    sealed_log,
)

FIRST = "00000000000000000000.log"
#: Seconds of work, not of waiting for a processor that others use. It takes less than half of one;
#: to decode every frame, which is what opening must not do, takes more than four.
QUICK = 2


def test_a_torn_tail_is_cut_wherever_it_was_torn(memory_path: Path) -> None:
    store = LogStore.open(memory_path)
    written = fill(store, 3, size=20)
    held = store.segments[0].held
    assert held is not None
    stops = list(held.index.positions)
    store.close()
    path = memory_path / FIRST
    data = path.read_bytes()
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        never_noted(memory_path)
        store = LogStore.open(memory_path)
        frames = sum(stop <= length for stop in stops[1:])
        assert contents(store) == written[: frames * 3]
        whole = max([stop for stop in stops if stop <= length], default=0)
        assert store.torn == length - whole
        store.close()
        assert path.stat().st_size == max(whole, segment.HEADER_BYTES)


@pytest.mark.parametrize("tail", [b"\xff" * 5_000, b"garbage", bytes(range(256))])
def test_a_tail_of_anything_is_cut_and_the_log_goes_on(tmp_path: Path, tail: bytes) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 3)
    store.close()
    with (tmp_path / FIRST).open("ab") as file:
        file.write(tail)
    store = LogStore.open(tmp_path)
    assert store.torn == len(tail)
    written += fill(store, 2)
    store.close()
    store = LogStore.open(tmp_path)
    assert (contents(store), store.torn) == (written, 0)
    store.close()


def test_a_torn_payload_that_holds_a_frame_is_torn_all_the_same(tmp_path: Path) -> None:
    """A client may publish what looks like a frame of this log with a later offset."""
    message = record.encode(place([make_run("t", b"forged")], 1_000, 5))
    forged = frame.header(message, 1_000, 1_000, 1, identity=0) + bytes(message)
    store = LogStore.open(tmp_path)
    written = fill(store, 1)
    append(store, make_run("t", forged, b"." * 500))
    store.close()
    path = tmp_path / FIRST
    path.write_bytes(path.read_bytes()[:-100])
    never_noted(tmp_path)
    store = LogStore.open(tmp_path)
    assert store.torn > 0
    assert contents(store) == written
    store.close()


def test_damage_in_the_last_segment_is_refused(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    fill(store, 5)
    held = store.segments[0].held
    assert held is not None
    positions = list(held.index.positions)
    store.close()
    path = tmp_path / FIRST
    data = path.read_bytes()
    for number in range(4):
        for position in range(positions[number], positions[number + 1], 37):
            flip(path, position, position % 8)
            with pytest.raises(LogDamaged, match="headwater log repair") as caught:
                LogStore.open(tmp_path)
            assert caught.value.segment == FIRST
            assert (caught.value.first, caught.value.last) == (number * 3, number * 3 + 2)
            path.write_bytes(data)
    LogStore.open(tmp_path).close()


def test_what_was_never_synced_may_be_in_pieces(tmp_path: Path) -> None:
    """A crash of the machine can keep a later write and lose an earlier one."""
    store = LogStore.open(tmp_path)
    kept = fill(store, 2)
    loose = [messages(append(store, make_run("t", b"%d" % n * 100))) for n in range(3)]
    held = store.segments[0].held
    assert held is not None
    positions = list(held.index.positions)
    store.close()
    path = tmp_path / FIRST
    data = path.read_bytes()
    for number in (2, 3):  # frames with a whole one behind them
        flip(path, positions[number] + 40)
        never_noted(tmp_path)
        again = LogStore.open(tmp_path)
        assert again.torn == len(data) - positions[number]
        assert contents(again) == kept + [m for frame in loose[: number - 2] for m in frame]
        again.close()
        path.write_bytes(data)


@pytest.mark.parametrize("position", [0, 9, 11, 13, 20, 25, 100, segment.HEADER_BYTES - 1])
def test_a_damaged_header_of_the_last_segment_is_refused(tmp_path: Path, position: int) -> None:
    store = LogStore.open(tmp_path)
    fill(store, 2)
    store.close()
    flip(tmp_path / FIRST, position)
    with pytest.raises(LogDamaged, match="header"):
        LogStore.open(tmp_path)


@pytest.mark.parametrize("position", [0, 30, segment.HEADER_BYTES - 1, -1, -10, -40])
def test_damaged_ends_of_a_sealed_segment_are_refused(tmp_path: Path, position: int) -> None:
    sealed_log(tmp_path)
    path = tmp_path / FIRST
    flip(path, position % path.stat().st_size)
    with pytest.raises(LogDamaged, match=FIRST) as caught:
        LogStore.open(tmp_path)
    assert (caught.value.first, caught.value.last) == (0, 17)


def test_a_damaged_end_of_an_unsealed_segment_is_refused(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    fill(store, 5)
    first = store.segments[0]
    store.close()
    flip(first.path, first.size - 1)
    with pytest.raises(LogDamaged, match=FIRST) as caught:
        LogStore.open(tmp_path)
    assert caught.value.last == first.end - 1


def test_a_missing_segment_is_noticed(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    fill(store, 12)
    one, other, following = store.segments[:3]
    store.close()
    shutil.move(other.path, tmp_path / "moved")
    with pytest.raises(LogDamaged, match=f"nothing leads on to {following.name}") as caught:
        LogStore.open(tmp_path)
    assert (caught.value.segment, caught.value.first) == (one.name, other.base)
    assert caught.value.last == other.end - 1


def test_a_segment_of_another_log_is_noticed(tmp_path: Path) -> None:
    for name in "ab":
        store = LogStore.open(tmp_path / name, segment_bytes=3_000)
        fill(store, 5, size=10)
        store.close()
    paths = sorted((tmp_path / "b").glob("*.log"))
    (tmp_path / "a" / "LOCK").unlink()
    for number in (1, 0):
        shutil.copy(paths[number], tmp_path / "a" / paths[number].name)
        with pytest.raises(LogDamaged, match="belongs to another log") as caught:
            LogStore.open(tmp_path / "a")
        assert caught.value.segment == paths[number].name


def test_another_format_is_refused_in_words(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    store.close()
    path = tmp_path / FIRST
    data = bytearray(path.read_bytes())
    data[8] = 2
    checksum = crc32c(bytes(data[:-4]))
    path.write_bytes(data[:-4] + checksum.to_bytes(4, "little"))
    with pytest.raises(LogError, match=r"another version of Headwater \(format 2"):
        LogStore.open(tmp_path)


@pytest.mark.parametrize("length", [0, 1, 100, segment.HEADER_BYTES - 1])
def test_a_crash_while_a_segment_was_made(tmp_path: Path, length: int) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 3)
    path = segment.path_of(tmp_path, store.end)
    header = store.segments[0].path.read_bytes()[:length]
    store.close()
    path.write_bytes(header)
    store = LogStore.open(tmp_path)
    assert (contents(store), store.torn) == (written, length)
    assert store.segments[-1].path == path
    written += fill(store, 1)
    assert contents(store) == written
    store.close()


def test_what_was_half_written_under_another_name_is_removed(tmp_path: Path) -> None:
    written = sealed_log(tmp_path)
    unfinished = [tmp_path / f"{FIRST}.tmp", tmp_path / "00000000000000000999.log.tmp"]
    for path in unfinished:
        path.write_bytes(b"half of a")
    stranger = tmp_path / "notes.txt"
    stranger.write_text("not ours")
    store = LogStore.open(tmp_path)
    assert contents(store, 0, 18) == written
    assert not any(path.exists() for path in unfinished)
    assert stranger.exists()
    store.close()


def test_a_log_whose_active_segment_is_gone_begins_a_new_one(tmp_path: Path) -> None:
    written = sealed_log(tmp_path)
    (tmp_path / "00000000000000000018.log").unlink()
    never_noted(tmp_path)
    store = LogStore.open(tmp_path)
    assert store.end == 18
    written += fill(store, 1)
    assert contents(store) == written
    store.close()


def test_the_identity_survives_the_loss_of_the_lock_file(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 2)
    store.close()
    before = (tmp_path / "LOCK").read_text()
    (tmp_path / "LOCK").write_text("nonsense")
    store = LogStore.open(tmp_path)
    assert contents(store) == written
    store.close()
    assert (tmp_path / "LOCK").read_text() == before
    (tmp_path / "LOCK").unlink()
    flip(tmp_path / FIRST, 3)
    with pytest.raises(LogDamaged, match="LOCK is missing"):
        LogStore.open(tmp_path)
    assert (tmp_path / "LOCK").read_text() == "", "no new identity was made up"


def make_small_frames(path: Path, count: int, identity: int) -> None:
    """A segment of `count` frames of one message each, in a moment."""
    message = bytes(record.encode(place([make_run("t", b"x" * 200)], 0, START_TIME)))
    with path.open("wb") as file:
        file.write(segment.encode_header(0, identity, sealed=False))
        for offset in range(count):
            file.write(frame.header(message, offset, offset, 1, identity) + message)


def test_a_segment_of_70_000_frames_opens_quickly(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    store.close()
    identity = identity_in(tmp_path)
    make_small_frames(tmp_path / FIRST, 70_000, identity)
    assert (tmp_path / FIRST).stat().st_size > 60 << 20
    began = time.thread_time()
    store = LogStore.open(tmp_path)
    assert time.thread_time() - began < QUICK
    assert store.end == 70_000
    assert len(contents(store, 69_990)) == 10
    store.close()


def test_a_log_of_many_segments_opens_quickly(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 400)
    for number in store.unsealed()[:100]:
        store.seal(number, lambda seconds: None)
    assert len(store.segments) > 190
    store.close()
    began = time.thread_time()
    store = LogStore.open(tmp_path)
    assert time.thread_time() - began < QUICK
    assert contents(store) == written
    seal_all(store)
    assert contents(store) == written
    store.close()
