"""What was accepted lately, so that a repeat is recognised.

A publisher that had no answer sends its messages again. Those that ask to be stored exactly once
are remembered for a while by a hash of topic and payload. The log is the memory that survives:
after a restart, what is still inside the window is read from there.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence

from headwater.message import EXACTLY_ONCE, Run

logger = logging.getLogger(__name__)

# The window is kept in so many parts, and forgotten part by part.
PARTS = 8
# A limit on memory: about 110 bytes each. Above it the window gets shorter.
MOST_REMEMBERED = 2_000_000


class RepeatWindow:
    def __init__(
        self, seconds: float, clock: Callable[[], float], most: int = MOST_REMEMBERED
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._most = most
        # (until when messages were added, hash → offset), the newest last
        self._parts: deque[tuple[float, dict[int, int]]] = deque()
        self._warned = False

    def __len__(self) -> int:
        return sum(len(part) for _, part in self._parts)

    def remember(self, run: Run, offset: int) -> None:
        topic = run.topic
        part = self._newest()
        part.update(
            zip(
                [hash((topic, payload)) for payload in run.payloads],
                range(offset, offset + len(run.payloads)),
                strict=True,
            )
        )

    def fresh(self, run: Run) -> Sequence[bytes]:
        """The payloads of a run that are no repeats of anything, nor of each other."""
        self._forget_old()
        seen: set[int] = set()
        fresh = []
        for payload in run.payloads:
            known_as = hash((run.topic, payload))
            if known_as not in seen and not any(known_as in part for _, part in self._parts):
                fresh.append(payload)
            seen.add(known_as)
        return fresh

    def rewind(self, end: int) -> None:
        """What came from `end` on was not stored, so a repeat of it is none."""
        for _, part in self._parts:
            for known_as in [key for key, offset in part.items() if offset >= end]:
                del part[known_as]

    def _newest(self) -> dict[int, int]:
        self._forget_old()
        now = self._clock()
        if not self._parts or self._parts[-1][0] <= now:
            self._parts.append((now + self.seconds / PARTS, {}))
        return self._parts[-1][1]

    def _forget_old(self) -> None:
        horizon = self._clock() - self.seconds
        while self._parts and self._parts[0][0] < horizon:
            self._parts.popleft()
        while len(self._parts) > 1 and len(self) > self._most:
            self._parts.popleft()
            if not self._warned:
                self._warned = True
                logger.warning(
                    "more than %d messages were published exactly once within %g s; repeats are "
                    "recognised for a shorter time",
                    self._most,
                    self.seconds,
                )


def is_remembered(run: Run) -> bool:
    """It was published exactly once."""
    return EXACTLY_ONCE in run.headers
