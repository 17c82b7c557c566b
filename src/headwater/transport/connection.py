"""One connection: the only place where bytes are read and written.

    socket → data_received → session.receive → commands → work → peer
    peer → deliver, respond, refuse → session → outgoing → socket

The limits on bytes and time are kept here. Commands are carried out for a slice of time; if some
are left, the connection gets in line behind the others (`Turn`), and is not read from meanwhile.
Nor is it while there is another reason (`pause`).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import cast

from mypy_extensions import mypyc_attr

from headwater.commands import (
    BrokerPeer,
    Close,
    Command,
    Outlet,
    Publish,
    Respond,
    Subscription,
)
from headwater.errors import Refusal, TooLate
from headwater.message import Batch
from headwater.protocols.base import Session
from headwater.rights import NOBODY
from headwater.slowing import ANSWERS, COST, Slowdowns
from headwater.traffic import Meter
from headwater.transport import events
from headwater.transport.clock import TICK_SECONDS
from headwater.transport.departed import DEPARTED_PEER, Departed
from headwater.transport.host import Host
from headwater.transport.marking import Marking
from headwater.transport.outgoing import Outgoing
from headwater.transport.turn import SLICE_SECONDS
from headwater.transport.unfinished import Unfinished

# A connection that was closed has this long to take what is still buffered, and to hang up.
LINGER_SECONDS = 3.0
# So much of what a client still sends is dropped while it may not have read our last words.
LINGER_BYTES = 16 * 1024 * 1024
# A client whose place another one claims has this long to show that it is there.
CHALLENGE_SECONDS = 5.0
# A connection that takes more than a quarter of the loop's time has to wait for others.
SHARE = 4
# After so many reads of so much, the next one is in another turn. The event loop would go on with
# the same socket up to 32 times, and 8 MB from each of many take long to be put anywhere.
LARGE_READ_BYTES = 128 * 1024
LARGE_READS = 4


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection(Outlet):
    transport: asyncio.Transport
    session: Session
    peer: BrokerPeer
    _receive: Callable[[bytes], Iterator[Command]]
    _encode: Callable[[Batch, Subscription], bytes]

    def __init__(self, host: Host) -> None:
        self._host = host
        self._turn = host.turn
        self._clock = host.clock
        #: Unique in the broker; the newest has the highest.
        self.id = 0
        #: When it was made, in microseconds since 1970.
        self.since = 0
        self.address, self.secure, self.certified = "", False, ""
        self.meter = Meter()
        #: How often and how long it was not read from, and why.
        self.slowed = Slowdowns(host.slowdowns)
        self._closing = self._gone = self._admitted = False  # `_gone`: its socket is
        self._dropped = 0  # bytes that came after the end
        self._held: set[str] = set()  # why nothing is read, and no command carried out
        self._reading = True
        self._large_reads = 0  # since it has rested
        self._commands: Iterator[Command] | None = None  # of what was read, those to carry out
        self._unread: list[bytes] = []  # what was read after that
        self._costly_until = 0.0  # it has cost more than its share, and has to wait for others
        self._unfinished = Unfinished(host.input_ceiling)
        self._outgoing = Outgoing(
            host.turn, host.output_ceiling, self.meter, host.output_buffer_bytes
        )
        self._marking = Marking(host.clock, self._outgoing)
        self._mark_after: float | None = None  # as the session says
        self._made_at = self._active_at = self._sent_at = 0  # by the clock's ticks
        self._challenged_at: int | None = None
        self._silence: asyncio.TimerHandle | None = None  # how long it may say nothing

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._outgoing.begin(self.transport)
        admitted = self._host.arrived(self)
        if admitted is None:
            return
        self.session, self.peer = admitted
        self._admitted = True
        self._made_at = self._active_at = self._clock.now
        self._tell("connected")
        self._begin()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            self._drop(data)
            return
        self._active_at = self._clock.now
        self._unfinished.came += len(data)
        self.meter.bytes_in += len(data)
        if self._commands is not None:
            self._unread.append(data)
            return
        self._commands = self._receive(data)
        if self._held:
            return  # `resume` goes on with it
        now = perf_counter()
        if self._turn.is_too_much(self._costly_until - now) or not self._work(now):
            self._turn.wait(self)
        if len(data) >= LARGE_READ_BYTES:
            self._rest()

    def pause_writing(self) -> None:
        self._outgoing.stuck()

    def resume_writing(self) -> None:
        self._active_at = self._clock.now
        self._outgoing.drained()
        self.resume(ANSWERS)
        if self._admitted and not self._closing:
            self.peer.drained()

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def connection_lost(self, error: Exception | None) -> None:
        self._gone = True
        self._outgoing.drop()
        self._tell("gone", str(error or ""))
        if not self._admitted:
            self._leave()
        elif self._commands is None or self._closing:
            self._commands = None
            self._turn.wait(self)  # very many may go at once
        # Otherwise it goes when all that it sent is carried out: see `work`.

    def _leave(self) -> None:
        self._closing, self._commands = True, None
        self._unread.clear()
        self._marking.cancel()
        for timed in (self._look, self._abort, self._judge):
            self._clock.remove(timed)
        if self._silence is not None:
            self._silence.cancel()
        self._outgoing.drop()
        self._unfinished.drop(self)
        self.slowed.end_all()
        self._host.left(self)
        if self._admitted:
            self.peer.leave()
            # What it has had is given back now: nobody looks for cycles while the broker is busy.
            self.peer = DEPARTED_PEER
            self.session = departed = Departed(self.session.protocol)
            self._receive, self._encode = departed.receive, departed.encode

    def _begin(self) -> None:
        # Looking a method up takes longer than calling it.
        self._receive, self._encode = self.session.receive, self.session.encode
        patience = self._host.handshake_seconds, self.session.idle_after
        self._clock.add(min(x for x in patience if x is not None), self._look)
        if self.session.protocol:
            self._host.recognised(self)
        if greeting := self.session.greet():
            self._outgoing.send(greeting)
        if self.session.silent_after is not None:
            self._silence = self._clock.later(self.session.silent_after, self._silent)

    def _hand_over(self) -> None:
        assert self.session.successor is not None
        self.session, rest = self.session.successor
        self._begin()
        if rest:
            self._unread.insert(0, rest)

    def _silent(self) -> None:
        if self._closing:
            return
        self.session.silent()
        if self.session.successor is not None and self._commands is None:
            self._hand_over()

    # The turn calls these

    def work(self) -> bool:
        """Carry out commands for a slice of time. Returns whether nothing is left to do now."""
        return self._work(perf_counter())

    def _work(self, began: float) -> bool:
        now, stop = began, began + SLICE_SECONDS
        peer = self.peer
        while self._commands is not None and not self._closing and not self._held:
            for command in self._commands:
                if not isinstance(command, Publish):
                    self._mark_after = self.session.mark_after
                peer.handle(command)
                now = perf_counter()
                if self._closing or self._held or now >= stop:
                    break
            else:
                self._go_on_reading()
                continue
            break
        if now > began:
            self._unfinished.moved = True
        # The time that this has taken counts `SHARE` times, so that it has to wait as often.
        self._costly_until = max(self._costly_until, began) + (now - began) * SHARE
        self.meter.seconds += now - began
        if self._commands is not None and not self._closing:
            return bool(self._held)  # then `resume` gets it in line again
        if self._gone:
            self._leave()
            return True
        self._unfinished.claim(self, self.session)
        if not self._reading and not self._closing and not self._held:
            self.slowed.end(COST)
            self._reading = True
            self.transport.resume_reading()
        return True

    def _rest(self) -> None:
        self._large_reads += 1
        if self._large_reads < LARGE_READS:
            return
        self._large_reads = 0
        if self._reading and not self._closing and not self._gone:
            self._reading = False
            self.transport.pause_reading()
            self._turn.rest(self)

    def read_on(self) -> None:
        """A turn has ended in which enough was read from it."""
        busy = self._commands is not None  # then `work` does it
        if not (busy or self._reading or self._held or self._closing or self._gone):
            self._reading = True
            self.transport.resume_reading()

    def fail(self) -> None:
        self._commands = None
        self.transport.abort()
        if self._gone:
            self._leave()

    def hold_back(self) -> None:
        """It is not reached in this turn: what it sends meanwhile can stay where it is."""
        if self._gone:
            return
        if not self._held and not self._closing:
            self.slowed.begin(COST)
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def _go_on_reading(self) -> None:
        """All that was read at once is carried out."""
        self._commands = None
        if self.session.successor is not None:
            self._hand_over()
        if self._unread:
            self._commands = self._receive(self._unread.pop(0))

    # The broker calls these

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        if self._closing or self._gone:
            return 0
        count, size = 0, batch.run.size
        for subscription in subscriptions:
            if not self._outgoing.has_room(size):  # before anything is built for it
                break
            self._outgoing.send(self._encode(batch, subscription))
            count += 1
        self.meter.messages_out += len(batch.run.payloads) * count
        if count and self._mark_after is not None:
            self._marking.delivered(self.session, batch.end)
        return count

    def offer(
        self, batch: Batch, key: tuple[str, str], again: bool, most: int
    ) -> tuple[int, Sequence[int]] | None:
        room = 0 if self._closing or self._gone else min(most, self.session.room(batch.run))
        if room <= 0:
            return None
        batch = batch.part(batch.offset, batch.offset + room)
        if not self._outgoing.has_room(batch.run.size):
            return None
        buffers, awaited = self.session.send(batch, key, again)
        for buffer in buffers:
            self._outgoing.send(buffer)
        self.meter.messages_out += len(batch.run.payloads)
        self._sent_at = self._clock.now
        return batch.end, awaited

    def retract(self, key: tuple[str, str], offsets: Sequence[int]) -> None:
        self.session.retract(key, offsets)

    def respond(self, answer: bytes) -> None:
        if self._closing or self._gone:
            return
        self._outgoing.send(answer)
        if self._outgoing.is_full():
            self.pause(ANSWERS)

    def refuse(self, command: Command, error: Refusal) -> None:
        reaction = None if self._closing else self.session.refuse(command, error)
        if isinstance(reaction, Respond):
            self.respond(reaction.answer)
        elif isinstance(reaction, Close):
            self.close(reaction.answer, reaction.reason)

    def pause(self, why: str) -> None:
        self._held.add(why)
        if not self._closing:
            self.slowed.end(COST)
            self.slowed.begin(why)
            self.hold_back()

    def resume(self, why: str) -> None:
        if why not in self._held:
            return
        self._held.remove(why)
        self.slowed.end(why)
        if self._held or self._closing:
            return
        if self._commands is not None:
            self._turn.wait(self)
        elif not self._reading and not self._gone:
            self._reading = True
            self.transport.resume_reading()

    def close(self, answer: bytes, reason: str) -> None:
        """A socket that is closed while the client's bytes arrive is reset, and the client may
        never see the answer. So only our side is closed, and what comes is dropped until the client
        has closed its own."""
        if self._closing:
            return
        self._end(answer, reason)
        self._outgoing.flush()
        transport = self.transport
        # TLS says goodbye by itself.
        if not answer or transport.is_closing() or not transport.can_write_eof():
            transport.close()
            return
        transport.write_eof()
        if not self._reading:
            transport.resume_reading()

    def challenge(self) -> None:
        probe = self.session.probe()
        if self._closing or self._challenged_at is not None or not probe:
            return
        self._challenged_at = self._clock.now
        self.respond(probe)
        self._clock.add(CHALLENGE_SECONDS, self._judge)

    def dismiss(self, error: Refusal) -> None:
        if not self._closing:
            self.close_at_once(self.session.farewell(error), str(error))

    def close_at_once(self, answer: bytes, reason: str) -> None:
        """Close it without waiting for the client."""
        self._end(answer, reason)
        self._outgoing.flush()
        self.transport.close()

    def _end(self, answer: bytes, reason: str) -> None:
        self._closing = True
        self._tell("closed", reason)
        if answer and not self._gone:
            self._outgoing.send(answer)
        self._marking.cancel()
        self._clock.remove(self._look)
        self._clock.add(LINGER_SECONDS, self._abort)

    def _drop(self, data: bytes) -> None:
        self._dropped += len(data)
        if self._dropped > LINGER_BYTES:
            self.transport.abort()

    def _tell(self, event: str, reason: str = "") -> None:
        if events.wanted():
            protocol = self.session.protocol if self._admitted else ""
            events.tell(event, self.id, protocol, self.address, reason)

    @property
    def paused(self) -> bool:
        """It is not read from."""
        return bool(self._held)

    def __str__(self) -> str:
        return f"{self.session.protocol if self._admitted else ''} {self.address}".lstrip()

    # Called now and then

    def look_at_unfinished(self, now: float) -> None:
        """A message that has begun to arrive has to arrive some day."""
        size = 0 if self._closing or self._held else self.session.unfinished
        if self._unfinished.is_overdue(size, now, self._host.unfinished_seconds):
            self.dismiss(TooLate("a message took too long to arrive", "unfinished_seconds"))

    # The clock calls these

    def _look(self) -> float | None:
        """Is the connection alive, and has it said what it came for in time?"""
        if not self.session.established or self.peer.rights.principal is NOBODY:
            left = self._host.handshake_seconds - self._clock.seconds_since(self._made_at)
            if left > 0:
                return left
            self.dismiss(TooLate("the handshake took too long", "handshake_seconds"))
            return None
        period = self.session.idle_after
        if period is None:
            return None
        alive_at = self._active_at
        if self.session.sending_is_life:
            alive_at = max(alive_at, self._sent_at)
        silent = self._clock.seconds_since(alive_at)
        if silent < period or self._outgoing.buffered:
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
        could = self._reading and not self._outgoing.buffered
        if asked_at is not None and could and self._active_at < asked_at and not self._closing:
            self._tell("closed", "it does not answer, and another client claims its place")
            self._abort()

    def _abort(self) -> None:
        self.transport.abort()
