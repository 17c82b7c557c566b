"""What has to be remembered beside the log: positions of subscriptions and the state of queues.

They change with every proof of delivery, so changes are gathered in memory and written a few times
a second by a thread of its own. What a crash takes with it is delivered again.

    save_queue → dirty ── in slices ──▶ gathered ──▶ saver's thread ──▶ state.db

There can be very many queues, so their states are gathered in slices; one queue's is that of one
moment. What is gathered and not written yet belongs to whoever writes next.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from headwater.errors import LogUnavailable
from headwater.log.embedded.state import StateDatabase
from headwater.log.engine import Settled

logger = logging.getLogger(__name__)

# Well within the 100 ms that are promised, with time for the write.
GATHER_SECONDS = 0.05
# After a write that failed.
RETRY_SECONDS = 1.0
# So long they are gathered in one turn of the loop, but for one queue at least.
SLICE_SECONDS = 0.001
# The states of large queues take time to gather. It should be no more than this part of it.
GATHERING_SHARE = 0.05
LONGEST_PAUSE_SECONDS = 1.0

Snapshot = Callable[[], bytes | None]


def _deleted() -> None:
    """The state of a queue that is no more."""


class EmbeddedNotes:
    """Used in the event loop only."""

    def __init__(self, state: StateDatabase) -> None:
        self._loop = asyncio.get_running_loop()
        self._state = state
        self.warning = state.warning
        self._cursors = state.cursors()
        self._numbers = state.numbers()
        self._queues = state.queues()
        self._dirty_cursors: dict[str, int] = {}
        self._dirty_numbers: dict[str, int] = {}
        self._dirty_queues: dict[str, Snapshot] = {}
        self._gathered: dict[str, bytes | None] = {}  # to be written
        self._to_gather = 0  # so many of the dirty ones are waited for
        self._gathering_seconds = 0.0
        self._sync_next = False  # what is gathered is more than a position: see `_gather`
        self._saver = ThreadPoolExecutor(1, "log-state")
        self._timer: asyncio.TimerHandle | None = None
        self._pause = GATHER_SECONDS
        self._closed = False
        self._awaiting: list[Settled] = []  # who wants to know when all is saved
        self._flushing: asyncio.Task[None] | None = None
        self._failures = 0  # writes that failed
        #: Why the last write failed, if it did: what has changed since is in memory only.
        self.fault: str | None = None
        if state.fault is not None:
            self._retry(state.fault, [], [], [])

    def warn(self, sentence: str) -> None:
        logger.warning("%s", sentence)
        self.warning = sentence if self.warning is None else f"{self.warning}; {sentence}"

    def load_cursor(self, name: str) -> int | None:
        return self._cursors.get(name)

    def save_cursor(self, name: str, offset: int) -> None:
        self._cursors[name] = offset
        self._write_soon()
        self._dirty_cursors[name] = offset

    def load_number(self, name: str) -> int | None:
        return self._numbers.get(name)

    def save_number(self, name: str, value: int) -> None:
        self._numbers[name] = value
        self._write_soon()
        self._dirty_numbers[name] = value

    def load_queue(self, name: str) -> bytes | None:
        return self._queues.get(name)

    def save_queue(self, name: str, snapshot: Callable[[], bytes]) -> None:
        self._write_soon()
        self._dirty_queues[name] = snapshot

    def delete_queue(self, name: str) -> None:
        self._queues.pop(name, None)
        self._write_soon()
        self._dirty_queues[name] = _deleted

    def queue_names(self, prefix: str = "") -> list[str]:
        dirty = {name for name, each in self._dirty_queues.items() if each is not _deleted}
        return sorted(
            name
            for name in self._queues.keys() | dirty
            if name.startswith(prefix) and name.startswith("$") == prefix.startswith("$")
        )

    def when_saved(self, done: Settled) -> None:
        self._awaiting.append(done)
        if self._flushing is None:
            self._flushing = self._loop.create_task(self._flush_for_those())

    async def _flush_for_those(self) -> None:
        """One write for all that began to wait meanwhile."""
        while self._awaiting:
            awaiting, self._awaiting = self._awaiting, []
            error: LogUnavailable | None = None
            try:
                await self.flush()
            except LogUnavailable as failure:
                error = failure
            for done in awaiting:
                try:
                    done(error)
                except Exception:  # the others, and those to come, have nothing to do with it
                    logger.exception("what was to begin when it is saved has failed")
        self._flushing = None

    async def flush(self) -> None:
        failures = self._failures
        left = len(self._dirty_queues)
        # Between two slices, the timer may gather all the rest, and have it written before this.
        while left > 0 and self._dirty_queues:
            left -= self._gather(left)
            if left > 0:
                await asyncio.sleep(0)
        written = asyncio.wrap_future(self._write(sync=True))
        try:
            # Whoever waits may be cancelled; what others have noted must be written all the same.
            await asyncio.shield(written)
        except Exception as error:
            raise LogUnavailable(f"positions cannot be saved: {error}") from None
        if self._failures != failures:  # of a write before, with what is waited for
            raise LogUnavailable(f"positions cannot be saved: {self.fault or 'a write failed'}")

    async def close(self) -> None:
        if self._flushing is not None:
            await self._flushing
        while self._dirty_queues:
            self._gather(len(self._dirty_queues))
        self._write()
        self._closed = True
        await asyncio.to_thread(self._saver.shutdown)
        self._state.close()

    def _write_soon(self) -> None:
        if self._timer is None and not self._closed:
            pause = self._pause if self.fault is None else RETRY_SECONDS
            self._timer = self._loop.call_later(pause, self._begin)

    def _begin(self) -> None:
        """All that is dirty by now is written together."""
        self._to_gather = len(self._dirty_queues)
        self._go_on()

    def _go_on(self) -> None:
        self._to_gather -= self._gather(self._to_gather)
        if self._to_gather > 0 and self._dirty_queues:
            self._timer = self._loop.call_later(0, self._go_on)
        else:
            self._write()

    def _gather(self, most: int) -> int:
        """Gather for a slice, the oldest changes first; returns how many there were."""
        began, count = time.perf_counter(), 0
        while count < most and self._dirty_queues:
            name = next(iter(self._dirty_queues))
            content = self._gathered[name] = self._dirty_queues.pop(name)()
            if content is not None:
                # A position that is lost with the machine's power is that of a moment before. But a
                # queue that is lost would begin anew, behind what it was to deliver.
                self._sync_next |= name not in self._queues
                self._queues[name] = content
            count += 1
            if time.perf_counter() - began >= SLICE_SECONDS:
                break
        self._gathering_seconds += time.perf_counter() - began
        return count

    def _write(self, sync: bool = False) -> "Future[None]":
        """Have written what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pause = min(self._gathering_seconds / GATHERING_SHARE, LONGEST_PAUSE_SECONDS)
        self._pause = max(GATHER_SECONDS, pause)
        self._gathering_seconds = 0.0
        cursors, self._dirty_cursors = self._dirty_cursors, {}
        numbers, self._dirty_numbers = self._dirty_numbers, {}
        queues, self._gathered = self._gathered, {}
        # What is noted as a number has no older value that would do.
        sync, self._sync_next = sync or self._sync_next or bool(numbers), False
        if self._dirty_queues:  # since then, or what a flush did not wait for
            self._write_soon()
        return self._saver.submit(self._save, cursors, numbers, queues, sync)

    def _save(
        self,
        cursors: dict[str, int],
        numbers: dict[str, int],
        queues: dict[str, bytes | None],
        sync: bool,
    ) -> None:
        """In the saver's thread."""
        try:
            self._state.save(cursors, numbers, queues, sync)
        except Exception as error:
            fault = str(error) if isinstance(error, sqlite3.Error) else repr(error)
            names = list(cursors), list(numbers), list(queues)
            self._loop.call_soon_threadsafe(self._retry, fault, *names)
            raise
        if self.fault is not None:
            self._loop.call_soon_threadsafe(self._recovered)

    def _recovered(self) -> None:
        if self.fault is not None:
            self.fault = None
            logger.warning("positions can be saved again")

    def _retry(self, fault: str, cursors: list[str], numbers: list[str], queues: list[str]) -> None:
        if self.fault != fault:
            logger.error("positions were not saved, will retry: %s", fault)
        self.fault = fault
        self._failures += 1
        self._sync_next = True  # there may be something among it that needs to be
        for name in cursors:  # what has changed since is newer
            self.save_cursor(name, self._cursors[name])
        for name in numbers:
            self.save_number(name, self._numbers[name])
        for name in queues:
            if name not in self._dirty_queues:
                content = self._queues.get(name)  # None: it is deleted
                self._dirty_queues[name] = lambda content=content: content  # type: ignore[misc]
        self._write_soon()
