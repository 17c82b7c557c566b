"""Opening a log: find out what is there, cut off what a crash left unfinished, refuse damage.

Only the last segment is read in full. What a crash can leave behind there are frames that were
written and not synced: any of them may be missing or in pieces, also one with a whole frame behind
it. Nothing of that was ever acknowledged, so it is cut off. But every frame tells what was durable
when it was written. If one that is whole says so of a place before it that is not, that place is
damaged, and nobody may cut it off. And LOCK tells what the log must hold (see lock.py): one that
is shorter, on either side, is damaged.

Of the other segments the header and the end are read: their trailer, or their last frame.
"""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from headwater.errors import LogDamaged
from headwater.files import sync_directory
from headwater.log.embedded import frame, segment
from headwater.log.embedded.file import LogFile
from headwater.log.embedded.frame import Frame, Scan
from headwater.log.embedded.index import Index
from headwater.log.embedded.lock import Extent
from headwater.log.embedded.segment import Header, OpenSegment, Segment
from headwater.log.record import FrameRows


class Recovered(NamedTuple):
    segments: list[Segment]
    identity: int
    #: Bytes of an unfinished write that were cut off.
    torn: int
    #: Nobody can tell whether a first or a last segment is missing.
    unnoted: bool = False


def recover(directory: Path, identity: int, noted: Extent) -> Recovered:
    """The segments of the log, the last one ready to be appended to. Needs the lock."""
    remove_temporaries(directory)
    sync_directory(directory)
    paths = segment.files(directory)
    if (missing := missing_front(paths, noted)) is not None:
        name = segment.path_of(directory, missing[0]).name
        raise LogDamaged(name, missing[0], missing[1] - 1, "the file is missing")
    if not paths:
        return Recovered([segment.create(directory, noted.end, identity)], identity, 0)
    last, torn = _recover_last(paths[-1], identity, noted)
    segments = [*describe_all(paths[:-1], identity, last.base), last]
    check_contiguous(segments)
    if last.sealed:  # someone took the active segment away
        segments.append(segment.create(directory, last.end, identity))
    return Recovered(segments, identity, torn, unnoted=not noted.end and segments[-1].end > 0)


def remove_temporaries(directory: Path) -> None:
    """Remove what a crash has left half written under another name."""
    for path in directory.glob(f"*{segment.SUFFIX}{segment.TEMPORARY}"):
        path.unlink()


def missing_front(paths: Sequence[Path], noted: Extent) -> tuple[int, int] | None:
    """The offsets before the first segment that should be there."""
    begin = (segment.base_of(paths[0]) or 0) if paths else noted.end
    return (noted.start, begin) if noted.start < min(begin, noted.end) else None


def check_contiguous(segments: Sequence[Segment]) -> None:
    for one, other in pairwise(segments):
        if one.end < other.base:
            raise one.damaged(one.end, other.base, f"nothing leads on to {other.name}")
        if one.end > other.base:
            raise one.damaged(other.base, one.end, f"{other.name} has these offsets too")


def describe_all(paths: Sequence[Path], identity: int, end: int) -> list[Segment]:
    """What is known of these segments, which others follow. `end`: the base of the one behind."""
    bases = [segment.base_of(path) or 0 for path in paths]
    return [
        describe(path, identity, following)
        for path, following in zip(paths, [*bases, end][1:], strict=True)
    ]


def describe(path: Path, identity: int, following: int | None) -> Segment:
    """What is known of a segment that nobody appends to. Raises LogDamaged."""
    file = LogFile(path)
    base = segment.base_of(path) or 0
    unknown = Segment(path, base, base, file.size, 0, sealed=False)
    header = segment.read_header(file, identity)
    if isinstance(header, str):
        raise unknown.damaged(base, following, header)
    if not header.sealed:
        return _describe_unsealed(file, header, unknown, following)
    trailer = segment.read_trailer(file, identity)
    if isinstance(trailer, str):
        raise unknown.damaged(base, following, trailer)
    return Segment(path, base, trailer.end, file.size, trailer.last_timestamp, sealed=True)


