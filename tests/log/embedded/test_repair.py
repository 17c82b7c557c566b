"""Repair: everything that can be read is kept, everything else is accounted for."""

import errno
import os
import re
import shutil
from pathlib import Path

import pytest

from headwater.errors import LogError, LogLocked
from headwater.log.embedded import segment
from headwater.log.embedded.repair import Repaired, repair
from headwater.log.embedded.store import LogStore
from headwater.log.embedded.verify import verify
from headwater.log.embedded.view import View
from tests.log.embedded.test_damage import damaged, several_frames
from tests.log.helpers import (
    Message,
    contents,
    fill,
    flip,
    identity_in,
    never_noted,
    seal_all,
    sealed_log,
)

FIRST = "00000000000000000000.log"


def mend(directory: Path) -> list[Repaired]:
    repaired = list(repair(directory))
    assert not damaged(directory)
    assert list(directory.glob("*.tmp")) == []
    return repaired


def check(directory: Path, written: list[Message], lost: range) -> None:
    """The log holds what was written but the lost ones, before and after sealing, and goes on."""
    store = LogStore.open(directory, segment_bytes=1)
    expected = [m for m in written if m.offset not in lost]
    assert contents(store, 0, written[-1].offset + 1) == expected
    if lost:
        assert store.holes == {(lost.start, lost.stop)}
    more = fill(store, 2)
    seal_all(store)
    assert contents(store, 0, written[-1].offset + 1) == expected
    assert contents(store, more[0].offset) == more
    for message in expected:
        assert store.offset_at(message.timestamp) <= message.offset
    store.close()
    assert not damaged(directory)
    store = LogStore.open(directory)
    assert contents(store, 0, written[-1].offset + 1) == expected
    store.close()
    assert sum(report.given_up for report in verify(directory)) == len(lost)


