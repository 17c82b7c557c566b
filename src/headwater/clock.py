"""The time of day, for those who delete what is old.

A clock can be wrong for a moment: someone sets it, a virtual machine is moved, a time server is
mistaken. What was deleted then does not come back when the clock does. So a clock that has jumped
ahead is believed only after it has kept to that for an hour; until then time passes from where it
was. Going back is believed at once, for it deletes nothing. When a process starts, it believes the
clock that it finds.

Everyone else takes the time as it is: messages are stamped, delivered and expire by it.
"""

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

# An hour: longer than anyone takes to notice, and short beside the ages that matter.
PATIENCE_SECONDS = 3600.0
# Time servers correct so much at once.
TOLERANCE_SECONDS = 60.0

# Counts on while the machine sleeps, where the system has such a clock.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _steady() -> float:
    return time.clock_gettime(_STEADY)


class SettledClock:
    """Any thread may ask."""

    def __init__(
        self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = _steady
    ) -> None:
        self._wall, self._steady = wall, steady
        self._lock = threading.Lock()
        self._shift = wall() - steady()  # what is believed, as that which the wall is ahead
        self._new_shift = 0.0  # where it has jumped to, and when
        self._since: float | None = None

    def now(self) -> float:
        """Seconds since 1970."""
        with self._lock:
            steady = self._steady()
            self._look(self._wall() - steady, steady)
            return steady + self._shift

    def _look(self, shift: float, steady: float) -> None:
        if shift <= self._shift + TOLERANCE_SECONDS:
            self._shift, self._since = shift, None
        elif self._since is None or abs(shift - self._new_shift) > TOLERANCE_SECONDS:
            self._new_shift, self._since = shift, steady
            logger.warning(
                "the clock has jumped ahead by %.0f s; nothing is deleted for its age by it until "
                "it has kept to that for an hour",
                shift - self._shift,
            )
        elif steady - self._since >= PATIENCE_SECONDS:
            self._shift, self._since = shift, None


_clock = SettledClock()


def believed() -> float:
    """The time that is good enough to delete something, in seconds since 1970."""
    return _clock.now()
