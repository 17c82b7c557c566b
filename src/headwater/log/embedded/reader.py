"""The reading half of a log: a row of segments, read by any number of threads at once.

Rules:
- The row of segments is a tuple that is exchanged as a whole, so a reader needs no lock: it takes
  the tuple once and finds in it what is true at that moment.
- A segment that was dropped or replaced between looking it up and opening it is looked up anew.
- Every frame that is read is checked. Where the check fails, LogDamaged names it; what was read
  before it is handed out first. A read that the system refuses is no damage: it raises OSError,
  and may succeed the next time.
- No read takes much longer than a slice (SLICE_SECONDS), however little of the log is wanted, and
  none has more than so many batches (record.MOST_BATCHES), however small they are.
"""

import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from headwater.courtesy import Courtesy
from headwater.errors import LogDamaged
from headwater.log import record
from headwater.log.embedded import frame
from headwater.log.embedded.segment import (
    OpenSegment,
    Replaced,
    Segment,
    open_segment,
)
from headwater.log.engine import Wanted
from headwater.log.record import FrameRows
from headwater.message import Batch

#: After so much work a read returns with what it has found, if anything, and how far it came.
SLICE_SECONDS = 0.01
# Or after so long, if the disk is slow, or others have the interpreter lock.
_LONGEST_SECONDS = 0.05

# What is read from a file in one go if frames are smaller than that.
_CHUNK_BYTES = 256 << 10
_OPEN_SEGMENTS = 32
_CACHE_BYTES = 32 << 20
_LOOK_AGAIN = 100

_HEADER_DAMAGED = "the header of a frame is damaged"

_Item = TypeVar("_Item")
# What to make of a frame from an offset on: items, where to go on, and how many bytes they are.
_Take = Callable[[FrameRows, int, int], tuple[list[_Item], int, int]]


