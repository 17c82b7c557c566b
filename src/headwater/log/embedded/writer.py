"""The one thread that writes the log.

It takes all that is queued, up to a limit, writes it as one frame, and leaves the rest to the
syncer. Under load the groups grow by themselves: whatever arrives meanwhile is the next group.

After a failure, nothing that was queued behind it may be written either, because its offsets will
be given out again. So the writer drops everything until the engine, which has heard of the failure,
puts Resume into the queue.
"""

import errno
import logging
import queue
import time
from collections.abc import Callable

from headwater.log.embedded.store import LogStore, SyncFailed
from headwater.log.embedded.syncer import STOP, Resume, Syncer
from headwater.log.embedded.threads import Died, LogThread
from headwater.message import Batch, weight_of

logger = logging.getLogger(__name__)

# A group is closed at this weight. Measured: at 1 MiB the work stays in the processor's caches and
# takes 0.8 ms a MiB; at 8 MiB it takes 1.8. Of tiny messages it is a thousand: very many would hold
# the interpreter for long, and the event loop when they are reported.
GROUP_BYTES = 1024 * 1024
RETENTION_SECONDS = 1.0
# The next group of small messages is soon written, so it can wait until this one is synced.
SMALL_WEIGHT = 256 * 1024


class LogWriter(LogThread):
    def __init__(
        self, store: LogStore, syncer: Syncer, retain: Callable[[], None], died: Died
    ) -> None:
        super().__init__("log-writer", died)
        self._store = store
        self._syncer = syncer
        self._retain = retain
        self._queue: queue.SimpleQueue[list[Batch] | Resume | str] = queue.SimpleQueue()
        self._dropping = False
        self._retained_at = 0.0
        # What is not reported yet may be taken back, but not into the segment before.
        store.before_roll = syncer.settle

    def submit(self, batches: list[Batch]) -> None:
        self._queue.put(batches)

    def resume(self, offset: int) -> None:
        """Go on at `offset`, after a failure was reported."""
        self._queue.put(Resume(offset))

    def stop(self) -> None:
        """Write what is queued, then end."""
        self._queue.put(STOP)

    def work(self) -> None:
        stopping = False
        try:
            while not stopping:
                batches, stopping = self._take()
                if batches and not self._syncer.failing:
                    self._write(batches)
                self._keep_retention()
        finally:
            self._syncer.stop()
            self._syncer.join()  # its reports come before that of the end of this thread

    def _take(self) -> tuple[list[Batch], bool]:
        """The next group: all that is queued, up to a limit."""
        group: list[Batch] = []
        size = 0
        block = True
        while size < GROUP_BYTES:
            try:
                item = self._queue.get(block, RETENTION_SECONDS)
            except queue.Empty:
                break
            block = False
            if item is STOP:
                return group, True
            if isinstance(item, Resume):
                self._go_on(item)
                group, size = [], 0
            elif isinstance(item, list) and not self._dropping:
                group += item
                size += weight_of(item)
        return group, False

    def _write(self, batches: list[Batch]) -> None:
        try:
            alone = _are_single(batches) and self._may_wait(batches)
            durable = self._store.append(batches, durably=alone)
        except OSError as error:
            if isinstance(error, SyncFailed) and self._syncer.reports_early:
                raise  # of messages that were reported as stored, some may be gone
            self._dropping = True
            self._syncer.not_written(error)
        except Exception as error:
            # A bug, or a record that nothing should have let through. Its publisher hears that it
            # was not stored; everyone else goes on.
            logger.exception("a group of messages could not be written")
            self._dropping = True
            self._syncer.not_written(OSError(errno.EINVAL, str(error)))
        else:
            if durable:
                self._syncer.stored(batches)
            elif self._may_wait(batches):
                self._syncer.cover_now(batches)
            else:
                self._syncer.written(batches)

    def _may_wait(self, batches: list[Batch]) -> bool:
        """Whether nothing is lost if this thread waits for the disk itself."""
        return self._syncer.idle and self._queue.empty() and weight_of(batches) <= SMALL_WEIGHT

    def _go_on(self, resume: Resume) -> None:
        self._dropping = False
        self._syncer.resume(resume)
        try:
            # Until it has heard that, what comes next would be taken for what was refused, and
            # nobody would ever be answered.
            self._syncer.settle()
        except OSError as error:
            logger.error("the log cannot go on: %s", error.strerror)
        if resume.offset < self._store.end:
            try:
                self._store.rewind(resume.offset)  # what was refused is not found after a crash
            except OSError as error:
                logger.error("the log could not be cut back: %s", error.strerror)

    def _keep_retention(self) -> None:
        if time.monotonic() < self._retained_at + RETENTION_SECONDS:
            return
        self._retained_at = time.monotonic()
        try:
            self._retain()
        except OSError as error:
            logger.error("retention failed: %s", error.strerror)


def _are_single(batches: list[Batch]) -> bool:
    """Whether each publisher has sent one message. One that has sent more probably goes on, and
    what it sends can be written while this is synced."""
    return batches[-1].end - batches[0].offset == len(batches)
