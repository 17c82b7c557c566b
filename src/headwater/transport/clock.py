"""A coarse clock for many connections: who is due is looked up, not searched.

Every connection has at most one entry. When its time comes it says when it wants to be looked at
again, so a connection that is busy costs one look per period and an idle one no more.
"""

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25

#: Called when due; returns the seconds until the next look, or None.
Due = Callable[[], float | None]


class Clock:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        #: Ticks since the clock began. Connections note it as the time of their last activity.
        self.now = 0
        self._due: dict[int, dict[Due, None]] = {}
        self._at: dict[Due, int] = {}
        self._handle = self._loop.call_later(TICK_SECONDS, self._tick)

    def add(self, seconds: float, due: Due) -> None:
        """Call `due` after `seconds`, instead of when it was to be called before."""
        self.remove(due)
        at = self.now + max(1, round(seconds / TICK_SECONDS))
        self._due.setdefault(at, {})[due] = None
        self._at[due] = at

    def remove(self, due: Due) -> None:
        at = self._at.pop(due, None)
        if at is not None and at in self._due:
            self._due[at].pop(due, None)

    def seconds_since(self, tick: int) -> float:
        return (self.now - tick) * TICK_SECONDS

    def time(self) -> float:
        return self._loop.time()

    def later(self, seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        """For what cannot wait for a tick."""
        return self._loop.call_later(seconds, act)

    def stop(self) -> None:
        self._handle.cancel()

    def _tick(self) -> None:
        self._handle = self._loop.call_later(TICK_SECONDS, self._tick)
        self.now += 1
        for due in list(self._due.pop(self.now, ())):
            self._at.pop(due, None)
            try:
                again = due()
            except Exception:  # the others of this tick have nothing to do with it
                logger.exception("a timer of a connection failed")
                continue
            if again is not None:
                self.add(again, due)
