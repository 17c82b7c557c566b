"""From PUB packets to commands.

Packets in a row with the same first byte, channel and producer become one run, whatever their
stream ids are; the run's one answer has a PUBACK for each of them. What cannot be published is
answered by itself, in its turn. A PUB with QoS 0 is never answered.
"""

from collections.abc import Generator, Sequence
from typing import NamedTuple

from headwater import topics
from headwater.commands import Command, Publish, Respond
from headwater.errors import Code, ProtocolViolation, Refusal
from headwater.message import DELIVER_AFTER, EXPIRE_AFTER, Headers, Run, Tiles
from headwater.protocols.base import Terms
from headwater.protocols.bmtp.envelope import (
    NO_WISHES,
    PRODUCER,
    SURE_BYTES,
    EnvelopeOrigin,
    Wishes,
)
from headwater.protocols.bmtp.names import Channels
from headwater.protocols.bmtp.reader import reader_of
from headwater.protocols.bmtp.settings import Dialect, EnvelopeName
from headwater.protocols.bmtp.wire import (
    DONE,
    DUP,
    MOST_PACKET_BYTES,
    NAME,
    NO_QOS,
    PUB,
    QOS_BITS,
    QOS_HEADERS,
    count_alike,
    header_size,
    puback_status,
    pubacks,
)
from headwater.protocols.bulk import LONGEST_COLUMNS, TILED

MOST_SENDERS = 64


class Sender(NamedTuple):
    """An origin in the broker's words."""

    topic: str
    publisher: str
    producer: Headers


class Gathering:
    """Packets that become one run, so far."""

    __slots__ = ("first", "origin", "payloads", "streams")

    def __init__(self, first: int, origin: EnvelopeOrigin) -> None:
        self.first = first
        self.origin = origin
        self.payloads: list[bytes] = []
        self.streams = bytearray()


