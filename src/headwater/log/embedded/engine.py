"""The embedded engine: the log in files of this machine, no server needed.

    event loop                        threads                     files
    append → offset, tail ──queue──▶  writer: group → frame ────▶ log/*.log
                                        │
    committed ◀──────────────────────  syncer: sync, report ────▶ log/*.log
    read ◀─────────────────────────▶  readers ◀───────────────── log/*.log
    notes ─────────────────────────▶  saver ────────────────────▶ state.db

Everything public runs in the event loop, and only there are offsets given out. The threads get
finished batches and give back results.
"""

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from mypy_extensions import mypyc_attr

from headwater.clock import believed
from headwater.errors import LogUnavailable
from headwater.files import make_directories, sync_directory
from headwater.log.embedded.notes import EmbeddedNotes
from headwater.log.embedded.reader import SLICE_SECONDS
from headwater.log.embedded.readers import ReaderThreads
from headwater.log.embedded.sealer import Sealer
from headwater.log.embedded.state import StateDatabase
from headwater.log.embedded.statistics import LogStatistics
from headwater.log.embedded.store import LogStore
from headwater.log.embedded.syncer import Sync, Syncer
from headwater.log.embedded.tail import Tail
from headwater.log.embedded.writer import LogWriter
from headwater.log.engine import (
    CommitListener,
    Engine,
    Receipt,
    SegmentInfo,
    Settled,
    Topic,
    Wanted,
)
from headwater.message import Batch, Group, Run, weight_of
from headwater.timings import Timings

T = TypeVar("T")

logger = logging.getLogger(__name__)

# With this much waiting for the disk, publishers pause; they go on when half of it is written.
CONGESTED_BYTES = 8 * 1024 * 1024
# While nobody waits for an answer, what arrives within this time is written together, instead of a
# frame and a sync for every single message.
GATHER_SECONDS = 0.002
GATHER_BYTES = 128 * 1024
# After a failed write: how often to look for room, and how much of it there should be.
PROBE_SECONDS = 0.25
ROOM_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    sync: Sync = "always"
    sync_interval: float = 0.1
    segment_bytes: int = 64 * 1024 * 1024
    retention_bytes: int | None = None
    retention_age: float | None = None
    #: How much of what is durable stays in memory: subscribers that are further behind read files.
    tail_bytes: int = 8 * 1024 * 1024


