"""How much of what a Flight client has sent is still with gRPC: a balance for each connection.

The kernel says what gRPC has read from a connection, and calls say what they got of it. The rest is
in gRPC's memory: a message that is not complete, or one that waits for its handler. Two rules:

- What a call got is never put too low, for a connection must not be closed by mistake. Rows count
  as they are in memory, which is at least what they were on the way.
- What gRPC throws away (a call that ended early) cannot be seen. So much is believed without proof,
  and remembered as doubtful.
"""

import threading
import time
from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

# What a call has besides its message: names, addresses, acknowledgements, TLS. Measured: 0.3 KiB.
CALL_BYTES = 1024
# The descriptor and the schema of rows.
BEGINNING_BYTES = 64 * 1024
CHUNK_BYTES = 4 * 1024
# What is thrown away of a write that is refused before its first row.
REFUSED_BYTES = 64 << 20
# Of what the broker sends, the client acknowledges so many parts.
ACKNOWLEDGED = 64
# Pings, each second.
SECOND_BYTES = 1024


class Writer(Protocol):
    """A call whose rows are being taken."""

    waiting_since: float | None


@dataclass(frozen=True, slots=True)
class WriteAllowance:
    """What gRPC may hold of a client's writes."""

    #: A record batch, and what gRPC reads ahead while its handler is busy.
    batch: int
    ahead: int
    #: So long a handler waits for a batch until it is clear that there was none to be had.
    patience: float = 2.0


class Balance:
    """Of one connection. Calls use it in their threads, and the watch in its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credit = 0.0
        self._writers: set[Writer] = set()
        self._calls = 0
        #: Whether it has ever made a call, and one that was let in.
        self.called = self.let_in = False
        #: When it was last made use of.
        self.used = time.monotonic()
        #: What gRPC holds; what may have been thrown away; what was believed to be.
        self.held = 0.0
        self._forgivable = 0.0
        self.doubtful = 0.0
        self._read = self._acknowledged = 0
        self._seen = self.used
        #: When its inode was first seen, and when it last grew.
        self.inode = 0
        self.opened = self.grown = self.used
        #: Since when it may have a request that is not complete.
        self.unfinished = self.used

    # What calls say

    def begin(self, size: int) -> None:
        """A call has come, with a message of that size."""
        with self._lock:
            self._calls += 1
            self._credit += size + CALL_BYTES
            self.called = True
            self.used = time.monotonic()

    def write(self, writer: Writer) -> None:
        """The call was let in, and takes rows from now on."""
        with self._lock:
            self._writers.add(writer)
            self._credit += BEGINNING_BYTES

    def take(self, size: int) -> None:
        with self._lock:
            self._credit += size * 1.02 + CHUNK_BYTES

    def end(self, writer: Writer, refused: int) -> None:
        """The call is over; of its rows, so much may have been thrown away."""
        with self._lock:
            self._calls -= 1
            self._writers.discard(writer)
            self._forgivable = min(self._forgivable + refused, 1 << 40)
            self.used = time.monotonic()

    # What the watch asks

    @property
    def calls(self) -> int:
        return self._calls

    def claim(self) -> float:
        """What calls have got until now. To be asked before the kernel is: all of it is in what
        the kernel says then."""
        with self._lock:
            credit, self._credit = self._credit, 0.0
            return credit

    def settle(self, credit: float, read: int, acknowledged: int, now: float) -> None:
        credit += (acknowledged - self._acknowledged) / ACKNOWLEDGED
        credit += (now - self._seen) * SECOND_BYTES
        if read > self._read:
            self.grown = now
        self.held = max(self.held + read - self._read - credit, 0.0)
        self._read, self._acknowledged, self._seen = read, acknowledged, now

    @property
    def read(self) -> int:
        return self._read

    def beyond(self, allowance: WriteAllowance, now: float) -> float:
        """What it holds that belongs to no write."""
        with self._lock:
            writers: Set[Writer] = frozenset(self._writers)
            forgivable = self._forgivable
            allowed = len(writers) * allowance.batch
        waiting = [each.waiting_since for each in writers]
        if any(since is None or now - since < allowance.patience for since in waiting):
            allowed += len(writers) * allowance.ahead
        beyond = max(self.held - allowed, 0.0)
        if beyond and forgivable:
            forgiven = min(beyond, forgivable)
            with self._lock:
                self._forgivable -= forgiven
            self.held -= forgiven
            self.doubtful += forgiven
            beyond -= forgiven
        return beyond
