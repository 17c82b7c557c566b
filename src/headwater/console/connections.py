"""The connections of the console: how many there may be, and how long each may take.

    waiting    for a request: it is new, idle, or in the middle of a request's head
    sending    the head is there, the body is not yet (guard.py says how long that may take)
    working    the request is there, and is answered; the client has to take the answer

Where there are as many connections as there may be, a new one takes the place of the one that has
been waiting for the longest time; if none is waiting, of one that is sending, or of one whose
client does not take its answer. So whoever sends a request at once is answered, however many others
say nothing. Only if all of them are being answered is the new one turned away.

Only some of them may be sending: each piece of a body, be it one byte, has to be worked on, and a
thousand at once would keep an answer waiting for 0.15 s. One more takes the place of the first.

Borrowed from uvicorn: `H11Protocol`, which it takes as `http=` like any protocol of asyncio, and of
that the names in `check`. uvicorn itself has a time limit for idle connections only, and none for
half a request; its `limit_concurrency` turns the new ones away and keeps those that say nothing.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from headwater.borrowed import UVICORN

with UVICORN.imports():
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

logger = logging.getLogger(__name__)

#: A body has to arrive, and an answer to be taken, at so many bytes a second.
LEAST_RATE = 64 * 1024
#: Answers that clients have not taken yet, of all of them together.
MOST_UNREAD_BYTES = 128 << 20

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 46\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    b"the console has all the requests it can answer"
)
_LATE = (
    b"HTTP/1.1 408 Request Timeout\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: 46\r\nConnection: close\r\n\r\n"
    b"the head of the request did not arrive in time"
)


# Of all connections, one of so many may be sending at the same time; but a few always.
_SENDING = 10
_FEW = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionBounds:
    connections: int = 1000
    #: For the head of a request.
    head_seconds: float = 10.0
    #: For a body to arrive, or an answer to be taken, and a second more for every 64 KiB.
    unfinished_seconds: float = 30.0

    @property
    def sending(self) -> int:
        return max(self.connections // _SENDING, _FEW)


class OpenConnections:
    """All connections, each in the row of what it does. A row has the oldest first."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.bounds = bounds
        self.waiting: dict[BoundedConnection, None] = {}
        self.sending: dict[BoundedConnection, None] = {}
        self.working: dict[BoundedConnection, None] = {}
        #: Those among the working whose client has not taken the answer so far.
        self.unread: dict[BoundedConnection, None] = {}
        #: Connections that others have had to make room for, or that took too long.
        self.dropped = 0
        #: Connections that found no room.
        self.turned_away = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.sending) + len(self.working)

    def limit_sending(self) -> None:
        """Those who have been sending for the longest time make room for the others."""
        while len(self.sending) > self.bounds.sending:
            next(iter(self.sending)).drop()

    def make_room(self) -> bool:
        """Whether there is room for one more."""
        if len(self) < self.bounds.connections:
            return True
        for row in (self.waiting, self.sending, self.unread):
            if row:
                next(iter(row)).drop()
                return True
        self.turned_away += 1
        logger.warning("the console answers %d requests and takes no more for now", len(self))
        return False

    def counters(self) -> list[dict[str, Any]]:
        """For the metrics."""
        return [
            {
                "name": "console_connections_dropped",
                "meaning": "Connections of the console that took too long, or made room.",
                "count": self.dropped,
            },
            {
                "name": "console_connections_turned_away",
                "meaning": "Connections that the console had no room for.",
                "count": self.turned_away,
            },
        ]

    def refusals(self) -> dict[str, int]:
        """The same, by the name of the limit."""
        return {"console.connections": self.turned_away}

    def limit_unread(self) -> None:
        """Those who have been reading an answer for the longest time make room for the others."""
        held = sum(each.unread_bytes for each in self.unread)
        while held > MOST_UNREAD_BYTES:
            slowest = next(iter(self.unread))
            held -= slowest.unread_bytes
            slowest.drop()


class BoundedConnection(H11Protocol):
    """A connection that is in one row of `others`, or in none if it was turned away."""

    #: Set by `bounded`.
    others: OpenConnections

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._row: dict[BoundedConnection, None] | None = None
        self._head_limit: asyncio.TimerHandle | None = None
        self._answer_limit: asyncio.TimerHandle | None = None
        self._turned_away = False

    # What asyncio calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if not self.others.make_room():
            self._turned_away = True
            transport.write(_FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._enter(self.others.waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._turned_away:
            return
        self._enter(None)
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._turned_away or self.transport.is_closing():
            return
        super().data_received(data)
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.others.unread[self] = None
        seconds = self.others.bounds.unfinished_seconds + self.unread_bytes / LEAST_RATE
        self._answer_limit = self.loop.call_later(seconds, self.drop)
        self.others.limit_unread()

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()
        self._look()

    # What uvicorn calls

    def send_400_response(self, msg: str) -> None:
        """What the client sends is no HTTP any more. If it was to have an answer, nobody goes on
        with that: `connection_lost`, which comes a moment later, would be too late."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
                return
        super().send_400_response(msg)

    def on_response_complete(self) -> None:
        self._look()
        super().on_response_complete()  # which may find the next request
        self._look()

    # What its neighbours call

    def drop(self) -> None:
        """Close it, without a word: the client does not listen, or others need the room."""
        self.others.dropped += 1
        self._enter(None)
        self._taken()
        self.transport.abort()

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    def _look(self) -> None:
        """Find out what it does now."""
        if self._row is None or self.transport.is_closing():
            return
        answered = self.cycle is None or self.cycle.response_complete
        if self in self.others.unread or not (answered or self.cycle.more_body):
            self._enter(self.others.working)
        else:
            self._enter(self.others.waiting if answered else self.others.sending)
            self.others.limit_sending()

    def _enter(self, row: "dict[BoundedConnection, None] | None") -> None:
        if row is self._row:
            return
        if self._row is not None:
            self._row.pop(self, None)
        if self._head_limit is not None:
            self._head_limit.cancel()
            self._head_limit = None
        self._row = row
        if row is None:
            return
        row[self] = None
        if row is self.others.waiting:
            seconds = self.others.bounds.head_seconds
            self._head_limit = self.loop.call_later(seconds, self._take_too_long)

    def _take_too_long(self) -> None:
        self.others.dropped += 1
        self._enter(None)
        if not self.transport.is_closing():
            self.transport.write(_LATE)
            self.transport.close()

    def _taken(self) -> None:
        """The client has taken what was kept for it, or never will."""
        self.others.unread.pop(self, None)
        if self._answer_limit is not None:
            self._answer_limit.cancel()
            self._answer_limit = None


def bounded(bounds: ConnectionBounds) -> tuple[type[BoundedConnection], OpenConnections]:
    """What uvicorn takes as `http=`, and all connections that it makes."""
    check()
    made = OpenConnections(bounds)

    class Bounded(BoundedConnection):
        others = made

    return Bounded, made


def check() -> None:
    """Compare uvicorn with what this module knows of it."""
    called = "handle_events", "on_response_complete", "send_400_response"
    UVICORN.check_attributes("H11Protocol", H11Protocol, *called)
    protocol = H11Protocol.__init__.__code__.co_names
    cycle = RequestResponseCycle.__init__.__code__.co_names
    for names, used in (
        (protocol, ("loop", "transport", "cycle")),
        (cycle, ("disconnected", "message_event", "more_body")),
        (cycle, ("response_complete", "response_started")),
    ):
        for name in used:
            if name not in names:
                raise UVICORN.changed(f"its connections have no {name}")
