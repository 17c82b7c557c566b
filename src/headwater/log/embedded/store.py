"""The writing half of a log: one directory, one process, one thread that appends.

    append, rewind, retain          the writer's thread
    sync                            any thread
    unsealed, seal                  any other thread, one at a time
    read, read_flat, offset_at      any number of threads (see reader.py)

Rules:
- What `append` was given is in the log as a whole or not at all, whatever the disk says; after an
  error the store is as it was before.
- Nothing is durable before `sync` has returned, or an `append` that says so.
- What is durable is noted before anyone can rely on it, and what will be dropped before it is.
- Behind the last frame of the active segment there may be room: zeros, written ahead of small
  frames. To sync what overwrites them takes half as long, because the file does not grow. A segment
  that another one follows, or that was closed, ends with its last frame.
- The row of segments changes under a lock; readers see it change in one step.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from headwater.files import sync_directory
from headwater.log import record
from headwater.log.embedded import frame, lock, recovery, sealing
from headwater.log.embedded import segment as segments
from headwater.log.embedded.index import topics_of
from headwater.log.embedded.lock import Extent, Lock
from headwater.log.embedded.reader import LogReader
from headwater.log.embedded.reserve import Reserve
from headwater.log.embedded.segment import OpenSegment, Replaced, Segment
from headwater.message import Batch
from headwater.timings import Timings

SEGMENT_BYTES = 64 << 20

# A frame is made, read and decoded as a whole: whoever reads the log has one in memory.
_FRAME_BYTES = 4 << 20

# Room is made for frames that are smaller than this: of larger ones, the disk has enough to do.
_SMALL_BYTES = 32 << 10
_ROOM = memoryview(bytes(256 << 10))


class SyncFailed(OSError):
    """The disk did not take what was written: what it was, the system may have forgotten."""


class LogStore(LogReader):
    """A log that this process writes."""

    def __init__(
        self, directory: Path, segment_bytes: int, lock: Lock, found: recovery.Recovered
    ) -> None:
        super().__init__(found.segments, found.identity)
        #: Bytes of an unfinished write that opening has cut off.
        self.torn = found.torn
        self.unnoted = found.unnoted
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._lock = lock
        self._changing = threading.Lock()
        self._reserve = Reserve()
        self._untidy = False  # bytes of a failed write may lie behind the last frame
        self._room_stop = self._active()[0].size  # where the room behind the last frame ends
        #: Everything before this offset is on the disk.
        self.durable = self.end
        #: How long it took to have something on the disk.
        self.syncs = Timings()
        #: Called before a new segment begins, after which `rewind` cannot go back behind it.
        self.before_roll: Callable[[], None] = lambda: None
        self._note()

    @classmethod
    def open(cls, directory: Path, segment_bytes: int = SEGMENT_BYTES) -> "LogStore":
        """Recover the log in `directory`, or begin one. Raises LogLocked and LogDamaged."""
        held = Lock(directory)
        try:
            identity = held.identity()
            noted = lock.extent(directory, identity)
            found = recovery.recover(directory, identity, noted)
            return cls(directory, segment_bytes, held, found)
        except BaseException:
            held.release()
            raise

    def close(self) -> None:
        """Make everything durable and let go of the log."""
        try:
            self.sync()
            active, opened = self._active()
            with contextlib.suppress(OSError):  # opening it does the same
                opened.file.cut(active.size)
        finally:
            self._segments[-1].held = None
            self._reserve.close()
            self._lock.release()

    def append(self, batches: Sequence[Batch], *, durably: bool = False) -> bool:
        """Write the batches behind what is there. Raises OSError.

        If they begin before the end, what has their offsets is dropped: it was never durable, and
        its offsets were given out again.

        With `durably` they are synced in the same step, if they fit into the room and all before
        them is durable. Returns whether they were.
        """
        if batches[0].offset < self.end or self._untidy:
            self.rewind(batches[0].offset)
        if batches[0].offset != self.end:
            raise ValueError(f"offset {batches[0].offset} where {self.end} should be")
        groups = _frames(batches)
        if len(groups) > 1:
            self._make_room(sum([batch.run.size for batch in batches]))
            self._write_all(groups)
            return False
        message = record.encode(batches)
        self._make_room(frame.HEADER.size + len(message))
        return self._write(batches, message, durably)

    def _write(self, batches: Sequence[Batch], message: memoryview, durably: bool) -> bool:
        active, opened = self._active()
        parts = self._parts(batches, message)
        stop = active.size + len(parts[0]) + len(parts[1])
        durably = durably and self.durable == active.end and stop <= self._room_stop
        began = time.perf_counter()
        try:
            if durably:
                opened.file.write_durably(active.size, parts)
                self.syncs.add(time.perf_counter() - began)
            else:
                opened.file.write(active.size, parts)
        except OSError:
            self._take_back(active)
            raise
        small = stop - active.size <= _SMALL_BYTES
        self._show(active, opened, [(batches, stop)])
        if stop > self._room_stop:
            self._room_stop = stop
            if small:
                self._keep_room(opened, stop)
        if durably:
            self._note_durable(active.end)
        return durably

    def _write_all(self, groups: Sequence[Sequence[Batch]]) -> None:
        """A frame for each group. One of them is in memory at a time, however many there are."""
        active, opened = self._active()
        written: list[tuple[Sequence[Batch], int]] = []
        stop = active.size
        try:
            for group in groups:
                parts = self._parts(group, record.encode(group))
                begin, stop = stop, stop + len(parts[0]) + len(parts[1])
                opened.file.write(begin, parts)
                written.append((group, stop))
        except Exception:
            self._take_back(active)
            raise
        self._show(active, opened, written)
        self._room_stop = max(self._room_stop, stop)

    def _parts(self, batches: Sequence[Batch], message: memoryview) -> list[memoryview]:
        base, count = batches[0].offset, batches[-1].end - batches[0].offset
        head = frame.header(message, base, self.durable, count, self.identity)
        return [memoryview(head), memoryview(message)]

    def _show(
        self, active: Segment, opened: OpenSegment, frames: Sequence[tuple[Sequence[Batch], int]]
    ) -> None:
        """Have readers see frames that are written, given with where they stop: all in one step."""
        for group, stop in frames:
            topics, counts = topics_of(group)
            opened.index.add(group[-1].end, stop, group[0].timestamp, topics, counts)
        last, stop = frames[-1]
        active.size, active.last_timestamp = stop, last[-1].timestamp
        active.end = last[-1].end  # last: from here on readers see it

    def _take_back(self, active: Segment) -> None:
        """Forget what was written behind the last frame that readers see."""
        self._untidy = True  # in case that rewinding fails too
        with contextlib.suppress(OSError):
            self.rewind(active.end)

    def _keep_room(self, opened: OpenSegment, position: int) -> None:
        room = _ROOM[: max(self._segment_bytes - position, 0)]
        with contextlib.suppress(OSError):  # what it is for has been written
            opened.file.write(position, [room])
            self._room_stop = position + len(room)

    def sync(self) -> None:
        """Have everything appended so far on the disk. Raises OSError. Any thread may do this."""
        end = self.end  # first: a segment that begins now makes the one before it durable
        began = time.perf_counter()
        _sync(self._active()[1])
        self.syncs.add(time.perf_counter() - began)
        self._note_durable(end)

    def _note_durable(self, end: int) -> None:
        with self._changing:  # against a rewind meanwhile
            self.durable = max(self.durable, min(end, self.end))
            self._note()

    def rewind(self, end: int) -> None:
        """Drop everything from `end` on, which must begin a frame of the active segment."""
        active, opened = self._active()
        index = opened.index
        frames = index.find(end)
        if index.bases[max(frames, 0)] != end:
            raise ValueError(f"the log cannot go back to offset {end}")
        # What fails below is done again before anything is appended; so all that is in memory goes
        # first, and together.
        self._untidy = True
        with self._changing:
            active.end = end
            self.durable = min(self.durable, end)
        self._frame_cache.clear()
        index.cut(frames)
        active.size = index.stop
        with self._changing:
            self._note()
        os.ftruncate(opened.file.fd, active.size)
        self._room_stop = active.size
        self._untidy = False

    def retain(self, max_bytes: int | None, older_than_us: int | None) -> tuple[int, int] | None:
        """Drop the oldest segments while the log has more bytes than `max_bytes`, and those whose
        records all came before `older_than_us`. The range of offsets dropped, if any.
        """
        first = self.start
        with self._changing:
            expired = self._expired(max_bytes, older_than_us)
            if not expired:
                return None
            kept = self._segments[len(expired) :]
            self._lock.note(Extent(kept[0].base, self.durable), self.identity)
            # First: if the machine crashed with the file gone and this not written, it would look
            # as if the file had been lost.
            self._lock.sync()
            self._segments = kept
            for oldest in expired:
                oldest.path.unlink(missing_ok=True)
                self._open_segments.drop(oldest)
        sync_directory(self._directory)
        return first, self.start

    def _expired(self, max_bytes: int | None, older_than_us: int | None) -> list[Segment]:
        """The oldest segments that are to be dropped; never the last one."""
        expired, size = [], self.size
        for segment in self._segments[:-1]:
            too_large = max_bytes is not None and size > max_bytes
            too_old = older_than_us is not None and segment.last_timestamp < older_than_us
            if not too_large and not too_old:
                break
            expired.append(segment)
            size -= segment.size
        return expired

    def unsealed(self) -> list[Segment]:
        """The segments that could be sealed, oldest first."""
        return [segment for segment in self._segments[:-1] if not segment.sealed]

    def seal(self, segment: Segment, pause: Callable[[float], None]) -> None:
        """Replace the segment's file by a smaller one. Raises OSError and LogDamaged.

        It works in steps of some milliseconds and calls `pause` with the seconds that each took;
        what `pause` raises ends the work, and the segment stays as it is.
        """
        try:
            opened = self._open_segments.get(segment)
        except Replaced:
            return  # retention was faster
        sealed, temporary = sealing.seal(segment, opened, self.identity, pause)
        with self._changing:
            if segment not in self._segments:
                temporary.unlink()
                return
            os.replace(temporary, segment.path)
            self._segments = tuple(sealed if s is segment else s for s in self._segments)
        self._open_segments.drop(segment)
        sync_directory(self._directory)

    def _note(self) -> None:
        self._lock.note(Extent(self.start, self.durable), self.identity)

    def _active(self) -> tuple[Segment, OpenSegment]:
        """Any thread may ask, also while a new segment begins."""
        while True:
            active = self._segments[-1]
            if (opened := active.held) is not None:
                return active, opened
            assert active is not self._segments[-1], "the store is closed"

    def _make_room(self, size: int) -> None:
        """Begin a new segment if the active one would grow too large."""
        active, opened = self._active()
        if active.size + size <= self._segment_bytes or active.end == active.base:
            return
        self.before_roll()
        _finish(opened, active.size)
        self._room_stop = active.size
        with self._changing:
            self.durable = active.end
            self._note()
        self._open_segments.put(active, opened)
        begin = partial(segments.create, self._directory, active.end, self.identity)
        new = self._reserve.spend(begin, self._open_segments.clear)
        with self._changing:
            self._segments = (*self._segments, new)
        self._room_stop = new.size
        active.held = None


def _sync(opened: OpenSegment) -> None:
    try:
        opened.file.sync()
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror) from error


def _finish(opened: OpenSegment, size: int) -> None:
    """Have the whole file on the disk, without the room behind its last frame."""
    try:
        opened.file.cut(size)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror) from error


def _frames(batches: Sequence[Batch]) -> list[Sequence[Batch]]:
    """The batches in groups, one for each frame: almost always one for all of them."""
    groups: list[Sequence[Batch]] = []
    begin = size = 0
    for number, batch in enumerate(batches):
        if size and size + batch.run.size > _FRAME_BYTES:
            groups.append(batches[begin:number])
            begin, size = number, 0
        size += batch.run.size
    groups.append(batches[begin:])
    return groups
