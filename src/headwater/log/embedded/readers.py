"""The threads that read the log for everyone. Who has read least lately goes first.

A read takes a slice of time at most, and whoever wants more asks again. So a reader that wants a
single message waits for a slice or two, however many others scan the whole log meanwhile.

Each reader has a clock, which moves on by the time that is spent on it. The next read is that of
the reader whose clock is furthest behind. Who comes, or comes back, begins with the time of the
read that was begun last: nobody saves up time by reading nothing. When nobody reads, all clocks
begin anew.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from time import perf_counter
from typing import Any, TypeVar

from headwater.log.embedded.reader import SLICE_SECONDS
from headwater.timings import Timings

T = TypeVar("T")

THREADS = 2
# Clocks that are not ahead are forgotten when there are so many of them.
MOST_CLOCKS = 1024


class _Read:
    """One piece of work for one reader."""

    __slots__ = ("asked_at", "clock", "future", "number", "reader", "work")

    def __init__(self, reader: Hashable, work: Callable[[], Any]) -> None:
        self.reader = reader
        self.work = work
        # Not a future of threads, which asyncio ties to its own in a cycle: the collector would
        # find those of many readers at once.
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.asked_at = perf_counter()
        self.clock = 0.0
        self.number = 0

    def end(self, result: Any, error: BaseException | None) -> None:
        """Tell whoever waits, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, too
            self.future.get_loop().call_soon_threadsafe(_settle, self.future, result, error)

    def __lt__(self, other: "_Read") -> bool:
        return (self.clock, self.number) < (other.clock, other.number)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # whoever waited has gone
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class ReaderThreads:
    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "log-reader")
        self._lock = threading.Lock()  # for all that follows
        self._reads: list[_Read] = []  # a heap
        self._clocks: dict[Hashable, float] = {}  # of those who read, or have read lately
        self._now = 0.0  # the clock of the read that was begun last
        self._asked = 0
        self._running = 0
        #: How long reads had to wait for their turn, and how long they took then.
        self.waits = Timings()
        self.times = Timings()

    @property
    def waiting(self) -> int:
        """How many reads wait for their turn."""
        return len(self._reads)

    async def read(self, reader: Hashable, work: Callable[..., T], *arguments: Any) -> T:
        """Have work done for a reader, once it is its turn."""
        read = _Read(reader, partial(work, *arguments))
        with self._lock:
            read.clock = max(self._clocks.get(reader, 0.0), self._now)
            # As if it took a whole slice, for who asks twice at once; corrected when it is known.
            self._clocks[reader] = read.clock + SLICE_SECONDS
            self._asked += 1
            read.number = self._asked
            heappush(self._reads, read)
            if len(self._clocks) > MOST_CLOCKS:
                self._forget_clocks()
        self._threads.submit(self._work)
        found: T = await read.future
        return found

    def close(self) -> None:
        """Takes as long as the reads that were begun."""
        with self._lock:
            unread, self._reads = self._reads, []
        for read in unread:
            read.future.get_loop().call_soon_threadsafe(read.future.cancel)
        self._threads.shutdown(cancel_futures=True)

    def _work(self) -> None:
        """In one of the threads: as many calls as there are reads, and each takes the next one."""
        read = self._next()
        if read is None:
            return
        began = perf_counter()
        result, error = None, None
        try:
            result = read.work()
        except BaseException as failure:
            error = failure
        self._took(read, began)
        read.end(result, error)

    def _next(self) -> _Read | None:
        with self._lock:
            while self._reads:
                read = heappop(self._reads)
                if not read.future.cancelled():
                    self._now = max(self._now, read.clock)
                    self._running += 1
                    return read
                self._correct(read.reader, -SLICE_SECONDS)
        return None

    def _took(self, read: _Read, began: float) -> None:
        seconds = perf_counter() - began
        with self._lock:
            self._correct(read.reader, seconds - SLICE_SECONDS)
            self.waits.add(began - read.asked_at)
            self.times.add(seconds)
            self._running -= 1
            if not self._running and not self._reads:
                self._clocks.clear()
                self._now = 0.0

    def _correct(self, reader: Hashable, seconds: float) -> None:
        if reader in self._clocks:
            self._clocks[reader] += seconds

    def _forget_clocks(self) -> None:
        self._clocks = {
            reader: clock for reader, clock in self._clocks.items() if clock > self._now
        }