class Publishing:
    def __init__(
        self, terms: Terms, dialect: Dialect, envelope: EnvelopeName, channels: Channels
    ) -> None:
        self._terms = terms
        self._dialect: Dialect = dialect
        self._reader = reader_of(envelope, dialect)
        self._channels = channels
        self._senders: dict[EnvelopeOrigin, Sender] = {}
        self._apart = 0  # packets before this position are taken one by one

    def read(self, data: bytes, position: int) -> Generator[Command, None, tuple[int, int]]:
        """The PUBs from `position` on.

        Returns where they end, and how many bytes the packet there needs if it is a PUB that is
        not complete.
        """
        run: Gathering | None = None
        need = self._apart = 0
        while position < len(data):
            first = data[position]
            if first >> 4 != PUB:
                break
            if first & QOS_BITS == NO_QOS:
                yield from self._finish(run)
                raise ProtocolViolation(Code.MALFORMED, "there is no QoS 3")
            header = header_size(first, self._dialect)
            start = position + header
            if start > len(data):
                need = header
                break
            end = start + (data[start - 2] << 8 | data[start - 1])
            if end > len(data):
                need = end - position
                break
            try:
                origin, payload = self._open(data, position, start, end)
            except Refusal as error:
                yield from self._finish(run)
                run = None
                yield from self._refused(error, first, data[position + 1 : position + 2])
                position = end
                continue
            if tiles := self._tiles(data, position, start, end):
                yield from self._finish(run)
                run = None
                stop = position + len(tiles) * (end - position)
                streams = data[position + 1 : stop : end - position]
                yield from self._publish(first, origin, tiles, streams)
                position = stop
                continue
            if run is None or first != run.first or origin != run.origin:
                yield from self._finish(run)
                run = Gathering(first, origin)
            run.payloads.append(payload)
            run.streams.append(data[position + 1])
            position = end
            if position < len(data):
                position = self._add_alike(run, data, position, header)
        yield from self._finish(run)
        return position, need

    def _open(
        self, data: bytes, position: int, start: int, end: int
    ) -> tuple[EnvelopeOrigin, bytes]:
        if end - position > MOST_PACKET_BYTES:
            raise Refusal(Code.TOO_LARGE, f"a packet has at most {MOST_PACKET_BYTES} bytes")
        origin, payload = self._reader.open(data, start, end)
        most = MOST_PACKET_BYTES - (start - position)
        if end - position > SURE_BYTES and not self._reader.fits(origin, payload, most):
            raise Refusal(Code.TOO_LARGE, "no packet to a subscriber has room for it")
        if len(payload) > self._terms.message_bytes:
            raise Refusal(
                Code.TOO_LARGE,
                f"{len(payload)} bytes are over the limit of {self._terms.message_bytes}",
                limit="message_bytes",
            )
        return origin, payload

    def _tiles(self, data: bytes, position: int, start: int, end: int) -> Tiles | None:
        """The payloads of this packet and of those behind it that are like it, if they are many."""
        step = end - position
        shape = self._reader.shape
        if len(data) - position < TILED * step or shape is None or position < self._apart:
            return None
        if step > SURE_BYTES:
            return None  # each has to be looked at
        head = data[position : start + len(shape.before)]
        tail = shape.behind
        # Unless the last of the first few is like this one, they cannot all be.
        if not data.startswith(head[2:], position + (TILED - 1) * step + 2):
            return None
        if len(head) + len(tail) > LONGEST_COLUMNS:
            return None
        stream = 1 if start - position == 4 else None
        count = count_alike(data, position, head, tail, step, stream)
        stop = position + count * step
        if not count:
            return None
        # What stands behind a payload is counted to what stands before the next one.
        tiles = Tiles(
            tail + data[position : stop - len(tail)],
            len(tail) + len(head),
            step - len(head) - len(tail),
        )
        if self._reader.accepts(tiles):
            return tiles
        self._apart = stop
        return None

    def _add_alike(self, run: Gathering, data: bytes, position: int, header: int) -> int:
        """Take a few more packets that are like the last one, and look again after that whether
        there are many of one size."""
        payloads, streams, position = self._reader.more(
            data, position, run.first, header, self._terms.message_bytes
        )
        run.payloads += payloads
        run.streams += streams
        return position

    def _finish(self, run: Gathering | None) -> tuple[Command, ...]:
        if run is None:
            return ()
        return self._publish(run.first, run.origin, run.payloads, bytes(run.streams))

    def _publish(
        self, first: int, origin: EnvelopeOrigin, payloads: Sequence[bytes], streams: bytes
    ) -> tuple[Command, ...]:
        sender = self._sender(origin)
        if isinstance(sender, Refusal):
            return self._refused(sender, first, streams)
        qos = first & QOS_BITS
        wishes = origin.wishes
        headers = QOS_HEADERS[0 if wishes.fleeting else qos] + sender.producer
        if wishes != NO_WISHES:
            headers += _wished(wishes)
        run = Run(
            sender.topic,
            payloads,
            protocol=NAME,
            publisher=sender.publisher,
            headers=headers,
        )
        if not qos:
            return (Publish(run),)
        once = streams if qos == 2 else b""
        again = qos == 2 and bool(first & DUP)
        return (Publish(run, pubacks(DONE, streams), True, streams, once, again),)

    def _refused(self, error: Refusal, first: int, streams: bytes) -> tuple[Command, ...]:
        if not first & QOS_BITS:
            return ()  # QoS 0 is never answered
        return (Respond(pubacks(puback_status(error.code, self._dialect), streams)),)

    def _sender(self, origin: EnvelopeOrigin) -> Sender | Refusal:
        known = self._senders.get(origin)
        if known is not None:
            return known
        sender = self._check(origin)
        if isinstance(sender, Sender):  # a refusal is not kept: each is counted
            if len(self._senders) >= MOST_SENDERS:
                self._senders.clear()
            self._senders[origin] = sender
        return sender

    def _check(self, origin: EnvelopeOrigin) -> Sender | Refusal:
        limit = self._terms.topic_bytes
        try:
            topic = topics.check(self._channels.topic(origin.channel), limit)
        except Refusal as error:
            return Refusal(Code.MALFORMED, str(error))
        try:
            topics.check_size(origin.producer, limit, "the producer_id")
        except Refusal as error:
            return error
        producer = ((PRODUCER, origin.producer),) if origin.producer else ()
        return Sender(topic, self._terms.user or origin.publisher or self._terms.peer, producer)


def _wished(wishes: Wishes) -> Headers:
    """When to deliver, in headers that the broker understands."""
    headers: Headers = ()
    if wishes.effect:
        headers += ((DELIVER_AFTER, str(wishes.effect * 1000)),)
    if wishes.expire:
        headers += ((EXPIRE_AFTER, str(wishes.expire * 1000)),)
    return headers
