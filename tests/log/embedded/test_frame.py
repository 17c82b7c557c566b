"""Frames: checksums, and finding whole ones in a damaged file."""

import os
from pathlib import Path

from headwater.log import record
from headwater.log.embedded import frame
from headwater.log.embedded.file import LogFile
from headwater.log.embedded.frame import Scan
from tests.log.helpers import make_run, place

IDENTITY = 0x1234ABCD


def make_frame(base: int, payload: bytes, identity: int = IDENTITY) -> bytes:
    message = record.encode(place([make_run("t", payload)], base, 5))
    return frame.header(message, base, 0, 1, identity) + bytes(message)


def file_of(path: Path, *parts: bytes) -> LogFile:
    path.write_bytes(b"".join(parts))
    return LogFile(path)


def test_a_frame_is_intact_until_any_bit_of_it_changes() -> None:
    data = make_frame(7, b"hello")
    assert frame.intact(memoryview(data), IDENTITY)
    assert not frame.intact(memoryview(data), IDENTITY + 1)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << (position % 8)
        assert not frame.intact(memoryview(changed), IDENTITY)


def test_a_scan_stops_at_the_end_or_where_it_makes_no_sense(tmp_path: Path) -> None:
    good = [make_frame(n, b"x") for n in range(3)]
    whole = file_of(tmp_path / "a", *good)
    scan = Scan(whole, 0, whole.size, 0, IDENTITY)
    assert [found.base for found in scan] == [0, 1, 2]
    assert (scan.position, scan.expected, scan.fault) == (whole.size, 3, None)
    for rest, why in [
        (b"\0" * 100, "no length"),
        (b"\xff" * 100, "longer"),
        (good[2][:10], "cut off"),
        (good[2][:-1], "longer than the rest"),
        (good[2][:-1] + b"?", "checksum"),
        (make_frame(9, b"x"), "offset 9 where 2 should be"),
    ]:
        file = file_of(tmp_path / "b", *good[:2], rest)
        scan = Scan(file, 0, file.size, 0, IDENTITY)
        assert [found.base for found in scan] == [0, 1]
        assert scan.expected == 2
        assert why in (scan.fault or "")


def test_frames_larger_than_what_is_read_at_once(tmp_path: Path) -> None:
    parts = [make_frame(n, os.urandom(700_000)) for n in range(4)]
    file = file_of(tmp_path / "a", *parts)
    scan = Scan(file, 0, file.size, 0, IDENTITY)
    assert [bytes(found.data) for found in scan] == parts
    ends = list(frame.headers(file, 0, file.size, 0))
    assert [end for end, _ in ends] == [1, 2, 3, 4]
    assert ends[-1][1] == file.size


def test_the_next_whole_frame_is_found_wherever_it_is(tmp_path: Path) -> None:
    wanted = make_frame(50, b"x")
    for gap in [0, 1, 19, 20, 21, 1000, (1 << 20) - 30, (1 << 20) - 8, (1 << 20) + 5]:
        file = file_of(tmp_path / "a", b"\xff" * gap, wanted, b"tail")
        found = next(frame.find(file, 0, file.size, 10, IDENTITY))
        assert found is not None
        assert (found.position, found.base, found.message()) == (
            gap,
            50,
            wanted[frame.HEADER.size :],
        )


def test_what_only_looks_like_a_frame_is_not_found(tmp_path: Path) -> None:
    foreign = make_frame(50, b"x", IDENTITY + 1)
    older = make_frame(5, b"x")
    cut = make_frame(50, b"x")[:-1]
    file = file_of(tmp_path / "a", foreign, older, cut)
    assert not list(frame.find(file, 0, file.size, 10, IDENTITY))


def test_the_last_frame_is_found_from_behind(tmp_path: Path) -> None:
    for size in (10, 100_000, 3_000_000):
        last = make_frame(6, b"\xff" * size)
        file = file_of(tmp_path / "a", make_frame(5, last), last)
        found = frame.last(file, 0, file.size, IDENTITY)
        assert found is not None
        assert (found.base, found.stop) == (6, file.size)
    assert frame.last(file, 0, file.size - 1, IDENTITY) is None
    assert frame.last(file, 0, 0, IDENTITY) is None
