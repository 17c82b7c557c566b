"""What was accepted lately, so that a repeat is recognised.

A publisher that had no answer sends its messages again. Those that ask to be stored exactly once
are remembered for a while by a hash of all that they consist of: topic, headers (a publisher that
says who it is does so there) and payload. The log is the memory that survives: after a restart,
what is still inside the window is read from there.

Messages with the same content are told apart as far as their publisher does so. On a connection a
message has a number of its own, so what is sent again under two numbers are two messages
(`Resent`). Of so many equal ones, as many are repeats as were accepted; the others are new. Nobody
can tell a message that is sent again from an equal one before it whose answer has arrived.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from headwater.message import EXACTLY_ONCE, TIMES, Run

logger = logging.getLogger(__name__)

# The window is kept in so many parts, and forgotten part by part.
PARTS = 8
# A limit on memory: about 110 bytes each. Above it the window gets shorter.
MOST_REMEMBERED = 2_000_000
# So many messages that were declined are remembered for one connection.
MOST_DECLINED = 1024


def keys_of(run: Run) -> list[int]:
    """Messages with the same key are taken for the same, or for copies of each other."""
    # A wish to be delivered in three seconds is another time whenever it is repeated.
    common = hash((run.topic, *(pair for pair in run.headers if pair[0] not in TIMES)))
    return [hash((common, payload)) for payload in run.payloads]


def is_remembered(run: Run) -> bool:
    """It was published exactly once."""
    return EXACTLY_ONCE in run.headers


class RepeatWindow:
    """How many messages with each key were accepted lately, by all connections together."""

    def __init__(
        self, seconds: float, clock: Callable[[], float], most: int = MOST_REMEMBERED
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._most = most
        # (until when messages were added, key → how many), the newest last
        self._parts: deque[tuple[float, Counter[int]]] = deque()
        # (offset, keys) of those that may yet be rewound
        self._unstored: deque[tuple[int, Sequence[int]]] = deque()
        self._warned = False

    def __len__(self) -> int:
        return sum(len(part) for _, part in self._parts)

    def remember(self, keys: Sequence[int], offset: int, durable: int) -> None:
        """Messages have their place in the log. What is before `durable` stays there."""
        while self._unstored and self._unstored[0][0] < durable:
            self._unstored.popleft()
        if offset >= durable:
            self._unstored.append((offset, keys))
        self._newest().update(keys)

    def count(self, key: int) -> int:
        self._forget_old()
        return sum(part.get(key, 0) for _, part in self._parts)

    def rewind(self, end: int) -> None:
        """What came from `end` on was not stored, so a repeat of it is none."""
        while self._unstored and self._unstored[-1][0] >= end:
            for key in self._unstored.pop()[1]:
                part = next((part for _, part in reversed(self._parts) if part[key]), None)
                if part is not None:
                    part[key] -= 1

    def _newest(self) -> Counter[int]:
        self._forget_old()
        now = self._clock()
        if not self._parts or self._parts[-1][0] <= now:
            self._parts.append((now + self.seconds / PARTS, Counter()))
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


class Resent:
    """The messages that one connection has sent again, by the number that its client gave each."""

    def __init__(self, window: RepeatWindow) -> None:
        self._window = window
        self._keys: dict[int, int] = {}
        #: Messages that were declined: whoever sends them again does not repeat what was accepted.
        self._declined: Counter[int] = Counter()

    def add(self, numbers: Sequence[int], keys: Sequence[int]) -> list[int]:
        """Messages that may be repeats. Returns the places of those that are not."""
        others = Counter(self._keys.values())
        fresh = []
        for place, (number, key) in enumerate(zip(numbers, keys, strict=True)):
            before = self._keys.get(number)
            if before == key:
                continue  # once more
            if before is not None:
                others[before] -= 1
            if self._declined[key]:
                self._declined[key] -= 1
                fresh.append(place)
            elif self._window.count(key) <= others[key]:
                fresh.append(place)
            others[key] += 1
            self._keys[number] = key
        return fresh

    def release(self, numbers: Iterable[int]) -> None:
        """The client has taken these numbers for other messages, or is free to do so."""
        if self._keys:
            for number in numbers:
                self._keys.pop(number, None)

    def decline(self, numbers: Iterable[int], keys: Iterable[int]) -> None:
        """Messages are answered with a refusal; those with these keys were not stored."""
        self.release(numbers)
        if len(self._declined) > MOST_DECLINED:
            self._declined.clear()
        self._declined.update(keys)
