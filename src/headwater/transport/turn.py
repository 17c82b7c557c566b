"""The turn: one iteration of the event loop over all connections that have something to do.

Out, a turn is gathered: what is written to a connection during a turn goes out as one write at its
end. A system call costs as much as all else that is done for a small message.

In, a turn is shared. What a connection sends is worked off when it arrives, but only so much at a
time; the rest has to wait until everyone else had their turn. So does a connection that has cost
more than its share lately: others may go first, and nothing is lost or reordered.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from time import perf_counter
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

from headwater.timings import FINE_BOUNDS, Timings

logger = logging.getLogger(__name__)

# So long a connection is worked for before the others have their turn.
SLICE_SECONDS = 0.001
# So long those who have to wait are worked for, all together, before the sockets are looked at.
TURN_SECONDS = 0.004
# A connection may have cost so much more than its share before it has to wait. Where others wait
# already, they all have this together, or many that cost something would make a long turn.
BURST_SECONDS = 0.004
# Of those who send as fast as the broker reads, so many are read from in a turn: to take in a
# megabyte takes most of a millisecond.
READ_ON_AT_ONCE = 4
# To more connections than this nothing is kept back until the turn ends: with 1,000 publishers that
# takes 10 ms, and those who have got their messages could go on meanwhile.
SENT_AT_ONCE = 64


@mypyc_attr(allow_interpreted_subclasses=True)
class Flushable(ABC):
    """Who has something to send."""

    @abstractmethod
    def flush(self) -> None:
        """Send what was gathered."""


class Participant(Protocol):
    """A connection, as the turn sees it."""

    def work(self) -> bool:
        """Work for a slice; returns whether all is done."""

    def hold_back(self) -> None:
        """It is not reached in this turn."""

    def read_on(self) -> None:
        """A new turn begins for one that had enough of this one."""

    def fail(self) -> None:
        """End it: something has gone wrong that should not."""


class Turn:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unsent: list[Flushable] = []
        self._waiting: deque[Participant] = deque()
        self._resting: deque[Participant] = deque()
        self._ending: asyncio.Handle | None = None
        #: How often something was sent to a connection.
        self.writes = 0
        #: How long turns were, from the first that had to be sent or to wait until their end.
        self.lengths = Timings(FINE_BOUNDS, recent=0)
        self._began = 0.0

    def owe(self, sender: Flushable) -> None:
        """It is going to have something to send at the end of the turn."""
        if len(self._unsent) >= SENT_AT_ONCE:
            self._send()
        self._unsent.append(sender)
        if self._ending is None:
            self._begin()

    def is_too_much(self, seconds: float) -> bool:
        """Whether a connection that has cost so much more than its share has to wait."""
        return seconds > 0.0 and seconds * (1 + len(self._waiting)) > BURST_SECONDS

    def wait(self, connection: Participant) -> None:
        """It has something to do once the others had their turn."""
        self._waiting.append(connection)
        if self._ending is None:
            self._begin()

    def rest(self, connection: Participant) -> None:
        """It is not read from until a turn has ended, or more if many rest."""
        self._resting.append(connection)
        if self._ending is None:
            self._begin()

    def committed(self, batches: Any) -> None:
        """The log's report is all that happens in its turn, so it ends here."""
        self._send()

    def rewound(self, end: int) -> None:
        self._send()

    def _begin(self) -> None:
        self._began = perf_counter()
        self._ending = self._loop.call_soon(self._end)

    def _end(self) -> None:
        began, self._ending = self._began, None
        self._send()
        if self._waiting:
            self._work()
            self._send()
        for _ in range(min(READ_ON_AT_ONCE, len(self._resting))):
            self._resting.popleft().read_on()
        now = perf_counter()
        self.lengths.add(now - began)
        self._began = now  # of the next, if something is to be done in it already
        if self._resting and self._ending is None:
            self._begin()

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, []
        self.writes += len(unsent)
        for sender in unsent:
            sender.flush()

    def _work(self) -> None:
        waiting, stop = self._waiting, perf_counter() + TURN_SECONDS
        while waiting and perf_counter() < stop:
            connection = waiting.popleft()
            try:
                done = connection.work()
            except Exception:  # the others have nothing to do with it
                logger.exception("a connection is ended by an error of the broker")
                connection.fail()
                continue
            if not done:
                waiting.append(connection)
        for connection in waiting:
            connection.hold_back()
        if waiting and self._ending is None:
            self._begin()
