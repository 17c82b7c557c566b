"""Repair of a damaged log: every readable record is kept, and every other one accounted for.

A damaged segment is written anew from the frames that are whole. Where records are lost, a frame
without rows stands for them, so offsets stay what they were and have no gaps; readers skip it and
know how many records it stood for. The damaged file is kept beside, with `.damaged` behind its
name, and never touched again. For segments that are missing at either end there are such frames,
too: offsets that were given out never mean another message.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headwater.errors import LogError
from headwater.files import sync_directory
from headwater.log import record
from headwater.log.embedded import frame, lock, recovery, segment
from headwater.log.embedded.file import LogFile
from headwater.log.embedded.lock import Lock
from headwater.log.embedded.salvage import Gap, Whole, Wreck
from headwater.log.embedded.verify import (
    SegmentReport,
    examine,
    identify,
    with_following,
)
from headwater.log.embedded.view import Progress

_MAX_COUNT = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Repaired:
    """A segment that was repaired."""

    name: str
    #: Where the damaged file is now; None if it was missing.
    damaged: Path | None
    kept: int
    #: Ranges of offsets, each up to and without its end, that are lost.
    lost: tuple[tuple[int, int], ...]
    #: Bytes at the end of the log from which nothing could be read; what was in them is unknown.
    dropped: int


def repair(directory: Path, progress: Progress = lambda done, total: None) -> Iterator[Repaired]:
    """Repair the damaged segments one after the other. Raises LogLocked and LogError."""
    identity = identify(directory)
    held = Lock(directory)
    try:
        paths, extent = segment.files(directory), lock.extent(directory, identity)
        if (missing := recovery.missing_front(paths, extent)) is not None:
            yield _stand_in(directory, identity, *missing)
        total = sum(path.stat().st_size for path in paths)
        done = 0
        for path, following in with_following(paths):
            wreck = Wreck(path, identity, following, extent.end)
            report = examine(wreck, done, total, progress)
            done += report.size
            if report.damage:
                yield _repair_segment(wreck, report)
        held.identity()  # LOCK may be what was damaged
    finally:
        held.release()


def _stand_in(directory: Path, identity: int, first: int, end: int) -> Repaired:
    """A segment without messages for those that are missing before all others."""
    made = segment.create(directory, first, identity)
    assert made.held is not None
    gap = Gap(made.size, made.size, first, end, "")
    _write_hole(made.held.file, made.size, gap, identity)
    made.held.file.sync()
    return Repaired(made.name, None, 0, ((first, end),), 0)


def _repair_segment(wreck: Wreck, report: SegmentReport) -> Repaired:
    if wreck.following is not None and report.end > wreck.following:
        raise LogError(
            f"segment {report.name} and the next one both hold the offsets from {wreck.following} "
            f"to {report.end - 1}; take the wrong one of the two files away"
        )
    temporary = wreck.path.with_suffix(segment.SUFFIX + segment.TEMPORARY)
    try:
        file = LogFile(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        kept, lost, dropped = _rewrite(wreck, file)
        os.fsync(file.fd)
        damaged = _keep(wreck.path)
        os.replace(temporary, wreck.path)
        sync_directory(wreck.path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return Repaired(report.name, damaged, kept, tuple(lost), dropped)


def _rewrite(wreck: Wreck, file: LogFile) -> tuple[int, list[tuple[int, int]], int]:
    """Write what is left; how many records that are, what is lost, and bytes of unknown content."""
    header = segment.encode_header(wreck.base, wreck.identity, sealed=False)
    file.write(0, [memoryview(header)])
    position = len(header)
    kept = dropped = 0
    lost = []
    for piece in wreck.pieces():
        if isinstance(piece, Whole):
            kept += 0 if piece.rows.lost else piece.frame.records
            file.write(position, [piece.frame.data])
            position += len(piece.frame.data)
        elif piece.end is None:
            dropped += piece.stop - piece.position
        elif piece.end > piece.first:
            lost.append((piece.first, piece.end))
            position = _write_hole(file, position, piece, wreck.identity)
    return kept, lost, dropped


def _write_hole(file: LogFile, position: int, gap: Gap, identity: int) -> int:
    """Frames without rows for the records of a gap; the position behind them."""
    assert gap.end is not None
    message = record.encode_nothing()
    for base in range(gap.first, gap.end, _MAX_COUNT):
        count = min(gap.end - base, _MAX_COUNT)
        header = frame.header(message, base, base, count, identity)
        file.write(position, [memoryview(header), memoryview(message)])
        position += len(header) + len(message)
    return position


def _keep(path: Path) -> Path:
    """Give the damaged file a second name, so that there is never a moment without it."""
    number = 1
    while True:
        damaged = path.with_name(f"{path.name}.damaged" + (f".{number}" if number > 1 else ""))
        try:
            os.link(path, damaged)
        except FileExistsError:
            number += 1
        except OSError:  # a file system without hard links
            shutil.copy2(path, damaged)
            LogFile(damaged).sync()
            return damaged
        else:
            return damaged
