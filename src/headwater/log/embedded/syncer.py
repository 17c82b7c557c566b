"""The thread that waits for the disk, so that the writer does not have to.

While one sync runs, the writer encodes and writes the next groups; the sync after it covers all of
them. Everything that concerns the engine is reported from here, in the order of the log: what has
become durable, and that a write or a sync has failed.

A small group that nothing follows yet is synced by the writer itself (`stored`, `cover_now`): to
wake a thread, which then waits for the interpreter, would take as long as the disk does.
"""

import errno
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from headwater.log.embedded.store import LogStore
from headwater.log.embedded.threads import Died, LogThread
from headwater.message import Batch

Sync = Literal["always", "interval", "os"]

# How often to see whether the syncer is still there, while it is waited for.
LOOK_SECONDS = 0.5


STOP: Final = "stop"


@dataclass(frozen=True, slots=True)
class Resume:
    """The engine has heard of a failure; what comes next begins at this offset."""

    offset: int


#: Written batches, why some were not written, where to go on, who waits for the report, or STOP.
Item = list[Batch] | OSError | Resume | threading.Event | str


class Syncer(LogThread):
    def __init__(
        self,
        store: LogStore,
        *,
        sync: Sync,
        interval: float,
        committed: Callable[[list[Batch]], None],
        failed: Callable[[OSError], None],
        died: Died,
    ) -> None:
        super().__init__("log-syncer", died)
        self._store = store
        self._sync = sync
        self._interval = interval
        self._committed = committed
        self._failed = failed
        self._queue: queue.SimpleQueue[Item] = queue.SimpleQueue()
        # How many items the writer has put in there, how many were taken out last, and how many are
        # dealt with.
        self._given = self._taken = self._dealt_with = 0
        #: A failure was reported; nothing is written or reported until the engine has heard of it.
        self.failing = False
        self._unsynced_since: float | None = None

    def written(self, batches: list[Batch]) -> None:
        """The writer has written a group."""
        self._give(batches)

    @property
    def idle(self) -> bool:
        """All that was written is reported, so the writer may sync and report what is next. Never
        where that is reported first and synced later."""
        return not self.reports_early and self._given == self._dealt_with

    def cover_now(self, batches: list[Batch]) -> None:
        """Of a writer that waits for the sync of what it has written, while this thread is idle."""
        self._report(batches, None)

    def stored(self, batches: list[Batch]) -> None:
        """These are durable: so the writer says while this thread is idle, or this thread."""
        self._committed(batches)

    def not_written(self, error: OSError) -> None:
        """The writer could not write a group."""
        self._give(error)

    def resume(self, resume: Resume) -> None:
        self._give(resume)

    def _give(self, item: Item) -> None:
        self._given += 1
        self._queue.put(item)

    def settle(self) -> None:
        """Wait until everything written so far is reported. Raises OSError if that failed."""
        reported = threading.Event()
        self._give(reported)
        while not reported.wait(LOOK_SECONDS):
            if not self.is_alive():
                raise OSError(errno.EIO, "the log is not synced any more")
        if self.failing:
            raise OSError(errno.EIO, "the log could not be synced")

    def stop(self) -> None:
        self._queue.put(STOP)

    @property
    def reports_early(self) -> bool:
        """Messages are reported as stored before they are synced: `log.sync` asks for that."""
        return self._sync != "always"

    def work(self) -> None:
        stopping = False
        while not stopping:
            batches, error, reported, stopping = self._take()
            self._report(batches, error)
            if reported is not None:
                reported.set()
            if stopping or self._patience() == 0:
                self._sync_late()
            self._dealt_with += self._taken

    def _report(self, batches: list[Batch], error: OSError | None) -> None:
        if batches and not self.reports_early:
            error = self._cover(batches) or error
        elif batches:
            self._committed(batches)
            self._unsynced_since = self._unsynced_since or time.monotonic()
        if error is not None:
            self.failing = True
            self._failed(error)

    def _take(self) -> tuple[list[Batch], OSError | None, threading.Event | None, bool]:
        """All that was written since, up to a failure, or to someone who waits for the report."""
        batches: list[Batch] = []
        block = True
        self._taken = 0
        while True:
            try:
                item = self._queue.get(block, self._patience())
            except queue.Empty:
                return batches, None, None, False
            block = False
            if item is STOP:
                return batches, None, None, True
            self._taken += 1
            if isinstance(item, threading.Event):
                return batches, None, item, False
            if isinstance(item, Resume):
                self.failing = False
            elif self.failing:
                continue
            elif isinstance(item, OSError):
                return batches, item, None, False
            elif isinstance(item, list):
                batches += item

    def _cover(self, batches: list[Batch]) -> OSError | None:
        """Make the batches durable, and report those that are."""
        error = None
        try:
            self._store.sync()
        except OSError as failure:
            error = failure
        # After a failed sync, what the beginning of a new segment made durable still is.
        durable = self._store.durable
        if stored := [batch for batch in batches if batch.end <= durable]:
            self.stored(stored)
        return error

    def _patience(self) -> float | None:
        """How long to wait for more before what was written should be synced."""
        if self._sync != "interval" or self._unsynced_since is None:
            return None
        return max(0.0, self._unsynced_since + self._interval - time.monotonic())

    def _sync_late(self) -> None:
        """A failure ends the thread, and so the broker: the system forgets what it could not write,
        a sync after it would succeed, and the messages have been reported as stored."""
        self._unsynced_since = None
        self._store.sync()
