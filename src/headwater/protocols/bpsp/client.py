"""BPSP's client side: the bytes of requests, and what a broker sends as events."""

from collections.abc import Iterator, Sequence

from headwater.errors import Code, Refusal
from headwater.message import Headers, Tiles
from headwater.protocols.base import Answered, ClientSession, Delivered, Ended, Event, Ready
from headwater.protocols.bpsp.wire import (
    ACK,
    CODE_OF,
    CONNECT,
    DEFAULT_TAG,
    ECHO,
    ERR,
    FIXED,
    INFO,
    MSG,
    OK,
    ORIGIN,
    PUB,
    STATUS,
    SUB,
    TAG,
    TOPIC,
    UNSUB,
    format_headers,
    frame,
    parse_headers,
)
from headwater.protocols.bulk import Intake, alike


def _writable(topic: str) -> str:
    if topic.endswith("\\"):
        raise Refusal(
            Code.MALFORMED, f"BPSP cannot write a topic that ends in a backslash: {topic}"
        )
    return topic


class BpspClientSession(ClientSession):
    """The client's side. Requests ask for an answer, so the open ones are settled in order."""

    def __init__(self, message_bytes: int) -> None:
        self._limit = message_bytes
        self._intake = Intake()
        self._ended = False

    def connect(self, user: str = "", password: str = "") -> bytes:
        known = (("x-username", user), ("x-password", password)) if user else ()
        return frame(CONNECT, format_headers(known), flag=ACK)

    def publish(
        self, topic: str, payloads: Sequence[bytes], headers: Headers, *, ack: bool, echo: bool
    ) -> bytes:
        raw = format_headers(((TOPIC, _writable(topic)), *headers))
        flag = (ACK if ack else 0) | (ECHO if echo else 0)
        return b"".join([frame(PUB, raw, payload, flag) for payload in payloads])

    def subscribe(self, topic: str, tag: str = DEFAULT_TAG) -> bytes:
        return frame(SUB, format_headers(((TOPIC, _writable(topic)), (TAG, tag))), flag=ACK)

    def unsubscribe(self, topic: str, tag: str = DEFAULT_TAG) -> bytes:
        return frame(UNSUB, format_headers(((TOPIC, _writable(topic)), (TAG, tag))), flag=ACK)

    def receive(self, data: bytes) -> Iterator[Event]:
        if self._ended:
            return
        for event in self._read(data):
            self._ended = isinstance(event, Ended)
            yield event
            if self._ended:
                return

    def _read(self, data: bytes) -> Iterator[Event]:
        data = self._intake.take(data)
        position = 0
        while position < len(data):
            if len(data) - position < 8:
                self._intake.keep(data[position:], 8)
                return
            headers_size, opcode, _, data_size = FIXED.unpack_from(data, position)
            if data_size > self._limit:
                yield Ended(f"the broker sent {data_size} bytes, over the limit of {self._limit}")
                return
            body = position + 8 + headers_size
            end = body + data_size
            if end > len(data):
                self._intake.keep(data[position:], end - position)
                return
            payloads: Sequence[bytes] = [data[body:end]]
            if opcode == MSG and data.startswith(data[position:body], end):
                count = alike(data, position, data[position:body], data_size)
                stop = position + count * (end - position)
                payloads = Tiles(data[position:stop], body - position, data_size)
            try:
                headers = parse_headers(data[position + 8 : body])
            except Refusal as error:
                yield Ended(f"what the broker sent makes no sense: {error}")
                return
            yield self._event(opcode, headers, payloads)
            position = end + (len(payloads) - 1) * (end - position)

    def _event(self, opcode: int, headers: Headers, payloads: Sequence[bytes]) -> Event:
        if opcode == MSG:
            found = dict(headers)
            topic = found.get(ORIGIN, found.get(TOPIC, ""))
            return Delivered(topic, payloads, headers)
        if opcode == OK:
            return Answered()
        if opcode == ERR:
            status = dict(headers).get(STATUS, "500")
            code = CODE_OF.get(status, Code.INTERNAL)
            return Answered(Refusal(code, f"{status} {payloads[0].decode(errors='replace')}"))
        if opcode == INFO:
            return Ready()
        return Ended(f"the broker sent opcode {opcode}, which only clients send")