@mypyc_attr(allow_interpreted_subclasses=True)
class EmbeddedEngine(Engine):
    """Made by `open`."""

    def __init__(
        self, directory: Path, settings: LogSettings, store: LogStore, notes: EmbeddedNotes
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._directory = directory
        self._settings = settings
        self._store = store
        self.notes = self._own_notes = notes
        self._listeners: list[CommitListener] = []
        self._watermark = self._end = store.end
        self._timestamp = store.last_timestamp
        self._tail = Tail(settings.tail_bytes)
        self._fresh: list[Batch] = []  # appended, and not handed to the writer yet
        self._fresh_weight = 0
        self._handing_over: asyncio.Handle | None = None
        self._hurrying = False
        self._trimming: asyncio.Handle | None = None
        # Who waits for a batch, by its end: its publisher, and others.
        self._publishers: deque[Receipt] = deque()
        self._waiting: dict[int, list[Settled]] = {}
        self._relieved: list[Callable[[], None]] = []
        self._backlog = 0
        self._refusal: str | None = None
        self._dead = False  # it refuses for good
        self._on_death: list[Callable[[str], None]] = []
        self._readers = ReaderThreads()
        self._sealer = Sealer(store, self._thread_died)
        self._statistics = LogStatistics(store)
        self._syncer = Syncer(
            store,
            sync=settings.sync,
            interval=settings.sync_interval,
            committed=self._in_loop(self._committed),
            failed=self._in_loop(self._failed),
            died=self._thread_died,
        )
        self._writer = LogWriter(store, self._syncer, self._retain, self._thread_died)
        self._syncer.start()
        self._writer.start()
        self._sealer.start()

    @classmethod
    async def open(cls, directory: Path, settings: LogSettings) -> Self:
        """Recover the log in `directory`, or begin one."""

        def open_files() -> tuple[LogStore, StateDatabase]:
            make_directories(directory)
            sync_directory(directory.parent)  # a crash may have come between the two
            store = LogStore.open(directory / "log", settings.segment_bytes)
            if store.torn:
                logger.warning("cut off %d bytes of a write that was not finished", store.torn)
            if store.unnoted:
                logger.warning(
                    "log/LOCK did not tell how long the log was (it is new, or an earlier version "
                    "wrote it): if segments are missing at its end, nobody has noticed"
                )
            try:
                state = StateDatabase(directory / "state.db", store.identity, store.end)
            except BaseException:
                store.close()
                raise
            if state.warning is not None:
                logger.warning("%s", state.warning)
            return store, state

        store, state = await asyncio.to_thread(open_files)
        return cls(directory, settings, store, EmbeddedNotes(state))

    async def close(self) -> None:
        self._hand_over()
        self._writer.stop()
        self._sealer.stop()
        await asyncio.to_thread(self._writer.join)
        await asyncio.to_thread(self._syncer.join)
        await asyncio.to_thread(self._sealer.join)
        await asyncio.sleep(0)  # the syncer's last report is in the loop by now
        if self._dead and self._store.end > self._watermark:
            with contextlib.suppress(OSError, ValueError):
                self._store.rewind(self._watermark)  # its publishers were refused
        await self._own_notes.close()
        await asyncio.to_thread(self._readers.close)
        try:
            self._store.close()
        except OSError:
            if not self._dead:  # otherwise the reason is known
                raise

    def attach(self, listener: CommitListener) -> None:
        self._listeners.append(listener)

    def _in_loop(self, function: Callable[[T], None]) -> Callable[[T], None]:
        def report(result: T) -> None:
            self._loop.call_soon_threadsafe(function, result)

        return report

    # Writing

    @property
    def start(self) -> int:
        return self._store.start

    @property
    def watermark(self) -> int:
        return self._watermark

    @property
    def end(self) -> int:
        return self._end

    @property
    def timestamp(self) -> int:
        return self._timestamp

    @property
    def congested(self) -> bool:
        return self._backlog > CONGESTED_BYTES

    @property
    def refusal(self) -> str | None:
        return self._refusal

    @property
    def syncs(self) -> Timings:
        return self._store.syncs

    @property
    def readers(self) -> ReaderThreads:
        return self._readers

    def segments(self) -> list[SegmentInfo]:
        return [
            SegmentInfo(each.base, each.end, each.size, each.last_timestamp, each.sealed)
            for each in self._store.segments
        ]

    def check_writable(self) -> None:
        if self._refusal is not None:
            raise LogUnavailable(self._refusal)

    def append(self, run: Run, receipt: Receipt | None = None) -> Batch:
        self.check_writable()
        batch = self._place(run)
        if receipt is not None:
            receipt.end = batch.end
            self._publishers.append(receipt)
        if self._fresh_weight > GATHER_BYTES:
            # Now, not at the end of this turn: one turn can read megabytes, and the writer should
            # work on the first of them while the loop reads the rest.
            self._hand_over()
        elif self._handing_over is None:
            self._handing_over = self._loop.call_later(GATHER_SECONDS, self._hand_over)
        return batch

    def append_all(self, group: Group) -> Sequence[Batch]:
        self.check_writable()
        self._timestamp = max(self._timestamp, time.time_ns() // 1000)
        group.place(self._end, self._timestamp)
        self._end += group.count
        self._backlog += group.weight
        self._tail.add_all(group.batches, group.weight)
        self._fresh += group.batches
        self._hand_over()  # together, so the writer takes them together
        return group.batches

    def _place(self, run: Run) -> Batch:
        self._timestamp = max(self._timestamp, time.time_ns() // 1000)
        batch = Batch(self._end, self._timestamp, run)
        self._end = batch.end
        self._backlog += run.weight
        self._tail.add(batch)
        self._fresh.append(batch)
        self._fresh_weight += run.weight
        return batch

    def hurry(self) -> None:
        if self._hurrying or not self._fresh:
            return
        self._hurrying = True
        if self._handing_over is not None:
            self._handing_over.cancel()
        # At the end of this turn, so that sockets are written before the writer wakes up.
        self._handing_over = self._loop.call_soon(self._hand_over)

    def when_durable(self, offset: int, done: Settled) -> None:
        if offset <= self._watermark:
            done(None)
        else:
            self._waiting.setdefault(offset, []).append(done)

    def when_relieved(self, done: Callable[[], None]) -> None:
        if self.congested:
            self._relieved.append(done)
        else:
            done()

    def _hand_over(self) -> None:
        if self._handing_over is not None:
            self._handing_over.cancel()
            self._handing_over = None
        self._hurrying = False
        if self._fresh:
            self._writer.submit(self._fresh)
            self._fresh, self._fresh_weight = [], 0
            self._sealer.active_at = time.monotonic()

    def _committed(self, batches: list[Batch]) -> None:
        self._watermark = batches[-1].end
        self._settle(batches, None)
        for listener in self._listeners:
            listener.committed(batches)
        self._trim()
        self._lighten(batches)

    def _trim(self) -> None:
        if not self._tail.trim(self._watermark) and self._trimming is None:
            self._trimming = self._loop.call_soon(self._trim_on)

    def _trim_on(self) -> None:
        self._trimming = None
        self._trim()

    def _settle(self, batches: list[Batch], error: LogUnavailable | None) -> None:
        """Tell those who wait for these batches, in the order in which they began to."""
        publishers, waiting = self._publishers, self._waiting
        ends = [batch.end for batch in (batches if waiting else batches[-1:])]
        if len(waiting) < len(ends):  # there can be very many batches
            ends = sorted({ends[-1], *[end for end in waiting if end <= ends[-1]]})
        for end in ends:
            while publishers and publishers[0].end <= end:
                publishers.popleft().settled(error)
            for done in waiting.pop(end, ()):
                done(error)

    def _lighten(self, batches: list[Batch]) -> None:
        self._backlog -= weight_of(batches)
        if self._relieved and self._backlog <= CONGESTED_BYTES // 2:
            relieved, self._relieved = self._relieved, []
            for done in relieved:
                done()

    # A disk that does not take what is written

    def _failed(self, error: OSError) -> None:
        if self._dead:
            return
        why = "the disk is full" if error.errno == errno.ENOSPC else os.strerror(error.errno or 0)
        self._refusal = f"the log cannot be written: {why}"
        logger.error("%s; publishes are refused until that changes", self._refusal)
        lost = self._drop_unstored(self._refusal)
        self._writer.resume(self._watermark)
        self._loop.call_later(PROBE_SECONDS, self._probe, sum(batch.run.size for batch in lost))

    def _drop_unstored(self, why: str) -> list[Batch]:
        """What is not durable will not be: its publishers hear why."""
        self._fresh, self._fresh_weight = [], 0
        self._end = self._watermark
        lost = self._tail.rewind(self._watermark)
        for listener in self._listeners:
            listener.rewound(self._watermark)
        self._settle(lost, LogUnavailable(why))
        self._lighten(lost)
        return lost

    def _probe(self, size: int) -> None:
        if self._dead:
            return
        room = os.statvfs(self._directory)
        if room.f_bavail * room.f_frsize < size + ROOM_BYTES:
            self._loop.call_later(PROBE_SECONDS, self._probe, size)
            return
        self._refusal = None
        logger.warning("the log can be written again")

    # What ends the broker

    def when_dead(self, done: Callable[[str], None]) -> None:
        if self._dead:
            done(self._refusal or "")
        else:
            self._on_death.append(done)

    def give_up(self, why: str) -> None:
        if self._dead:
            return
        self._dead = True
        self._refusal = why
        for done in self._on_death:
            done(why)

    def _thread_died(self, name: str, error: BaseException) -> None:
        """In that thread."""
        why = error.strerror if isinstance(error, OSError) else str(error)
        sentence = f"the log has failed: {name} ended by {type(error).__name__} ({why})"
        act = self.give_up if name == self._sealer.name else self._stop_working
        with contextlib.suppress(RuntimeError):  # the loop has ended, too
            self._loop.call_soon_threadsafe(act, sentence)

    def _stop_working(self, why: str) -> None:
        """Nothing becomes durable any more."""
        self._drop_unstored(why)
        self.give_up(why)

    # Reading

    def rest(self) -> None:
        self._tail.clear(self._watermark)

    def recent(self, offset: int) -> Batch | None:
        return self._tail.find(offset)

    async def offset_at(self, timestamp: int, reader: Hashable = None) -> int:
        found = await self._readers.read(reader, self._store.offset_at, timestamp)
        return min(found, self._watermark)

    async def read(
        self, offset: int, wanted: Wanted, max_bytes: int, reader: Hashable = None
    ) -> tuple[list[Batch], int]:
        store = self._store
        return await self._readers.read(
            reader, store.read, offset, wanted, max_bytes, self._watermark
        )

    async def count(
        self,
        offset: int,
        wanted: Wanted,
        seconds: float,
        end: int | None = None,
        reader: Hashable = None,
    ) -> tuple[int, int, int | None]:
        stop = self._watermark if end is None else min(end, self._watermark)
        total, oldest, until = 0, None, time.monotonic() + seconds
        while offset < stop and time.monotonic() < until:
            found, offset, first = await self._readers.read(
                reader, self._store.count, offset, stop, wanted, min(seconds, SLICE_SECONDS)
            )
            total += found
            oldest = first if oldest is None else oldest
        return total, offset, oldest

    def _retain(self) -> None:
        """Called by the writer's thread, now and then."""
        age = self._settings.retention_age
        oldest = None if age is None else int((believed() - age) * 1e6)
        dropped = self._store.retain(self._settings.retention_bytes, oldest)
        if dropped is not None:
            logger.info("retention dropped the offsets %d to %d", dropped[0], dropped[1] - 1)

    # For threads that read ranges

    def read_flat(
        self, offset: int, wanted: Wanted | None, max_bytes: int, end: int
    ) -> tuple[list[Any], int]:
        return self._store.read_flat(offset, wanted, max_bytes, min(end, self._watermark))

    def split(self, start: int, end: int, size: int) -> list[tuple[int, int, int]]:
        return self._statistics.split(max(start, self.start), min(end, self._watermark), size)

    def topics(self) -> dict[str, Topic]:
        return self._statistics.topics()
