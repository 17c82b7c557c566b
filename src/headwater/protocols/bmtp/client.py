"""BMTP's client side: the bytes of requests, and what a broker sends as events."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from headwater.errors import Code, ProtocolViolation, Refusal
from headwater.message import Headers
from headwater.protocols.base import Answered, ClientSession, Delivered, Ended, Event, Pinged, Ready
from headwater.protocols.bmtp.envelope import (
    PRODUCER,
    SURE_BYTES,
    EnvelopeOrigin,
    Opened,
    as_scalar,
    binary_bodies,
    close_json,
    json_fits,
    open_binary,
    open_delivered,
)
from headwater.protocols.bmtp.names import Channels, parse_channel
from headwater.protocols.bmtp.settings import Dialect, EnvelopeName
from headwater.protocols.bmtp.window import Window
from headwater.protocols.bmtp.wire import (
    A_DISCONN,
    A_PING,
    A_PINGACK,
    CONNACK,
    DISCONN,
    DONE,
    DUP,
    HELLO,
    MOST_PACKET_BYTES,
    NO_QOS,
    PING,
    PINGACK,
    PUB,
    PUBACK,
    QOS_BITS,
    QOS_HEADERS,
    SUBACK,
    TYPES,
    UNSUPPORTED_VERSION,
    encode_pubs,
    header_size,
    pubacks,
    subscribe,
    with_streams,
)
from headwater.protocols.bulk import Intake

# What a broker can say to PUB and SUB. Ours never says 2 or 3: it keeps messages for later.
_REFUSALS = {
    1: (Code.MALFORMED, "the broker cannot read the envelope"),
    2: (Code.UNAVAILABLE, "nobody is subscribed, and the broker keeps nothing"),
    3: (Code.UNAVAILABLE, "no subscriber has room, and the broker keeps nothing"),
    4: (Code.NOT_PERMITTED, "not permitted"),
    5: (Code.TOO_LARGE, "too large, or more than the broker has room for"),
}
_SIZES = {CONNACK: 1, PUBACK: 2, SUBACK: 5, PING: 1, PINGACK: 1, DISCONN: 1}
_MINE = ("", "")


def _nothing() -> None:
    pass


class BmtpClientSession(ClientSession):
    """The client's side.

    PUB and SUB are answered in the order in which they were sent. `freed` is called when a PUBACK
    has made room for more PUBs.
    """

    HELLO, PING, DISCONN = HELLO, A_PING, A_DISCONN

    def __init__(
        self,
        dialect: Dialect = "document",
        envelope: EnvelopeName = "json",
        channels: Mapping[int, str] | None = None,
        freed: Callable[[], None] = _nothing,
    ) -> None:
        self._dialect: Dialect = dialect
        self._envelope: EnvelopeName = envelope
        self._channels = Channels(channels or {})
        self._freed = freed
        self._intake = Intake()
        self._window = Window()
        self._resent: dict[int, bytes] = {}  # by stream id: what was sent again
        self._ended = False

    @property
    def room(self) -> int:
        """How many PUBs with QoS 1 or 2 can be sent now."""
        return self._window.room

    def channel(self, name: str) -> int:
        """The channel that has this topic, or this number."""
        channel = self._channels.channel(name)
        if channel is None:
            channel = parse_channel(name)
        if channel is None:
            raise Refusal(Code.MALFORMED, f"no BMTP channel has this topic: {name}")
        return channel

    def subscribe(self, name: str) -> bytes:
        return subscribe(self.channel(name))

    def bodies(self, name: str, payloads: Sequence[bytes], headers: Headers = ()) -> list[bytes]:
        """The payloads in envelopes. Of headers, BMTP has the producer only."""
        producer = dict(headers).get(PRODUCER, "") if self._envelope == "json" else ""
        if len(headers) > bool(producer):
            raise Refusal(Code.MALFORMED, "BMTP has no headers")
        origin = EnvelopeOrigin(self.channel(name), as_scalar(producer))
        if self._envelope == "json":
            bodies = close_json(origin.channel, payloads, origin.producer)
        else:
            bodies = binary_bodies(origin.channel, payloads)
        if max(map(len, bodies), default=0) > SURE_BYTES - 4:
            for body, payload in zip(bodies, payloads, strict=True):
                self._check_size(body, payload, origin)
        return bodies

    def _check_size(self, body: bytes, payload: bytes, origin: EnvelopeOrigin) -> None:
        most = MOST_PACKET_BYTES - 4
        fits = self._envelope == "binary" or json_fits(origin, payload, most)
        if len(body) > most or not fits:
            raise Refusal(Code.TOO_LARGE, "the message is too large for a BMTP packet")

    def publish(self, bodies: Sequence[bytes], qos: int, again: bool = False) -> bytes:
        """PUBs for these envelopes; with QoS 1 and 2, `room` for all of them is needed."""
        first = PUB << 4 | qos | (DUP if again and qos else 0)
        pubs = encode_pubs(first, bodies, header_size(first, self._dialect))
        if not qos or not bodies:
            return pubs
        streams = self._streams_again(bodies) if again else self._streams(bodies)
        return with_streams(pubs, first, streams)

    def _streams(self, bodies: Sequence[bytes]) -> bytes:
        """A stream id for each of these messages, which are new."""
        streams = self._window.take(_MINE, range(len(bodies)))
        if self._resent:
            for stream in streams:
                self._resent.pop(stream, None)
        return streams

    def _streams_again(self, bodies: Sequence[bytes]) -> bytes:
        """A message that this connection has sent again before keeps its stream id: under another
        one it would be another message."""
        known: dict[bytes, list[int]] = {}
        for stream, body in self._resent.items():
            known.setdefault(body, []).append(stream)
        kept = [known[body].pop(0) if known.get(body) else 0 for body in bodies]
        self._window.take_these(_MINE, bytes(filter(None, kept)))
        taken = iter(self._window.take(_MINE, range(kept.count(0))))
        streams = bytes(stream or next(taken) for stream in kept)
        self._resent.update(zip(streams, bodies, strict=True))
        return streams

    def receive(self, data: bytes) -> Iterator[Event]:
        data = self._intake.take(data)
        position = 0
        while position < len(data) and not self._ended:
            try:
                size = self._packet_size(data, position)
                if len(data) - position < size:
                    self._intake.keep(data[position:], size)
                    return
                found, position = self._read(data, position, size)
            except (ProtocolViolation, Refusal) as error:
                found = (Ended(f"what the broker sent makes no sense: {error}"),)
            for event in found:
                self._ended = isinstance(event, Ended)
                yield event

    def _packet_size(self, data: bytes, position: int) -> int:
        first = data[position]
        kind = first >> 4
        if kind != PUB:
            if kind not in _SIZES:
                what = TYPES.get(kind, f"a packet of type {kind}")
                raise ProtocolViolation(Code.UNKNOWN_COMMAND, f"it sent {what}")
            return _SIZES[kind]
        if first & QOS_BITS == NO_QOS:
            raise ProtocolViolation(Code.MALFORMED, "there is no QoS 3")
        header = header_size(first, self._dialect)
        if len(data) - position < header:
            return header
        start = position + header
        return header + (data[start - 2] << 8 | data[start - 1])

    def _read(self, data: bytes, position: int, size: int) -> tuple[tuple[Event, ...], int]:
        kind, low = data[position] >> 4, data[position] & 0x0F
        end = position + size
        if kind == PUB:
            delivered, end = self._read_pubs(data, position, end)
            return (delivered,), end
        if kind == CONNACK:
            return _welcome(low), end
        if kind == PUBACK:
            self._window.release(data[position + 1 : end], {})
            self._freed()
            return (_answered(low),), end
        if kind == SUBACK:
            return (_answered(low),), end
        if kind == PING:
            return (Pinged(A_PINGACK),), end
        if kind == DISCONN:
            return (Ended("the broker said DISCONN"),), end
        return (), end

    def _read_pubs(self, data: bytes, position: int, end: int) -> tuple[Delivered, int]:
        """One message, and those behind it that have all but the payload in common."""
        first = data[position]
        header = header_size(first, self._dialect)
        payloads: list[bytes] = []
        streams = bytearray()
        origin: EnvelopeOrigin | None = None
        while end <= len(data):
            try:
                opened = self._open(data[position + header : end])
            except Refusal:
                if origin is None:
                    raise
                break  # what came before it is right
            if origin is not None and opened.origin != origin:
                break
            origin = opened.origin
            payloads.append(opened.payload)
            streams.append(data[position + 1])
            position = end
            if position == len(data) or data[position] != first:
                break
            end = position + self._packet_size(data, position)
        assert origin is not None
        return self._delivered(first, origin, payloads, bytes(streams)), position

    def _open(self, body: bytes) -> Opened:
        return open_delivered(body) if self._envelope == "json" else open_binary(body)

    def _delivered(
        self, first: int, origin: EnvelopeOrigin, payloads: list[bytes], streams: bytes
    ) -> Delivered:
        qos = first & QOS_BITS
        headers = QOS_HEADERS[qos]
        if origin.producer:
            headers += ((PRODUCER, origin.producer),)
        if first & DUP:
            headers += (("dup", "1"),)
        receipts = [pubacks(DONE, bytes([stream])) for stream in streams] if qos else []
        return Delivered(self._channels.topic(origin.channel), payloads, headers, receipts)


def _welcome(status: int) -> tuple[Event, ...]:
    """CONNACK answers CONN, and is the broker's greeting too."""
    if status == DONE:
        return Ready(), Answered()
    if status == UNSUPPORTED_VERSION:
        sentence = "the broker does not support this version of BMTP"
        return (Answered(Refusal(Code.NOT_PERMITTED, sentence)),)
    return (Ended(f"the broker is not available now (CONNACK {status})"),)


def _answered(status: int) -> Event:
    if status == DONE:
        return Answered()
    code, sentence = _REFUSALS.get(status, (Code.INTERNAL, "the broker could not do it"))
    return Answered(Refusal(code, f"{sentence} (status {status})"))
