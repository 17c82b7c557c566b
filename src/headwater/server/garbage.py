"""When the garbage collector looks at what.

Hardly anything in a broker is ever part of a cycle, and what is left of a client is let go of when
it leaves. So the collector finds next to nothing, and looking through everything that there is
takes 50 ms for a million objects: 10,000 connections, or the subscriptions of a few clients. Nobody
can interrupt it.

So what is young is collected as always, and what survives that is set aside (`gc.freeze`). All of
it is looked through only when nothing has been published for a while; or, where that never happens,
once a day. A quiet moment is also used to give memory back to the system: the newest messages are
let go of, because a few of them keep whole blocks of memory from being free, and Arrow and the C
library are asked for what they have kept for later.
"""

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter
from typing import Any

import pyarrow as pa

logger = logging.getLogger(__name__)

# A collection looks at what has come since the last one and is still there: not too much of it.
YOUNG = 20_000
MIDDLE = 4
# How often to see whether it is quiet, and how often everything is looked through then, or else.
LOOK_SECONDS = 5.0
QUIET_SECONDS = 600.0
LONGEST_SECONDS = 86_400.0


def settle() -> None:
    """Set aside what there is, and from now on what survives. Call it before the loop begins."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, 1_000_000)
    gc.callbacks.append(_set_aside)


def unsettle() -> None:
    """As it was before."""
    gc.callbacks.remove(_set_aside)
    gc.unfreeze()


def _set_aside(phase: str, info: dict[str, Any]) -> None:
    if phase == "stop" and info["generation"] > 0:
        gc.freeze()


class FullCollections:
    """Looks through everything now and then. `done` counts what the broker does: while it grows,
    someone may have to wait. `rest` is called before memory is given back."""

    def __init__(self, done: Callable[[], int], rest: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._done, self._rest = done, rest
        self._seen = done()
        self._trimmed = done()  # what it was when memory was given back
        self._last = self._loop.time()
        self._next = self._loop.call_later(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        self._next.cancel()

    def _look(self) -> None:
        self._next = self._loop.call_later(LOOK_SECONDS, self._look)
        quiet, self._seen = self._seen == self._done(), self._done()
        if self._loop.time() - self._last > (QUIET_SECONDS if quiet else LONGEST_SECONDS):
            self.collect()
        if quiet and self._trimmed != self._seen:
            self._trimmed = self._seen
            self._rest()
            self._loop.run_in_executor(None, _trim)

    def collect(self) -> None:
        self._last = self._loop.time()
        began = perf_counter()
        gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        taken = (perf_counter() - began) * 1000
        logger.debug("a full collection took %.0f ms and found %d objects", taken, found)


def _trim() -> None:
    """Give back what is free: what Arrow has of it, and the C library, if that is glibc."""
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