def test_a_sound_log_is_left_alone(tmp_path: Path) -> None:
    sealed_log(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert mend(tmp_path) == []
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_damaged_frame_of_a_sealed_segment_is_given_up(tmp_path: Path, number: int) -> None:
    written = several_frames(tmp_path)
    path = tmp_path / FIRST
    index = View.open(tmp_path)._at(0)[1].index
    lost = range(index.bases[number], index.bases[number + 1])
    flip(path, index.positions[number] + 60)
    before = path.read_bytes()
    (report,) = damaged(tmp_path)
    assert [(d.first, d.end) for d in report.damage] == [(lost.start, lost.stop)]
    (repaired,) = mend(tmp_path)
    assert (repaired.name, repaired.lost) == (FIRST, ((lost.start, lost.stop),))
    assert (repaired.kept, repaired.dropped) == (12 - len(lost), 0)
    assert repaired.damaged is not None
    assert repaired.damaged.read_bytes() == before
    check(tmp_path, written, lost)


@pytest.mark.parametrize("position", [5, 200, -5, -30, -100])
def test_damage_outside_of_frames_costs_nothing(tmp_path: Path, position: int) -> None:
    written = several_frames(tmp_path)
    path = tmp_path / FIRST
    flip(path, position % path.stat().st_size)
    (report,) = damaged(tmp_path)
    assert [d.lost for d in report.damage] == [0]
    assert "no message is lost" in str(report.damage[0])
    (repaired,) = mend(tmp_path)
    assert (repaired.kept, repaired.lost, repaired.dropped) == (12, (), 0)
    check(tmp_path, written, range(0))


@pytest.mark.parametrize("number", [0, 2])
def test_damage_in_the_middle_of_the_last_segment(tmp_path: Path, number: int) -> None:
    store = LogStore.open(tmp_path)
    written = fill(store, 5)
    held = store.segments[0].held
    assert held is not None
    flip(tmp_path / FIRST, held.index.positions[number] + 2, 3)  # its length
    store.close()
    (repaired,) = mend(tmp_path)
    assert repaired.lost == ((number * 3, number * 3 + 3),)
    check(tmp_path, written, range(number * 3, number * 3 + 3))


def test_damage_in_a_full_segment_and_a_torn_end(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=6_000)
    written = fill(store, 7)
    first = store.segments[0]
    store.close()
    flip(first.path, first.size - 1)
    with store.segments[-1].path.open("ab") as file:
        file.write(b"torn")
    (repaired,) = mend(tmp_path)
    assert repaired.lost == ((first.end - 3, first.end),)
    check(tmp_path, written, range(first.end - 3, first.end))


def test_a_disk_with_a_bad_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = several_frames(tmp_path, filler=os.urandom(1_048_000))  # not to be compressed
    index = View.open(tmp_path)._at(0)[1].index
    bad, real = index.positions[1] + 10_000, os.pread

    def pread(fd: int, length: int, position: int) -> bytes:
        inside = position <= bad < position + length
        if inside and os.readlink(f"/proc/self/fd/{fd}").endswith(FIRST):
            raise OSError(errno.EIO, "Input/output error")
        return real(fd, length, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", pread)
        store = LogStore.open(tmp_path)
        place = f"segment {FIRST}, offsets {index.bases[1]} to {index.bases[2] - 1}"
        with pytest.raises(OSError, match=re.escape(f"Input/output error ({place})")):
            contents(store, index.bases[1])
        store.close()
        (repaired,) = repair(tmp_path)
    assert repaired.lost == ((index.bases[1], index.bases[2]),)
    check(tmp_path, written, range(index.bases[1], index.bases[2]))


def test_a_missing_segment_becomes_lost_offsets(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=3_000)
    written = fill(store, 9)
    missing = store.segments[1]
    seal_all(store)
    store.close()
    shutil.move(missing.path, tmp_path / "moved")
    (repaired,) = mend(tmp_path)
    assert repaired.lost == ((missing.base, missing.end),)
    check(tmp_path, written, range(missing.base, missing.end))


def test_the_end_of_the_last_segment_is_unknown(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    fill(store, 2)
    store.close()
    path = tmp_path / FIRST
    flip(path, 3)  # the header, or an unreadable end would be taken for an unfinished write
    flip(path, path.stat().st_size - 1)
    never_noted(tmp_path)
    (report,) = damaged(tmp_path)
    assert "everything from offset 3 on is lost" in str(report.damage[-1])
    (repaired,) = mend(tmp_path)
    assert (repaired.kept, repaired.lost) == (3, ())
    assert repaired.dropped > 700
    store = LogStore.open(tmp_path)
    assert store.end == 3
    store.close()


def test_a_second_repair_keeps_both_damaged_files(tmp_path: Path) -> None:
    several_frames(tmp_path)
    flip(tmp_path / FIRST, 5)
    (first,) = mend(tmp_path)
    flip(tmp_path / FIRST, 5)
    (second,) = mend(tmp_path)
    assert first.damaged is not None
    assert first.damaged.exists()
    assert second.damaged is not None
    assert second.damaged.exists()
    assert first.damaged != second.damaged


def test_offsets_that_two_segments_have_are_left_to_a_person(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path, segment_bytes=6_000)
    fill(store, 7)
    first = store.segments[0]
    store.close()
    segment.create(tmp_path, first.end - 3, identity_in(tmp_path))
    with pytest.raises(LogError, match="both hold the offsets"):
        list(repair(tmp_path))


def test_repair_needs_the_lock(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    fill(store, 1)
    with pytest.raises(LogLocked):
        list(repair(tmp_path))
    store.close()


def test_without_any_header_and_lock_file_nothing_is_touched(tmp_path: Path) -> None:
    store = LogStore.open(tmp_path)
    fill(store, 1)
    store.close()
    flip(tmp_path / FIRST, 3)
    (tmp_path / "LOCK").unlink()
    with pytest.raises(LogError, match="bring it or any segment back"):
        list(repair(tmp_path))
