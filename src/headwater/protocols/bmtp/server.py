"""BMTP's broker side. The packets are drawn in wire.py.

    state        the broker reads     and does
    ──────────── ──────────────────── ─────────────────────────────────────────────────────
    CONNECTING   CONN                 CONNACK; anything else ends the connection
    CONNECTED    PUB                  PUBACK when it is durable, with QoS 1 and 2
                 SUB                  SUBACK, and sends PUB itself from then on
                 PUBACK               frees the stream id
                 PING                 PINGACK
                 PINGACK              nothing
                 DISCONN              ends the connection, as anything else does

A channel is a queue of the broker. What is sent with QoS 1 or 2 takes one of 255 stream ids until
the client's PUBACK; while none is free, the backlog stays in the log. What breaks the protocol
ends the connection without words, for the document has none.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from mypy_extensions import mypyc_attr

from headwater import topics
from headwater.commands import Acknowledge, Close, Command, Consume, Publish, Respond
from headwater.errors import Code, HeadwaterError, ProtocolViolation, Refusal
from headwater.filters import LevelFilter
from headwater.message import Batch, Run
from headwater.protocols.base import Service, ServiceCounter, Session, Terms
from headwater.protocols.bmtp.delivering import Delivering, Skips, qos_of
from headwater.protocols.bmtp.names import Channels
from headwater.protocols.bmtp.publishing import Publishing
from headwater.protocols.bmtp.settings import BmtpSettings
from headwater.protocols.bmtp.window import Key, Window
from headwater.protocols.bmtp.wire import (
    A_DISCONN,
    A_PINGACK,
    CHANNEL,
    CONN,
    DISCONN,
    DONE,
    DUP,
    HELLO,
    MAGIC,
    NAME,
    NOT_PERMITTED,
    PING,
    PINGACK,
    PUB,
    PUBACK,
    SUB,
    TYPES,
    UNAVAILABLE,
    UNSUPPORTED_VERSION,
    VERSION,
    connack,
    puback_status,
    pubacks,
    suback,
    with_streams,
)
from headwater.protocols.bulk import Intake
from headwater.queue_spec import DEAD, QueueSpec
from headwater.rights import WHO

_PUBACKS = re.compile(rb"(?:[\x40-\x4f].)*+", re.DOTALL)

#: What a reader found: the position behind it and a command, or how many bytes it would need.
Step = tuple[int, Command | None] | int


class BmtpState(Enum):
    CONNECTING = 1
    CONNECTED = 2
    CLOSED = 3


class BmtpService(Service):
    def __init__(self, settings: BmtpSettings, apps: object = None) -> None:
        self.settings = settings
        self.names = Channels(settings.channels)
        self.skips = Skips()
        self.repeat_seconds = settings.dedup_seconds

    def session(self, terms: Terms) -> "BmtpSession":
        return BmtpSession(terms, self)

    def queue(self, topic: str) -> QueueSpec:
        """The queue of a channel, which keeps what no subscriber has acknowledged."""
        shared = self.settings.delivery == "balanced"
        name = f"{NAME}/{topic}"
        return QueueSpec(
            name,
            (LevelFilter.exact(topic),),
            shared,
            from_start=True,
            dead_topic=f"{DEAD}/{name}",
            empty_seconds=self.settings.empty_channel_age,
            unused_seconds=self.settings.unused_channel_age,
        )

    def queue_spec(self, name: str) -> QueueSpec:
        return self.queue(name.removeprefix(f"{NAME}/"))

    def counters(self) -> Sequence[ServiceCounter]:
        return (self.skips.counter,)


@mypyc_attr(native_class=False)
class BmtpSession(Session):
    """The broker's side."""

    sending_is_life = True

    def __init__(self, terms: Terms, service: BmtpService) -> None:
        self.protocol = NAME
        settings = service.settings
        self.state = BmtpState.CONNECTING
        self.idle_after = settings.idle_seconds
        self._terms = terms
        self._service = service
        self._intake = Intake()
        self._window = Window()
        self._publishing = Publishing(terms, settings.dialect, settings.envelope, service.names)
        self._delivering = Delivering(settings.dialect, settings.envelope, service.skips)
        self._acknowledged: dict[Key, list[int]] = {}

    @property
    def established(self) -> bool:  # type: ignore[override]
        return self.state is BmtpState.CONNECTED

    @property
    def skipped(self) -> int:
        """Messages that were too large for a packet."""
        return self._delivering.skipped

    @property
    def unfinished(self) -> int:
        return self._intake.unfinished

    def receive(self, data: bytes) -> Iterator[Command]:
        data = self._intake.take(data)
        position = 0
        while position < len(data) and self.state is not BmtpState.CLOSED:
            try:
                if self.state is BmtpState.CONNECTED and data[position] >> 4 == PUB:
                    position, need = yield from self._publishing.read(data, position)
                    step: Step = need or (position, None)
                else:
                    step = self._read_packet(data, position)
            except ProtocolViolation as violation:
                step = position, self._end(b"", str(violation))
            if isinstance(step, int):
                self._intake.keep(data[position:], step)
                break
            position, command = step
            if isinstance(command, Close):
                yield from self._acknowledge()
            if command is not None:
                yield command
        if self._acknowledged:
            yield from self._acknowledge()

    def room(self, run: Run) -> int:
        return self._window.room if qos_of(run) else sys.maxsize

    def send(self, batch: Batch, key: Key, again: bool) -> tuple[list[bytes], Sequence[int]]:
        qos = qos_of(batch.run)
        packets, offsets = self._delivering.pubs(batch, int(key[0]), qos)
        if not qos or not packets:
            return [packets], ()
        first = PUB << 4 | qos | (DUP if again else 0)
        return [with_streams(packets, first, self._window.take(key, offsets))], offsets

    def retract(self, key: Key, offsets: Sequence[int]) -> None:
        self._window.forget(key, offsets)

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        if isinstance(command, Consume):
            return Respond(suback(NOT_PERMITTED, int(command.key[0])))
        streams = command.request if isinstance(command, Publish) else None
        if not isinstance(streams, bytes):
            return None  # QoS 0 is never answered
        return Respond(pubacks(puback_status(error.code, self._service.settings.dialect), streams))

    def idle(self, position: int) -> Command | None:
        return self._end(A_DISCONN, f"nothing was sent for {self.idle_after} seconds")

    def farewell(self, error: HeadwaterError) -> bytes:
        state, self.state = self.state, BmtpState.CLOSED
        if state is BmtpState.CONNECTING:
            return connack(UNAVAILABLE)
        return A_DISCONN if state is BmtpState.CONNECTED else b""

    def _read_packet(self, data: bytes, position: int) -> Step:
        if self.state is BmtpState.CONNECTING:
            return self._read_conn(data, position)
        kind = data[position] >> 4
        reader = _READERS.get(kind)
        if reader is None:
            what = TYPES.get(kind, f"a packet of type {kind}")
            raise ProtocolViolation(
                Code.UNKNOWN_COMMAND, f"{what} is nothing that a client can send now"
            )
        return reader(self, data, position)

    def _read_conn(self, data: bytes, position: int) -> Step:
        magic = data[position + 1 : position + len(HELLO)]
        if data[position] >> 4 != CONN or not MAGIC.startswith(magic):  # as early as can be told
            raise ProtocolViolation(Code.MALFORMED, "the connection did not begin with CONN")
        if len(magic) < len(MAGIC):
            return len(magic) + 2
        version = data[position] & 0x0F
        if version != VERSION:
            return position, self._end(
                connack(UNSUPPORTED_VERSION), f"version {version} is not supported"
            )
        if not self._terms.known:  # and it has no way to say so
            return position, self._end(connack(UNAVAILABLE), WHO)
        self.state = BmtpState.CONNECTED
        return position + len(HELLO), Respond(connack(DONE))

    def _read_sub(self, data: bytes, position: int) -> Step:
        if len(data) - position < CHANNEL.size:
            return CHANNEL.size
        _, channel = CHANNEL.unpack_from(data, position)
        return position + CHANNEL.size, self._consume(channel)

    def _consume(self, channel: int) -> Command:
        try:
            topic = topics.check(self._service.names.topic(channel), self._terms.topic_bytes)
        except Refusal:
            return Respond(suback(NOT_PERMITTED, channel))
        queue = self._service.queue(topic)
        return Consume((str(channel), ""), queue, suback(DONE, channel))

    def _read_puback(self, data: bytes, position: int) -> Step:
        """All that come in a row. Whatever the status is, the client has had the message."""
        found = _PUBACKS.match(data, position)
        end = found.end() if found else position
        if end == position:
            return 2
        self._window.release(data[position + 1 : end : 2], self._acknowledged)
        return end, None

    def _acknowledge(self) -> Iterator[Command]:
        """What one read has acknowledged goes to the broker together."""
        acknowledged, self._acknowledged = self._acknowledged, {}
        for key, offsets in acknowledged.items():
            yield Acknowledge(key, offsets)

    def _read_ping(self, data: bytes, position: int) -> Step:
        return position + 1, Respond(A_PINGACK)

    def _read_pingack(self, data: bytes, position: int) -> Step:
        return position + 1, None

    def _read_disconn(self, data: bytes, position: int) -> Step:
        return position, self._end(b"", "the client said DISCONN")

    def _end(self, answer: bytes, reason: str) -> Close:
        self.state = BmtpState.CLOSED
        return Close(answer, reason)


_READERS: dict[int, Callable[[BmtpSession, bytes, int], Step]] = {
    SUB: BmtpSession._read_sub,
    PUBACK: BmtpSession._read_puback,
    PING: BmtpSession._read_ping,
    PINGACK: BmtpSession._read_pingack,
    DISCONN: BmtpSession._read_disconn,
}
