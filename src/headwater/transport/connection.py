"""One connection: the only place where bytes are read and written.

    socket → data_received → session.receive → commands → peer
    peer → deliver, respond, refuse → session → transport.write → socket

The limits on bytes and time are kept here. Reading stops while there is a reason to (`pause`);
nothing is buffered for the client beyond the limit, except a single batch that is larger.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol, cast

from headwater.commands import Close, Command, Respond, Subscription
from headwater.errors import Code, Refusal
from headwater.message import Batch
from headwater.protocols.base import Session
from headwater.traffic import Meter
from headwater.transport.clock import TICK_SECONDS, Clock

logger = logging.getLogger(__name__)

# A connection that was closed has this long to take what is still buffered, and to hang up.
LINGER_SECONDS = 3.0
# So much of what a client still sends is dropped while it may not have read our last words.
LINGER_BYTES = 16 * 1024 * 1024
# A client whose place another one claims has this long to show that it is there.
CHALLENGE_SECONDS = 5.0
ANSWERS = "its answers are not read"
# The event loop tells when more than this is buffered, and when all of it is sent. For less it is
# not worth the two calls, unless something waits for it (`_notice_when_drained`).
UNNOTICED_BYTES = 64 * 1024

# A stream that never pauses is asked for a proof after so long all the same.
LONGEST_UNMARKED_SECONDS = 1.0


class BrokerPeer(Protocol):
    """What a connection needs of the broker."""

    @property
    def position(self) -> int: ...
    def handle(self, command: Command) -> None: ...
    def drained(self) -> None: ...
    def leave(self) -> None: ...


class Host(Protocol):
    """What a connection needs of the listener that accepted it."""

    clock: Clock
    output_buffer_bytes: int
    handshake_seconds: float

    def recognised(self, connection: "Connection") -> None:
        """It is known what the connection speaks."""

    def arrived(self, connection: "Connection") -> tuple[Session, BrokerPeer] | None:
        """Take the connection in. None: it was turned away."""

    def left(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    transport: asyncio.Transport
    session: Session
    peer: BrokerPeer

    def __init__(self, host: Host) -> None:
        self._host = host
        #: Unique in the broker; the newest has the highest.
        self.id = 0
        #: When it was made, in microseconds since 1970.
        self.since = 0
        self.address = ""
        self.secure = False
        self.meter = Meter()
        self._closing = False
        self._dropped = 0  # bytes that came after the end
        self._held: set[str] = set()  # why it is not read from
        self._made_at = self._active_at = self._sent_at = 0  # by the clock's ticks
        self._challenged_at: int | None = None
        self._admitted = False
        # What was delivered and is not proven: up to where, since when, and when to ask.
        self._unmarked = 0
        self._unmarked_since = self._delivered_at = 0.0
        self._marking: asyncio.TimerHandle | None = None

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=UNNOTICED_BYTES, low=0)
        admitted = self._host.arrived(self)
        if admitted is None:
            return
        self.session, self.peer = admitted
        self._admitted = True
        self._made_at = self._active_at = self._host.clock.now
        self._tell("connected")
        self._begin()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            self._drop(data)
            return
        self._active_at = self._host.clock.now
        self.meter.bytes_in += len(data)
        for command in self.session.receive(data):
            self.peer.handle(command)
            if self._closing:
                return
        if self.session.successor is not None:
            self._hand_over()

    def resume_writing(self) -> None:
        self._active_at = self._host.clock.now
        self.transport.set_write_buffer_limits(high=UNNOTICED_BYTES, low=0)
        self.resume(ANSWERS)
        if self._admitted and not self._closing:
            self.peer.drained()

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        if self._marking is not None:
            self._marking.cancel()
        self._host.clock.remove(self._look)
        self._host.clock.remove(self._abort)
        self._host.clock.remove(self._judge)
        if self._admitted:
            self.peer.leave()
        self._host.left(self)
        self._tell("gone", str(error or ""))

    def _begin(self) -> None:
        patience = self._host.handshake_seconds, self.session.idle_after
        self._host.clock.add(min(x for x in patience if x is not None), self._look)
        if self.session.protocol:
            self._host.recognised(self)
        if greeting := self.session.greet():
            self.meter.bytes_out += len(greeting)
            self.transport.write(greeting)
        if self.session.silent_after is not None:
            self._host.clock.later(self.session.silent_after, self._silent)

    def _hand_over(self) -> None:
        assert self.session.successor is not None
        self.session, rest = self.session.successor
        self.meter.bytes_in -= len(rest)  # they are counted when they are read
        self._begin()
        if rest:
            self.data_received(rest)

    def _silent(self) -> None:
        if self._closing:
            return
        self.session.silent()
        if self.session.successor is not None:
            self._hand_over()

    # The broker calls these

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> bool:
        if self._closing:
            return False
        buffers = self.session.encode(batch, subscriptions)
        size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        buffered = self.transport.get_write_buffer_size()
        if buffered and buffered + size > self._host.output_buffer_bytes:
            self._notice_when_drained()
            return False
        self.meter.messages_out += len(batch.run.payloads) * len(subscriptions)
        self.meter.bytes_out += size
        if self.session.mark_after is not None:
            self._mark_later(batch.end)
        if len(buffers) == 1:
            self.transport.write(buffers[0])
        else:
            self.transport.writelines(buffers)
        return True

    def _mark_later(self, position: int) -> None:
        """Ask for a proof of what was delivered once the connection is quiet, so that the question
        never shares a segment with messages: some clients take what they read for one message."""
        self._unmarked = position
        self._delivered_at = now = self._host.clock.time()
        if self._marking is None:
            self._unmarked_since = now
            self._marking = self._host.clock.later(self.session.mark_after or 0.0, self._mark)

    def _mark(self) -> None:
        self._marking = None
        if self._closing:
            return
        now, quiet = self._host.clock.time(), self.session.mark_after or 0.0
        left = self._delivered_at + quiet - now
        if now - self._unmarked_since < LONGEST_UNMARKED_SECONDS and (
            left > 0 or self.transport.get_write_buffer_size()
        ):
            self._marking = self._host.clock.later(max(left, quiet), self._mark)
        elif mark := self.session.mark(self._unmarked):
            self.meter.bytes_out += len(mark)
            self.transport.write(mark)

    def offer(
        self, batch: Batch, key: tuple[str, str], again: bool, most: int
    ) -> tuple[int, Sequence[int]] | None:
        room = 0 if self._closing else min(most, self.session.room(batch.run))
        if room <= 0:
            return None
        batch = batch.part(batch.offset, batch.offset + room)
        buffered = self.transport.get_write_buffer_size()
        if buffered and buffered + batch.run.size > self._host.output_buffer_bytes:
            self._notice_when_drained()
            return None
        buffers, awaited = self.session.send(batch, key, again)
        self.transport.writelines(buffers)
        self.meter.messages_out += len(batch.run.payloads)
        self.meter.bytes_out += sum(map(len, buffers))
        self._sent_at = self._host.clock.now
        return batch.end, awaited

    def retract(self, key: tuple[str, str], offsets: Sequence[int]) -> None:
        self.session.retract(key, offsets)

    def respond(self, answer: bytes) -> None:
        if self._closing:
            return
        self.meter.bytes_out += len(answer)
        self.transport.write(answer)
        if self.transport.get_write_buffer_size() > self._host.output_buffer_bytes:
            self._notice_when_drained()
            self.pause(ANSWERS)

    def refuse(self, command: Command, error: Refusal) -> None:
        reaction = None if self._closing else self.session.refuse(command, error)
        if isinstance(reaction, Respond):
            self.respond(reaction.answer)
        elif isinstance(reaction, Close):
            self.close(reaction.answer, reaction.reason)

    def _notice_when_drained(self) -> None:
        """Have `resume_writing` called when everything that is buffered now is sent."""
        self.transport.set_write_buffer_limits(high=0)

    def pause(self, why: str) -> None:
        if not self._held and not self._closing:
            self.transport.pause_reading()
        self._held.add(why)

    def resume(self, why: str) -> None:
        if why in self._held:
            self._held.remove(why)
            if not self._held and not self._closing:
                self.transport.resume_reading()

    def close(self, answer: bytes, reason: str) -> None:
        """A socket that is closed while the client's bytes arrive is reset, and the client may
        never see the answer. So only our side is closed, and what comes is dropped until the client
        has closed its own."""
        if self._closing:
            return
        self._end(answer, reason)
        transport = self.transport
        # TLS says goodbye by itself.
        if not answer or transport.is_closing() or not transport.can_write_eof():
            transport.close()
            return
        transport.write_eof()
        if self._held:
            transport.resume_reading()

    def challenge(self) -> None:
        probe = self.session.probe()
        if self._closing or self._challenged_at is not None or not probe:
            return
        self._challenged_at = self._host.clock.now
        self.respond(probe)
        self._host.clock.add(CHALLENGE_SECONDS, self._judge)

    def dismiss(self, error: Refusal) -> None:
        if not self._closing:
            self.close_at_once(self.session.farewell(error), str(error))

    def close_at_once(self, answer: bytes, reason: str) -> None:
        """Close it without waiting for the client."""
        self._end(answer, reason)
        self.transport.close()

    def _end(self, answer: bytes, reason: str) -> None:
        self._closing = True
        self._tell("closed", reason)
        if answer:
            self.transport.write(answer)
        self._host.clock.remove(self._look)
        self._host.clock.add(LINGER_SECONDS, self._abort)

    def _drop(self, data: bytes) -> None:
        self._dropped += len(data)
        if self._dropped > LINGER_BYTES:
            self.transport.abort()

    def _tell(self, event: str, reason: str = "") -> None:
        """One line of the log for what has happened to the connection."""
        if not logger.isEnabledFor(logging.DEBUG):
            return
        protocol = self.session.protocol if self._admitted else ""
        about = {
            "event": event,
            "connection": self.id,
            "protocol": protocol,
            "address": self.address,
            "reason": reason,
        }
        logger.debug(
            "%s: %s%s", self, event, f": {reason}" if reason else "", extra={"fields": about}
        )

    @property
    def paused(self) -> bool:
        """It is not read from."""
        return bool(self._held)

    def __str__(self) -> str:
        return f"{self.session.protocol if self._admitted else ''} {self.address}".lstrip()

    # The clock calls these

    def _look(self) -> float | None:
        """Is the connection alive, and has it said what it came for in time?"""
        if not self.session.established:
            left = self._host.handshake_seconds - self._host.clock.seconds_since(self._made_at)
            if left > 0:
                return left
            self.dismiss(Refusal(Code.UNAVAILABLE, "the handshake took too long"))
            return None
        period = self.session.idle_after
        if period is None:
            return None
        alive_at = self._active_at
        if self.session.sending_is_life:
            alive_at = max(alive_at, self._sent_at)
        silent = self._host.clock.seconds_since(alive_at)
        if silent < period or self.transport.get_write_buffer_size():
            return max(period - silent, TICK_SECONDS)
        reaction = self.session.idle(self.peer.position)
        if isinstance(reaction, Close):
            self.close(reaction.answer, reaction.reason)
            return None
        if isinstance(reaction, Respond):
            self.respond(reaction.answer)
        return period

    def _judge(self) -> None:
        """Has it answered? Who is not read from, or has not read what came before, could not."""
        asked_at, self._challenged_at = self._challenged_at, None
        could = not self._held and not self.transport.get_write_buffer_size()
        if asked_at is not None and could and self._active_at < asked_at and not self._closing:
            self._tell("closed", "it does not answer, and another client claims its place")
            self._abort()

    def _abort(self) -> None:
        self.transport.abort()
