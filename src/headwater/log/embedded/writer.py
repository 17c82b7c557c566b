"""The one thread that writes the log.

It takes all that is queued, writes it as one frame, syncs, and reports. Under load the groups grow
by themselves: whatever arrives during a sync is the next group.

After a write that failed, nothing that was queued behind it may be written either, because its
offsets will be given out again. So the writer drops everything until the engine, which has heard of
the failure, puts RESUME into the queue.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Literal

from headwater.log.embedded.store import Store
from headwater.message import Batch

logger = logging.getLogger(__name__)

Sync = Literal["always", "interval", "os"]

# A group is closed at this size, so that one frame stays a reasonable unit of reading.
GROUP_BYTES = 1024 * 1024
RETENTION_SECONDS = 1.0


class _Signal(Enum):
    RESUME = "resume"
    STOP = "stop"


class Writer(threading.Thread):
    def __init__(
        self,
        store: Store,
        *,
        sync: Sync,
        sync_interval: float,
        retain: Callable[[], None],
        committed: Callable[[list[Batch]], None],
        failed: Callable[[OSError], None],
    ) -> None:
        super().__init__(name="log-writer", daemon=True)
        self._store = store
        self._sync = sync
        self._sync_interval = sync_interval
        self._retain = retain
        self._committed = committed
        self._failed = failed
        self._queue: queue.SimpleQueue[list[Batch] | _Signal] = queue.SimpleQueue()
        self._dropping = False
        self._unsynced_since: float | None = None
        self._retained_at = 0.0

    def submit(self, batches: list[Batch]) -> None:
        self._queue.put(batches)

    def resume(self) -> None:
        self._queue.put(_Signal.RESUME)

    def stop(self) -> None:
        """Write what is queued, then end."""
        self._queue.put(_Signal.STOP)

    def run(self) -> None:
        stopping = False
        while not stopping:
            batches, stopping = self._take()
            if batches:
                self._write(batches)
            self._keep_house(stopping)

    def _take(self) -> tuple[list[Batch], bool]:
        """The next group: all that is queued, up to a limit."""
        group: list[Batch] = []
        size = 0
        block = True
        while size < GROUP_BYTES:
            try:
                item = self._queue.get(block, self._patience())
            except queue.Empty:
                break
            block = False
            if item is _Signal.STOP:
                return group, True
            if item is _Signal.RESUME:
                self._dropping = False
            elif isinstance(item, list) and not self._dropping:
                group += item
                size += sum([batch.run.size for batch in item])
        return group, False

    def _patience(self) -> float:
        if self._unsynced_since is None or self._sync != "interval":
            return RETENTION_SECONDS
        return max(0.0, self._unsynced_since + self._sync_interval - time.monotonic())

    def _write(self, batches: list[Batch]) -> None:
        try:
            self._store.append(batches)
            if self._sync == "always":
                self._store.sync()
            elif self._unsynced_since is None:
                self._unsynced_since = time.monotonic()
        except OSError as error:
            self._dropping = True
            self._failed(error)
        else:
            self._committed(batches)

    def _keep_house(self, stopping: bool) -> None:
        now = time.monotonic()
        try:
            if self._unsynced_since is not None and (
                stopping
                or (self._sync == "interval" and now >= self._unsynced_since + self._sync_interval)
            ):
                self._unsynced_since = None
                self._store.sync()
            if now >= self._retained_at + RETENTION_SECONDS:
                self._retained_at = now
                self._retain()
        except OSError as error:
            logger.error("the log's upkeep failed: %s", error.strerror)
