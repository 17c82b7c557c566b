"""Sealing: a full segment is rewritten with few large, compressed frames and with its index.

A frame carries some 700 bytes of Arrow metadata, which is much for a single message. Here the rows
of small frames are put together and those of huge ones apart, so that a frame is a good unit for
compressing, reading and skipping. Rows stay as they are, and so do all offsets.

The new file is complete and on disk before it takes the old one's name; a crash before that leaves
a temporary file, which opening the log removes.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from crc32c import crc32c

from headwater.log import record
from headwater.log.embedded import frame, segment
from headwater.log.embedded.file import LogFile
from headwater.log.embedded.frame import Scan
from headwater.log.embedded.index import MAX_TOPICS, UNKNOWN_TIME, Index, write_footer
from headwater.log.embedded.segment import OpenSegment, Segment, Trailer
from headwater.log.record import FrameRows

# Payload in a frame. Decompressing one takes about a millisecond.
_FRAME_BYTES = 1 << 20
# A step ends at whichever comes first; a hundred small frames take as long as one large one.
_STEP_BYTES = 1 << 20
_STEP_FRAMES = 100
# Handed to the disk in portions, or the last sync would keep the log's writer waiting.
_SYNC_BYTES = 4 << 20


def seal(
    source: Segment, opened: OpenSegment, identity: int, pause: Callable[[float], None]
) -> tuple[Segment, Path]:
    """Write the sealed form of a segment; what it will be, and the file it is in for now."""
    temporary = source.path.with_suffix(segment.SUFFIX + segment.TEMPORARY)
    try:
        target = SealedWriter(temporary, source.base, identity)
        began = time.monotonic()
        for _ in _copy(source, opened, identity, target):
            pause(time.monotonic() - began)
            began = time.monotonic()
        return target.finish(source), temporary
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _copy(
    source: Segment, opened: OpenSegment, identity: int, target: "SealedWriter"
) -> Iterator[None]:
    """Copy all frames, step by step."""
    scan = Scan(opened.file, opened.index.positions[0], source.size, source.base, identity)
    frames = size = 0
    for found in scan:
        try:
            target.add(FrameRows(found.message(), found.base, found.records))
        except pa.ArrowException as error:
            what = f"a frame cannot be decoded ({error})"
            raise source.damaged(found.base, found.end, what) from error
        frames, size = frames + 1, size + len(found.data)
        if frames >= _STEP_FRAMES or size >= _STEP_BYTES:
            frames = size = 0
            target.combine()
            yield
    if scan.expected != source.end:
        raise source.damaged(scan.expected, source.end, scan.fault or "the end is missing")


class SealedWriter:
    """A sealed segment that is being written."""

    def __init__(self, path: Path, base: int, identity: int) -> None:
        self._identity = identity
        self._file = LogFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        header = segment.encode_header(base, identity, sealed=True)
        self._file.write(0, [memoryview(header)])
        self._index = Index(base, len(header))
        self._counts: list[Counter[str] | None] = []
        self._pending: list[Any] = []  # record batches that will be one frame
        self._pending_bytes = 0
        self._synced = 0

    def add(self, rows: FrameRows) -> None:
        """Take over the rows of one frame."""
        if rows.lost:
            self._flush()
            self._write(record.encode_nothing(), rows.end - rows.base, UNKNOWN_TIME, None)
        for piece, size in rows.pieces(_FRAME_BYTES):
            if self._pending_bytes + size > _FRAME_BYTES:
                self._flush()
            self._pending.append(piece)
            self._pending_bytes += size

    def combine(self) -> None:
        """Put together what was added: doing that with thousands of pieces at once takes long."""
        if len(self._pending) > 1:
            self._pending = [pa.concat_batches(self._pending)]

    def finish(self, source: Segment) -> Segment:
        """Write what is left, the footer and the trailer; on disk when this returns."""
        self._flush()
        footer = memoryview(write_footer(self._index, self._counts))
        crc = crc32c(footer, self._identity)
        position, end = self._index.stop, self._index.end
        trailer = Trailer(position, len(footer), crc, end, source.last_timestamp)
        ending = segment.encode_trailer(trailer, self._identity)
        self._file.write(position, [footer, memoryview(ending)])
        os.fsync(self._file.fd)
        size, last_timestamp = self._file.size, source.last_timestamp
        return Segment(source.path, source.base, end, size, last_timestamp, sealed=True)

    def _flush(self) -> None:
        if not self._pending:
            return
        table = pa.concat_batches(self._pending)
        self._pending, self._pending_bytes = [], 0
        counts = record.count_topics(table)
        first = record.first_timestamp(table)
        kept = counts if len(counts) <= MAX_TOPICS else None
        self._write(record.compress(table), counts.total(), first, kept)

    def _write(self, message: Any, count: int, timestamp: int, counts: Counter[str] | None) -> None:
        base, position = self._index.end, self._index.stop
        header = frame.header(message, base, base, count, self._identity)
        self._file.write(position, [memoryview(header), memoryview(message)])
        stop = position + len(header) + len(message)
        topics = None if counts is None else tuple(counts)
        self._index.add(base + count, stop, timestamp, topics)
        self._counts.append(counts)
        if stop - self._synced >= _SYNC_BYTES:
            self._file.sync()
            self._synced = stop