def _describe_unsealed(
    file: LogFile, header: Header, unknown: Segment, following: int | None
) -> Segment:
    last = frame.last(file, header.start, unknown.size, header.identity)
    if last is None and unknown.size > header.start:
        # Slow, but now the error can say where.
        scan = Scan(file, header.start, unknown.size, header.base, header.identity)
        for _ in scan:
            pass
        raise unknown.damaged(scan.expected, following, scan.fault or "the end is damaged")
    unknown.end = header.base if last is None else last.end
    if last is not None:
        unknown.last_timestamp = _last_timestamp(file, header, unknown, last)
    return unknown


def _last_timestamp(file: LogFile, header: Header, described: Segment, last: Frame) -> int:
    """The time of the last record that has one: those of a repaired segment may be lost."""
    times = _times(described, last)
    if times is not None:
        return times[1]
    ends = frame.headers(file, header.start, last.position, header.base)
    for position in reversed([header.start, *(stop for _, stop in ends)]):
        found = frame.whole(file, position, last.position, header.identity)
        times = None if found is None else _times(described, found)
        if times is not None:
            return times[1]
    return 0


def _times(described: Segment, found: Frame) -> tuple[int, int] | None:
    try:
        return FrameRows(found.message(), found.base, found.records).times()
    except (pa.ArrowException, OSError) as error:
        raise described.damaged(found.base, found.end, f"it cannot be decoded: {error}") from error


def _recover_last(path: Path, identity: int, noted: Extent) -> tuple[Segment, int]:
    """The last segment, fit to be appended to, and how much was cut off."""
    file = LogFile(path, os.O_RDWR)
    base, size = segment.base_of(path) or 0, file.size
    if size < segment.HEADER_BYTES and base >= noted.end:  # a crash while it was made
        return segment.create(path.parent, base, identity), size
    header = segment.read_header(file, identity)
    if isinstance(header, str):
        raise Segment(path, base, base, size, 0, sealed=False).damaged(base, None, header)
    if header.sealed:
        last = describe(path, identity, None)
        _check_end(last, noted)
        return last, 0
    return _cut_tail(*scan_active(file, header), identity, noted)


class Remainder(NamedTuple):
    """What follows the last whole frame."""

    #: The size of the file when it was scanned. It may be growing.
    stop: int
    #: None if nothing follows, or only room for more frames (see store.py).
    fault: str | None


def scan_active(file: LogFile, header: Header) -> tuple[Segment, Remainder]:
    """The segment as far as its frames are whole, and what follows them."""
    found = Segment(file.path, header.base, header.base, header.start, 0, sealed=False)
    found.held = OpenSegment(file, Index(header.base, header.start))
    return found, extend(found, header.identity)


def extend(active: Segment, identity: int) -> Remainder:
    """Take in the whole frames behind those that are known, and tell what follows."""
    assert active.held is not None
    file, index = active.held.file, active.held.index
    stop = file.size
    scan = Scan(file, active.size, stop, active.end, identity)
    last = None
    for last in scan:
        index.add(last.end, last.stop)
    if last is not None:
        header = Header(active.base, False, identity, index.positions[0])
        active.last_timestamp = _last_timestamp(file, header, active, last)
    active.size, active.end = scan.position, scan.expected
    room = scan.fault is not None and frame.only_zeros(file, scan.position, stop)
    return Remainder(stop, None if room else scan.fault)


def check_tail(active: Segment, tail: Remainder, identity: int) -> None:
    """Raise LogDamaged if what follows the last whole frame is more than an unfinished write."""
    assert active.held is not None
    if tail.fault is None:
        return
    first = None
    for later in frame.find(active.held.file, active.size, tail.stop, active.end, identity):
        first = first or later
        if first.position == active.size:
            return  # it was being written when the frames were scanned
        if later.durable > active.end:
            raise active.damaged(active.end, max(first.base, active.end + 1), tail.fault)


def _check_end(last: Segment, noted: Extent, fault: str | None = None) -> None:
    if last.end < noted.end:
        raise last.damaged(last.end, noted.end, fault or "the log ends there, and held more")


def _cut_tail(
    active: Segment, tail: Remainder, identity: int, noted: Extent
) -> tuple[Segment, int]:
    """Cut off an unfinished write. Raises LogDamaged if it is anything else."""
    assert active.held is not None
    check_tail(active, tail, identity)
    _check_end(active, noted, tail.fault)
    behind = tail.stop - active.size
    if behind:
        active.held.file.cut(active.size)
    # What the process before has written need not be on the disk, and counts as durable from now.
    active.held.file.sync()
    return active, behind if tail.fault is not None else 0