class LogReader:
    """A log as it is on disk. See `Store` for writing to it and `View` for looking at it."""

    def __init__(self, segments: Sequence[Segment], identity: int) -> None:
        self._segments = tuple(segments)
        self._open_segments = OpenSegments(identity)
        self._frame_cache = FrameCache()
        self._holes: set[tuple[int, int]] = set()
        self.identity = identity

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def start(self) -> int:
        """The first offset that is still there."""
        return self._segments[0].base

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        return self._segments[-1].end

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self._segments)

    @property
    def last_timestamp(self) -> int:
        """The time of the last record; 0 if there is none."""
        return max(segment.last_timestamp for segment in self._segments)

    @property
    def holes(self) -> frozenset[tuple[int, int]]:
        """Ranges (first offset, end) that readers have met and that a repair could not save."""
        return frozenset(self._holes)

    def read(
        self, offset: int, wanted: Wanted, max_bytes: int, end: int
    ) -> tuple[list[Batch], int]:
        """Batches with wanted topics from `offset` to `end`, and the offset to go on from.

        About `max_bytes` of payload, or less. None at all means that nothing wanted lies before the
        returned offset; more can follow unless that is `end`. An `offset` before `start` reads from
        `start`.
        """
        part = _Slice()

        def take(rows: FrameRows, at: int, left: int) -> tuple[list[Batch], int, int]:
            batches, following = rows.batches(at, end, wanted, left, part.over)
            return batches, following, sum([batch.run.size for batch in batches])

        return self._walk(offset, end, wanted, max_bytes, take, part)

    def read_flat(
        self, offset: int, wanted: Wanted | None, max_bytes: int, end: int
    ) -> tuple[list[Any], int]:
        """As `read`, as record batches of record.FLAT_SCHEMA, and by whole frames only."""

        def take(rows: FrameRows, at: int, left: int) -> tuple[list[Any], int, int]:
            flat = record.flatten(rows, at, end, wanted)
            return [flat] if len(flat) else [], min(rows.end, end), rows.size

        return self._walk(offset, end, wanted or _everything, max_bytes, take, _Slice())

    def offset_at(self, timestamp: int) -> int:
        """The offset of the first record with this time or a later one; `end` if there is none."""
        filled = [s for s in self._segments if s.end > s.base]
        found = next((s for s in filled if s.last_timestamp >= timestamp), None)
        if found is None:
            return self.end
        segment, opened = self._at(found.base)
        if not len(opened.index):
            raise segment.damaged(segment.base, segment.end, _HEADER_DAMAGED)

        def begins(number: int) -> int:
            rows = self._rows(segment, opened, number)
            times = rows.times()
            if times is not None:
                return times[0]
            return begins(number + 1) if number + 1 < len(opened.index) else timestamp

        number = opened.index.before(timestamp, begins)
        return self._rows(segment, opened, number).first_at(timestamp)

    def opened(self, segment: Segment) -> tuple[Segment, OpenSegment]:
        """The segment as it is now (it may have been replaced by a sealed one), opened."""
        return self._at(segment.base)

    def count_topics_of(
        self, segment: Segment, opened: OpenSegment, first: int, stop: int
    ) -> Iterator[tuple[int, Mapping[str, int]]]:
        """How many messages of which topic each frame from `first` up to `stop` has: from the
        index, as far as it knows."""
        for number in range(first, stop):
            counts = opened.index.counts(number)
            if counts is None:
                counts = record.count_topics(self._rows(segment, opened, number).table)
            yield number, counts

    def count(
        self, start: int, end: int, wanted: Wanted, seconds: float
    ) -> tuple[int, int, int | None]:
        """How many messages with wanted topics there are, up to which offset they were counted in
        so many seconds, and when the oldest came. Whole frames are counted by the index."""
        at, end = max(start, self.start), min(end, self.end)
        total, until = 0, time.monotonic() + seconds
        oldest: int | None = None
        while at < end and time.monotonic() < until:
            segment, opened = self._at(at)
            number = opened.index.find(max(at, segment.base))
            if number >= len(opened.index):
                raise segment.damaged(at, segment.end, _HEADER_DAMAGED)
            base, stop = opened.index.bases[number], opened.index.bases[number + 1]
            counts = opened.index.counts(number) if at <= base and stop <= end else None
            if counts is None:
                batches, _ = self.read_flat(at, wanted, 1, min(stop, end))
                found = sum(map(len, batches))
            else:
                found = sum(count for topic, count in counts.items() if wanted(topic))
            if found and oldest is None:
                oldest = self._first_timestamp(at, min(stop, end), wanted)
            total, at = total + found, min(stop, end)
        return total, at, oldest

    def _first_timestamp(self, at: int, end: int, wanted: Wanted) -> int | None:
        while at < end:
            batches, at = self.read(at, wanted, 1, end)
            if batches:
                return batches[0].timestamp
        return None

    def _walk(
        self,
        offset: int,
        end: int,
        wanted: Wanted,
        max_bytes: int,
        take: _Take[_Item],
        part: "_Slice",
    ) -> tuple[list[_Item], int]:
        at, end = max(offset, self.start), min(end, self.end)
        items: list[_Item] = []
        try:
            while at < end:
                frames, following = self._step(at, end, wanted, part)
                for rows in frames:
                    found, at, size = take(rows, max(at, rows.base), max_bytes)
                    items += found
                    max_bytes -= size
                    if at < min(rows.end, end):  # it holds more than was asked for
                        self._frame_cache.put(at, rows)
                        return items, at
                    if max_bytes <= 0 or part.over():
                        return items, at
                at = following
                if part.over():
                    break
        except (LogDamaged, OSError):
            if not items:
                raise
        return items, at

    def _step(
        self, offset: int, end: int, wanted: Wanted, part: "_Slice"
    ) -> tuple[Iterator[FrameRows], int]:
        """The next frames, within one segment, that can hold something wanted from `offset` on,
        and where to go on behind them."""
        left = self._frame_cache.get(offset)
        if left is not None:
            return iter([left]), min(left.end, end)
        segment, opened = self._at(offset)
        index = opened.index
        first = index.find(max(offset, segment.base))
        if first == len(index):
            raise segment.damaged(offset, segment.end, _HEADER_DAMAGED)
        stop = min(index.find(end - 1) + 1, len(index))
        while first < stop and not index.may_hold(first, wanted):
            first += 1
            if part.over():
                return iter(()), min(index.bases[first], end)
        last, limit = first, index.positions[first] + _CHUNK_BYTES
        while last < stop and index.positions[last] < limit and index.may_hold(last, wanted):
            last += 1
        return self._load(segment, opened, first, last), min(index.bases[last], end)

    def _load(
        self, segment: Segment, opened: OpenSegment, first: int, last: int
    ) -> Iterator[FrameRows]:
        """The frames from `first` up to and without `last`, read in one go and checked."""
        if first == last:
            return
        positions, bases = opened.index.positions, opened.index.bases
        begin = positions[first]
        try:
            data = memoryview(opened.file.read(begin, positions[last] - begin))
        except OSError as error:
            where = f"segment {segment.name}, offsets {bases[first]} to {bases[last] - 1}"
            raise OSError(error.errno, f"{error.strerror} ({where})") from error
        for number in range(first, last):
            piece = data[positions[number] - begin : positions[number + 1] - begin]
            yield self._decode(segment, piece, bases[number], bases[number + 1])

    def _rows(self, segment: Segment, opened: OpenSegment, number: int) -> FrameRows:
        return next(self._load(segment, opened, number, number + 1))

    def _decode(self, segment: Segment, data: memoryview, base: int, end: int) -> FrameRows:
        fault, length, count = frame.check_header(data[: frame.HEADER.size], base, len(data))
        if fault is None and (length, count) != (len(data), end - base):
            fault = _HEADER_DAMAGED
        if fault is None and not frame.intact(data, self.identity):
            fault = "the checksum of a frame does not fit"
        if fault is not None:
            raise segment.damaged(base, end, fault)
        try:
            rows = FrameRows(bytes(data[frame.HEADER.size :]), base, count)
        except (pa.ArrowException, OSError) as error:
            raise segment.damaged(base, end, f"a frame cannot be decoded ({error})") from error
        if rows.lost:
            self._holes.add((base, end))
        return rows

    def _at(self, offset: int) -> tuple[Segment, OpenSegment]:
        """The segment that holds `offset`, or the first one if that is gone."""
        for _ in range(_LOOK_AGAIN):
            segments = self._segments
            segment = segments[max(bisect_right(segments, offset, key=_base) - 1, 0)]
            try:
                return segment, self._open_segments.get(segment)
            except Replaced:
                time.sleep(0.001)
                self._refresh()
        raise segment.damaged(segment.base, segment.end, "the file is missing")

    def _refresh(self) -> None:
        """Find out what has become of the segments. A writer knows."""


