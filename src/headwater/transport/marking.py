"""Asks a client for a proof of what was delivered to it, where its protocol has none of its own."""

import asyncio

from headwater.protocols.base import Session
from headwater.transport.clock import Clock
from headwater.transport.outgoing import Outgoing

# A stream that never pauses is asked for a proof after so long all the same.
LONGEST_UNMARKED_SECONDS = 1.0


class Marking:
    """The question is sent once the connection is quiet, so that it never shares a segment with
    messages: some clients take what they read for one message."""

    def __init__(self, clock: Clock, outgoing: Outgoing) -> None:
        self._clock = clock
        self._outgoing = outgoing
        # What was delivered and is not proven: up to where, since when, and when to ask.
        self._position = 0
        self._since = self._delivered_at = 0.0
        self._asking: asyncio.TimerHandle | None = None

    def delivered(self, session: Session, position: int) -> None:
        self._position = position
        self._delivered_at = now = self._clock.time()
        if self._asking is None:
            self._since = now
            self._wait(session, session.mark_after or 0.0)

    def cancel(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _wait(self, session: Session, seconds: float) -> None:
        self._asking = self._clock.later(seconds, lambda: self._ask(session))

    def _ask(self, session: Session) -> None:
        self._asking = None
        now, quiet = self._clock.time(), session.mark_after or 0.0
        left = self._delivered_at + quiet - now
        busy = left > 0 or self._outgoing.buffered > 0
        if busy and now - self._since < LONGEST_UNMARKED_SECONDS:
            self._wait(session, max(left, quiet))
        elif mark := session.mark(self._position):
            self._outgoing.flush()
            self._outgoing.send(mark)
            self._outgoing.flush()
