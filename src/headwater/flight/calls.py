"""The calls of Flight clients that go on now: not more than so many, and none that stands still.

Each call has a thread of gRPC's, and up to some megabytes. gRPC has no time limit for a client that
does not take what it asked for, or does not send what it announced, and pyarrow offers no way to
end such a call. So the broker closes the connection: the call ends, and a client that is only slow
connects again and goes on behind its last row, as those of Headwater do.

Calls that stream rows and small requests are counted apart: readers do not keep a commit out.
"""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from pyarrow import flight

from headwater.errors import OVER_LIMITS
from headwater.flight.balances import REFUSED_BYTES, Balance
from headwater.flight.watch import Watch
from headwater.protocols.base import ServiceCounter
from headwater.sockets import hang_up

logger = logging.getLogger(__name__)

#: The name under which a call finds itself.
NAME = "calls"

_STREAMS = frozenset(
    (flight.FlightMethod.DO_GET, flight.FlightMethod.DO_PUT, flight.FlightMethod.DO_EXCHANGE)
)


class Call(flight.ServerMiddleware):  # type: ignore[misc]
    """One call. Its own thread says when it waits for the client."""

    def __init__(self, calls: "Calls", streams: bool, size: int = 0, refused: str = "") -> None:
        super().__init__()
        self._calls = calls
        self.streams = streams
        self.peer = ""
        #: Of its headers.
        self._size = size
        #: Why there is no room for it.
        self._refused = refused
        self._balance: Balance | None = None
        self._writes = False
        #: Since when the broker has been waiting for the client; None: it is not.
        self.waiting_since: float | None = None

    @classmethod
    def of(cls, context: Any, size: int = 0) -> "Call":
        """To be asked first, with the size of the message that the call began with. It raises here
        and not before, for nobody knows whose call it is until then."""
        call: Call = context.get_middleware(NAME)
        call.peer = unquote(context.peer())
        call._balance = call._calls.watch.balance(call.peer)
        call._balance.begin(call._size + size)
        if call._refused:
            raise flight.FlightUnavailableError(call._refused)
        return call

    def let_in(self) -> None:
        """The client may make calls."""
        if self._balance is not None:
            self._balance.let_in = True

    def received(self, reader: Any) -> Iterator[Any]:
        """What the client sends."""
        chunks = iter(reader)
        balance = self._balance or Balance()
        self._writes = True
        balance.write(self)
        while True:
            self.waiting_since = time.monotonic()
            chunk = next(chunks, None)
            self.waiting_since = None
            if chunk is None:
                return
            balance.take(_size_of(chunk))
            yield chunk.data

    def sent(self, batches: Iterator[Any]) -> Iterator[Any]:
        """What the client is sent: who asks for the next one has sent the one before."""
        for batch in batches:
            self.waiting_since = time.monotonic()
            yield batch
            self.waiting_since = None
        self.waiting_since = time.monotonic()  # for the client to take the last of it

    def call_completed(self, exception: Any) -> None:
        self._calls.end(self)
        if self._balance is not None:
            most = self._calls.watch.write_bytes if self._writes else REFUSED_BYTES
            self._balance.end(self, most if self.streams else 0)


class Calls(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """All calls; any thread may use it."""

    def __init__(self, most: int, patience: float, watch: Watch) -> None:
        super().__init__()
        self.watch = watch
        self._most = most
        self._patience = patience
        self._sentence = (
            f"the broker has {most} calls over Flight already, and flight.calls allows no more; "
            "try again"
        )
        self._lock = threading.Lock()
        self._open: set[Call] = set()
        self._streams = 0
        #: Where Flight listens.
        self.port = 0
        #: How many have come to their end.
        self.ended = 0
        self._refused = ServiceCounter("flight_calls_refused", "Calls beyond flight.calls.")
        self._cut_off = ServiceCounter(
            "flight_connections_cut_off", "Flight clients that neither read nor sent anything."
        )
        self.counters = (self._refused, self._cut_off)

    def start_call(self, info: Any, headers: Any) -> Call:
        size = sum(len(name) + sum(map(len, values)) for name, values in headers.items())
        streams = info.method in _STREAMS
        with self._lock:
            beside = self._streams if streams else len(self._open) - self._streams
            if beside >= self._most:
                self._refused.count += 1
                OVER_LIMITS["flight.calls"] += 1
                return Call(self, streams, size, self._sentence)
            call = Call(self, streams, size)
            self._open.add(call)
            self._streams += call.streams
        return call

    def end(self, call: Call) -> None:
        with self._lock:
            if call in self._open:
                self._open.remove(call)
                self.ended += 1
                self._streams -= call.streams

    def hang_up_on_the_idle(self) -> None:
        """Close the connections of clients that have kept a call waiting for too long."""
        long_ago = time.monotonic() - self._patience
        with self._lock:
            idle = {
                call.peer
                for call in self._open
                if call.peer and call.waiting_since is not None and call.waiting_since < long_ago
            }
        for peer in idle:
            host, _, port = peer.partition(":")[2].rpartition(":")
            if hang_up(host.strip("[]"), int(port), self.port):
                self._cut_off.count += 1
                logger.warning(
                    "a Flight client at %s has neither read nor sent anything for %g s; its "
                    "connection is closed",
                    peer,
                    self._patience,
                )


def _size_of(chunk: Any) -> int:
    """At least what it had on its way, if it was not compressed: its buffers are padded there, and
    each has a place in the message's head."""
    size: int = chunk.data.get_total_buffer_size()
    fields: int = chunk.data.num_columns
    note: int = 0 if chunk.app_metadata is None else chunk.app_metadata.size
    return size + 512 * fields + note