class _Slice:
    """What one read may take."""

    __slots__ = ("_courtesy", "_until", "_work_until")

    def __init__(self) -> None:
        self._courtesy = Courtesy()
        self._work_until = time.thread_time() + SLICE_SECONDS
        self._until = time.monotonic() + _LONGEST_SECONDS

    def over(self) -> bool:
        self._courtesy.show()
        return time.thread_time() > self._work_until or time.monotonic() > self._until


class OpenSegments:
    """The segments that were used last, opened. There can be more of them than a process may have
    open files, and their indexes need memory."""

    def __init__(self, identity: int) -> None:
        self._identity = identity
        self._lock = threading.Lock()
        self._opened: OrderedDict[Segment, OpenSegment] = OrderedDict()

    def get(self, segment: Segment) -> OpenSegment:
        """The segment, opened. Raises Replaced and LogDamaged."""
        held = segment.held
        if held is not None:
            return held
        with self._lock:
            opened = self._opened.get(segment)
            if opened is not None:
                self._opened.move_to_end(segment)
                return opened
        opened = open_segment(segment, self._identity)
        self.put(segment, opened)
        return opened

    def put(self, segment: Segment, opened: OpenSegment) -> None:
        with self._lock:
            self._opened[segment] = opened
            while len(self._opened) > _OPEN_SEGMENTS:
                self._opened.popitem(last=False)

    def drop(self, segment: Segment) -> None:
        with self._lock:
            self._opened.pop(segment, None)

    def clear(self) -> None:
        with self._lock:
            self._opened.clear()


class FrameCache:
    """Frames that a reader has not used up, by the offset it will come back for.

    A frame of a sealed segment holds more than most reads ask for; without this, each of them
    would decompress it again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: OrderedDict[int, FrameRows] = OrderedDict()
        self._bytes = 0

    def get(self, offset: int) -> FrameRows | None:
        with self._lock:
            rows = self._rows.get(offset)
            if rows is not None:
                self._rows.move_to_end(offset)
            return rows

    def put(self, offset: int, rows: FrameRows) -> None:
        with self._lock:
            if offset in self._rows:
                self._rows.move_to_end(offset)
                return
            self._rows[offset] = rows
            self._bytes += rows.size
            while self._bytes > _CACHE_BYTES and len(self._rows) > 1:
                self._bytes -= self._rows.popitem(last=False)[1].size

    def clear(self) -> None:
        with self._lock:
            self._rows.clear()
            self._bytes = 0


def _base(segment: Segment) -> int:
    return segment.base


def _everything(topic: str) -> bool:
    return True
