"""Checking a log from end to end. Nothing is changed, and a broker may be running.

Every frame's checksum is computed and every frame decoded; offsets must follow each other without
a gap; a sealed segment's index must say what its frames say; not one byte may be left over; and
nothing may be missing at either end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.errors import LogError
from headwater.log import record
from headwater.log.embedded import index, lock, recovery, segment
from headwater.log.embedded.lock import Extent
from headwater.log.embedded.salvage import Gap, Whole, Wreck
from headwater.log.embedded.segment import Trailer
from headwater.log.embedded.view import Progress


@dataclass(frozen=True, slots=True)
class Damage:
    """Something in a segment is not as it was written."""

    #: The offsets that are lost, up to and without `end`; None if nobody knows how many.
    first: int
    end: int | None
    what: str

    @property
    def lost(self) -> int | None:
        return None if self.end is None else self.end - self.first

    def __str__(self) -> str:
        if self.end is None:
            return f"everything from offset {self.first} on is lost: {self.what}"
        if not self.lost:
            return f"no message is lost: {self.what}"
        return f"offsets {self.first} to {self.end - 1} are lost: {self.what}"


@dataclass(slots=True)
class SegmentReport:
    """What was found in one segment."""

    name: str
    base: int
    sealed: bool
    size: int
    #: The offset behind the last record that could be read.
    end: int
    frames: int = 0
    #: Records that an earlier repair could not save.
    given_up: int = 0
    #: Bytes of an unfinished write at the end of the log. Opening it cuts them off.
    torn: int = 0
    damage: list[Damage] = field(default_factory=list)


def verify(
    directory: Path, progress: Progress = lambda done, total: None
) -> Iterator[SegmentReport]:
    """Check the segments one after the other. Raises LogError if there is no log."""
    identity = identify(directory)
    # The end first, then the files, then the start: a broker that runs moves all of them on.
    end = lock.extent(directory, identity).end
    paths = segment.files(directory)
    start = lock.extent(directory, identity).start
    if (missing := recovery.missing_front(paths, Extent(start, end))) is not None:
        yield report_missing(directory, *missing)
    total = sum(map(_size, paths))
    done = 0
    for path, following in with_following(paths):
        try:
            wreck = Wreck(path, identity, following, end)
        except FileNotFoundError:
            continue  # retention has dropped it meanwhile
        report = examine(wreck, done, total, progress)
        done += report.size
        yield report


def identify(directory: Path) -> int:
    """The identity of the log in a directory. Raises LogError."""
    identity = lock.identity(directory) if directory.is_dir() else None
    noted = identity is not None and lock.extent(directory, identity).end
    if not noted and (not directory.is_dir() or not segment.files(directory)):
        raise LogError(f"there is no log in {directory}")
    if identity is None:
        raise LogError(
            f"no segment in {directory} has a header that can be read, and the file LOCK, which "
            "could help, is missing: bring it or any segment back from a copy"
        )
    return identity


def report_missing(directory: Path, first: int, end: int) -> SegmentReport:
    """Files that should come before those that are there."""
    report = SegmentReport(segment.path_of(directory, first).name, first, False, 0, end=first)
    report.damage.append(Damage(first, end, "the file is missing"))
    return report


def with_following(paths: Sequence[Path]) -> Iterator[tuple[Path, int | None]]:
    """Each segment with the base offset of the one behind it."""
    bases = [segment.base_of(path) for path in paths]
    return zip(paths, [*bases, None][1:], strict=True)


def examine(wreck: Wreck, done: int, total: int, progress: Progress) -> SegmentReport:
    """Check one segment; `done` of `total` bytes were checked before it."""
    sealed = wreck.trailer is not None
    report = SegmentReport(wreck.path.name, wreck.base, sealed, wreck.size, end=wreck.base)
    if wreck.unbegun:
        report.torn = wreck.size
        return report
    for fault in (wreck.header, wreck.trailer):
        if isinstance(fault, str):
            report.damage.append(Damage(wreck.base, wreck.base, fault))
    entries = []
    for piece in wreck.pieces():
        if isinstance(piece, Whole):
            entries.append(_take(report, piece))
            progress(done + piece.frame.stop, total)
        else:
            _miss(report, wreck, piece)
    if isinstance(wreck.trailer, Trailer):
        _compare(report, wreck, wreck.trailer, entries)
    if wreck.following is not None and report.end > wreck.following:
        what = "the next segment has these offsets too"
        report.damage.append(Damage(wreck.following, wreck.following, what))
    progress(done + wreck.size, total)
    return report


# What a footer should say of a frame: base, position, timestamp, topics and their numbers.
_Entry = tuple[int, int, int, dict[str, int] | None]


def _take(report: SegmentReport, piece: Whole) -> _Entry:
    found, rows = piece
    report.frames += 1
    report.end = found.end
    if rows.lost:
        report.given_up += found.records
        return found.base, found.position, index.UNKNOWN_TIME, None
    counts = record.count_topics(rows.table)
    topics = dict(counts) if len(counts) <= index.MAX_TOPICS else None
    return found.base, found.position, record.first_timestamp(rows.table), topics


def _miss(report: SegmentReport, wreck: Wreck, gap: Gap) -> None:
    if wreck.unfinished and gap.end is None and not report.damage:
        report.torn = gap.stop - gap.position
    elif gap.end is None or gap.end > gap.first or not report.damage:
        report.damage.append(Damage(gap.first, gap.end, gap.what))


def _compare(report: SegmentReport, wreck: Wreck, trailer: Trailer, entries: list[_Entry]) -> None:
    """Whether the index of a sealed segment is the one that its frames give."""
    footer = segment.load_footer(wreck.file, trailer, wreck.identity)
    if isinstance(footer, str):
        report.damage.append(Damage(wreck.base, wreck.base, footer))
    elif not report.damage and _entries(footer) != entries:
        what = "the index does not fit the frames"
        report.damage.append(Damage(wreck.base, wreck.base, what))


def _entries(footer: Any) -> list[_Entry]:
    columns = [column.to_pylist() for column in footer.columns]
    return [
        (base, position, timestamp, None if topics is None else dict(topics))
        for base, position, timestamp, topics in zip(*columns, strict=True)
    ]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
