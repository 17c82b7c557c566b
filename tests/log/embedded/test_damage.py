"""Damage on disk: it is found, wherever it is, and readers stop there."""

import shutil
from pathlib import Path

import pytest

from headwater.errors import LogDamaged, LogError
from headwater.log.embedded import repair as mending
from headwater.log.embedded.frame import HEADER
from headwater.log.embedded.store import LogStore
from headwater.log.embedded.verify import SegmentReport, verify
from headwater.log.embedded.view import View
from tests.log.helpers import (
    START_TIME,
    Message,
    append,
    contents,
    everything,
    fill,
    flip,
    make_run,
    read_batches,
    seal_all,
    sealed_log,
)

FIRST = "00000000000000000000.log"


def damaged(directory: Path) -> list[SegmentReport]:
    return [report for report in verify(directory) if report.damage]


def several_frames(directory: Path, filler: bytes = b"x" * 1_048_000) -> list[Message]:
    """A closed log whose first segment is sealed and has three frames, and the messages in it."""
    store = LogStore.open(directory, segment_bytes=1 << 30)
    written: list[Message] = []
    for _ in range(3):
        written += fill(store, 1)
        append(store, make_run("filler", filler))
    written = contents(store)
    store.close()
    store = LogStore.open(directory, segment_bytes=1)
    fill(store, 1)
    seal_all(store)
    store.close()
    return written


def test_a_sound_log_has_no_damage(tmp_path: Path) -> None:
    several_frames(tmp_path)
    told: list[tuple[int, int]] = []
    reports = list(verify(tmp_path, lambda done, total: told.append((done, total))))
    assert [report.damage for report in reports] == [[], []]
    assert [(r.base, r.end, r.frames, r.sealed) for r in reports] == [
        (0, 12, 3, True),
        (12, 15, 1, False),
    ]
    size = sum(path.stat().st_size for path in tmp_path.glob("*.log"))
    assert told[-1] == (size, size)
    assert told == sorted(told)


def test_every_flipped_bit_of_a_sealed_segment_is_found(memory_path: Path) -> None:
    sealed_log(memory_path, frames=2)
    path = memory_path / FIRST
    data = path.read_bytes()
    assert len(data) < 4_000
    for position in range(len(data)):
        flip(path, position, position % 8)
        assert damaged(memory_path), f"the flip at {position} was not found"
        path.write_bytes(data)
    assert not damaged(memory_path)


def test_bytes_too_many_or_too_few_are_found(tmp_path: Path) -> None:
    sealed_log(tmp_path, frames=2)
    path = tmp_path / FIRST
    data = path.read_bytes()
    for changed in (data + b"\0", data[:-1], data[:-50], data[:1_000], b"", data + data):
        path.write_bytes(changed)
        assert damaged(tmp_path)


def test_reading_stops_at_damage_and_names_it(tmp_path: Path) -> None:
    written = several_frames(tmp_path)
    path = tmp_path / FIRST
    view = View.open(tmp_path)
    index = view._at(0)[1].index
    bases, positions = list(index.bases), list(index.positions)
    data = path.read_bytes()
    for number in range(3):
        for position in range(positions[number], positions[number + 1], 41):
            flip(path, position, position % 8)
            store = LogStore.open(tmp_path)
            got = []
            with pytest.raises(LogDamaged) as caught:
                for batch in read_batches(store, max_bytes=1 << 30):
                    got.append(batch)
            assert (caught.value.first, caught.value.last) == (
                bases[number],
                bases[number + 1] - 1,
            )
            assert caught.value.segment == FIRST
            assert sum(len(batch.run) for batch in got) == bases[number]
            after = contents(store, bases[number + 1], bases[-1])
            assert after == written[bases[number + 1] :], "what lies behind can be read"
            store.close()
            path.write_bytes(data)


def test_a_damaged_footer_is_named_when_it_is_needed(tmp_path: Path) -> None:
    sealed_log(tmp_path)
    path = tmp_path / FIRST
    flip(path, path.stat().st_size - 100)
    store = LogStore.open(tmp_path)
    with pytest.raises(LogDamaged, match="footer"):
        store.read(0, everything, 100, store.end)
    store.close()


def test_a_damaged_frame_header_in_a_full_segment(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=6_000)
    written = fill(store, 12)
    first = store.segments[0]
    store.close()
    data = first.path.read_bytes()
    second = data.index(b"\xff\xff\xff\xff", 1_000) - 20
    flip(first.path, second, 6)
    store = LogStore.open(tmp_path)
    got = []
    with pytest.raises(LogDamaged) as caught:
        for batch in read_batches(store):
            got.append(batch)
    assert caught.value.first == 3
    assert sum(len(batch.run) for batch in got) == 3
    assert contents(store, first.end) == written[first.end :]
    store.close()


def test_times_are_not_looked_for_behind_a_damaged_frame_header(tmp_path: Path) -> None:
    """Of a full segment that is not sealed yet, even the first header may be the one."""
    store = LogStore.open(tmp_path, segment_bytes=6_000)
    fill(store, 12)
    first = store.segments[0]
    store.close()
    start = first.path.read_bytes().index(b"\xff\xff\xff\xff", 600) - HEADER.size
    flip(first.path, start + 3, 7)
    store = LogStore.open(tmp_path)
    with pytest.raises(LogDamaged, match="the header of a frame is damaged") as caught:
        store.offset_at(START_TIME)
    assert (caught.value.first, caught.value.last) == (0, first.end - 1)
    assert store.offset_at(store.last_timestamp) == store.end - 1
    store.close()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    sealed_log(tmp_path)
    store = LogStore.open(tmp_path)
    shutil.move(tmp_path / FIRST, tmp_path / "moved")
    with pytest.raises(LogDamaged, match="the file is missing"):
        store.read(0, everything, 100, store.end)
    store.close()


def test_no_log_no_report(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="there is no log in"):
        list(verify(tmp_path / "nowhere"))
    with pytest.raises(LogError, match="there is no log in"):
        list(mending.repair(tmp_path))
    with pytest.raises(LogError, match="there is no log in"):
        View.open(tmp_path)


def test_an_unfinished_write_is_no_damage(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    fill(store, 3)
    store.close()
    with (tmp_path / FIRST).open("ab") as file:
        file.write(b"unfinished")
    (report,) = verify(tmp_path)
    assert (report.damage, report.torn, report.end) == ([], 10, 9)
    (tmp_path / "00000000000000000009.log").write_bytes(b"half a header")
    first, second = verify(tmp_path)
    assert first.damage != []
    assert (second.damage, second.torn) == ([], 13)
