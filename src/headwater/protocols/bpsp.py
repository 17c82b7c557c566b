"""BPSP: one kind of frame, eight opcodes, text headers.

     0        2        3      4              8                 8 + V                 8 + V + D
    +--------+--------+------+--------------+------------------+---------------------+
    | V: u16 | opcode | flag | D: u32       | variable headers | data                |
    +--------+--------+------+--------------+------------------+---------------------+

    variable headers:  "key""value";"key""value";      where \\" is the only escape

    opcode      sent by   meaning
    1 INFO      broker    greeting, once, as soon as the connection is there
    2 CONNECT   client    who it is
    3 PUB       client    a message for x-topic
    4 SUB       client    a subscription of x-topic, named x-sub-tag
    5 UNSUB     client    the end of that subscription
    6 MSG       broker    a message for a subscription
    7 +OK       broker    done, where the request's flag asked for an answer
    8 -ERR      broker    not done; x-status-code says why

Integers are big-endian. A client without the ACK flag hears of a failure only if it ends the
connection; then it always does, before the end.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct

from headwater import __version__, topics
from headwater.commands import (
    Close,
    Command,
    Identify,
    Publish,
    Respond,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from headwater.errors import Code, HeadwaterError, ProtocolViolation, Refusal
from headwater.filters import ONE_LEVEL, REST, LevelFilter
from headwater.message import Batch, Headers, Run, Tiles
from headwater.protocols.base import (
    TILED,
    Answered,
    ClientSession,
    Delivered,
    Ended,
    Event,
    Intake,
    Ready,
    Session,
    Terms,
    alike,
)

NAME = "bpsp"

INFO, CONNECT, PUB, SUB, UNSUB, MSG, OK, ERR = range(1, 9)
OPCODES = {1: "INFO", 2: "CONNECT", 3: "PUB", 4: "SUB", 5: "UNSUB", 6: "MSG", 7: "+OK", 8: "-ERR"}
ACK = 0x80  # the client wants +OK or -ERR
ECHO = 0x40  # the publisher's own subscriptions get the message too

TOPIC, ORIGIN, TAG, FROM, STATUS = (
    "x-topic",
    "x-origin-topic",
    "x-sub-tag",
    "x-from",
    "x-status-code",
)
DEFAULT_TAG = "_0"
# Said by the broker on MSG, so a publisher's own headers of these names do not travel.
_BROKERS_OWN = frozenset((TOPIC, ORIGIN, TAG, FROM))

STATUS_OF = {
    Code.MALFORMED: 400,
    Code.NOT_PERMITTED: 403,
    Code.NOT_FOUND: 404,
    Code.UNKNOWN_COMMAND: 405,
    Code.ALREADY_EXISTS: 409,
    Code.TOO_LARGE: 413,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.NO_SPACE: 507,
}
_CODE_OF = {status: code for code, status in STATUS_OF.items()}

HEADERS_LIMIT = 0xFFFF
# A MSG carries the publisher's headers and up to four of the broker's: leave room for those.
PUBLISHED_HEADERS_LIMIT = 0x8000

_FIXED = Struct(">HBBI")
_HEADERS_SIZE = Struct(">H")
_DATA_SIZE = Struct(">I")
# Possessive, so that a backslash before a quote is an escape on every attempt.
_PAIR = re.compile(r'"((?:\\"|[^"])*+)""((?:\\"|[^"])*+)";', re.DOTALL)
# Requests that a connection repeats are parsed once; so many, of so many bytes, are remembered.
_REMEMBERED_REQUESTS = 1024
_REMEMBERED_BYTES = 256


def parse_headers(raw: bytes) -> Headers:
    """The pairs in their order; of a repeated key, the last value."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Refusal(Code.MALFORMED, "the headers are not UTF-8") from None
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            raise Refusal(Code.MALFORMED, f"malformed headers at character {position}")
        key, value = pair.groups()
        found[key.replace('\\"', '"')] = value.replace('\\"', '"')
        position = pair.end()
    return tuple(found.items())


def format_headers(headers: Headers) -> bytes:
    """Pairs whose text ends in a backslash are left out: nothing can stand for that character
    before a closing quote."""
    text = "".join([f'"{key}""{value}";' for key, value in headers])
    if "\\" in text or text.count('"') != 4 * len(headers):
        text = "".join([_escaped(key, value) for key, value in headers])
    return text.encode()


def _escaped(key: str, value: str) -> str:
    if key.endswith("\\") or value.endswith("\\"):
        return ""
    return '"{}""{}";'.format(key.replace('"', '\\"'), value.replace('"', '\\"'))


def frame(opcode: int, headers: bytes = b"", data: bytes = b"", flag: int = 0) -> bytes:
    return _FIXED.pack(len(headers), opcode, flag, len(data)) + headers + data


@dataclass(frozen=True, slots=True)
class Request:
    """A client's frame up to its data: publishers repeat it, so it is parsed once."""

    opcode: int
    flag: int
    headers: Headers
    topic: str = ""
    tag: str = DEFAULT_TAG
    published: Headers = ()  # the headers that travel with a message
    ok: bytes = b""  # the +OK that answers it, if one is wanted
    error: Refusal | None = None

    @property
    def wants_answer(self) -> bool:
        return bool(self.flag & ACK)


class ServerSession(Session):
    """The broker's side."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._intake = Intake()
        self._closed = False
        self._publisher = terms.peer
        self._requests: dict[bytes, Request] = {}

    def greet(self) -> bytes:
        about = (
            ("x-server", "headwater"),
            ("x-version", __version__),
            ("x-max-data-size", str(self._terms.message_bytes)),
        )
        return frame(INFO, format_headers(about))

    def receive(self, data: bytes) -> Iterator[Command]:
        data = self._intake.take(data)
        position = 0
        while position < len(data) and not self._closed:
            try:
                need = self._frame_size(data, position)
            except ProtocolViolation as violation:
                yield Close(self.farewell(violation), str(violation))
                return
            if len(data) - position < need:
                self._intake.keep(data[position:], need)
                return
            position, command = self._read_frames(data, position, need)
            if command is not None:
                yield command

    def encode(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> list[bytes]:
        run = batch.run
        buffers = []
        for subscription in subscriptions:
            variant = (NAME, subscription.key)
            frames = run.encoded.get(variant)
            if frames is None:
                frames = run.encoded[variant] = _encode_delivery(run, *subscription.key)
            buffers.append(frames)
        return buffers

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        if isinstance(command, Publish):
            request, count = command.request, len(command.run)
        else:
            request, count = getattr(command, "request", None), 1
        if not isinstance(request, Request) or not request.wants_answer:
            return None
        return Respond(_error(error, request.headers) * count)

    def farewell(self, error: HeadwaterError) -> bytes:
        self._closed = True
        return _error(error, ())

    def _frame_size(self, data: bytes, position: int) -> int:
        """How many bytes the frame at `position` has, as far as that can be told yet."""
        if len(data) - position < 3:
            return 8
        opcode = data[position + 2]
        if opcode not in (CONNECT, PUB, SUB, UNSUB):
            name = OPCODES.get(opcode)
            sentence = f"a client does not send {name}" if name else f"unknown opcode {opcode}"
            raise ProtocolViolation(Code.UNKNOWN_COMMAND, sentence)
        if len(data) - position < 8:
            return 8
        headers_size, _, _, data_size = _FIXED.unpack_from(data, position)
        if data_size > self._terms.message_bytes:  # told before anything is allocated for it
            raise ProtocolViolation(
                Code.TOO_LARGE,
                f"{data_size} bytes of data are over the limit of {self._terms.message_bytes}",
            )
        return 8 + int(headers_size) + int(data_size)

    def _read_frames(self, data: bytes, position: int, size: int) -> tuple[int, Command | None]:
        """One request, or a whole run of PUBs that differ in their data only."""
        self.established = True
        (headers_size,) = _HEADERS_SIZE.unpack_from(data, position)
        body = position + 8 + headers_size
        request = self._request(data[position + 2 : position + 4] + data[position + 8 : body])
        end = position + size
        if request.error is not None:
            return end, self._refused(request, request.error)
        if request.opcode == PUB:
            return self._publish(request, data, position, body, end)
        try:
            return end, _HANDLERS[request.opcode](self, request)
        except Refusal as error:
            return end, self._refused(request, error)

    def _publish(
        self, request: Request, data: bytes, position: int, body: int, end: int
    ) -> tuple[int, Command]:
        payloads, position = self._read_payloads(data, position, body, end)
        run = Run(
            request.topic,
            payloads,
            protocol=NAME,
            publisher=self._publisher,
            headers=request.published,
        )
        answer = request.ok * len(payloads)
        return position, Publish(run, answer, bool(request.flag & ECHO), request)

    def _read_payloads(
        self, data: bytes, position: int, body: int, end: int
    ) -> tuple[Sequence[bytes], int]:
        """The data of the PUBs from `position` on that have the same flag and headers."""
        mark, headers = data[position : position + 4], data[position + 8 : body]
        payloads: list[bytes] = []
        while end - body <= self._terms.message_bytes and end <= len(data):
            prefix = data[position:body]
            if (
                data.startswith(prefix, end)
                and (count := alike(data, position, prefix, end - body)) >= TILED
            ):
                if payloads:
                    break  # the next call takes them as they are
                stop = position + count * (end - position)
                return Tiles(data[position:stop], body - position, end - body), stop
            payloads.append(data[body:end])
            position = end
            if not data.startswith(mark, position) or not data.startswith(headers, position + 8):
                break
            body = position + 8 + len(headers)
            end = body + _DATA_SIZE.unpack_from(data, position + 4)[0]
        return payloads, position

    def _connect(self, request: Request) -> Command:
        headers = dict(request.headers)
        name = headers.get("x-username") or headers.get("x-usename", "")
        if len(name) > self._terms.topic_bytes:
            raise Refusal(Code.TOO_LARGE, "the user name is too long")
        self._publisher = name or self._terms.peer
        return Identify(self._publisher, headers.get("x-password", ""), request.ok, request)

    def _subscribe(self, request: Request) -> Command:
        key = (request.topic, request.tag)
        return Subscribe(key, LevelFilter.parse(request.topic), request.ok, None, request)

    def _unsubscribe(self, request: Request) -> Command:
        return Unsubscribe((request.topic, request.tag), request.ok, request)

    def _refused(self, request: Request, error: Refusal) -> Command | None:
        return Respond(_error(error, request.headers)) if request.wants_answer else None

    def _request(self, prefix: bytes) -> Request:
        """The request that begins with these bytes (opcode, flag, headers)."""
        request = self._requests.get(prefix)
        if request is None:
            request = self._parse_request(prefix)
            if len(prefix) <= _REMEMBERED_BYTES:
                if len(self._requests) >= _REMEMBERED_REQUESTS:
                    self._requests.clear()
                self._requests[prefix] = request
        return request

    def _parse_request(self, prefix: bytes) -> Request:
        opcode, flag = prefix[0], prefix[1]
        headers: Headers = ()
        try:
            headers = parse_headers(prefix[2:])
            topic, tag = self._check(opcode, dict(headers), len(prefix) - 2)
        except Refusal as error:
            return Request(opcode, flag, headers, error=error)
        ok = _answer(OK, 200, headers, b"") if flag & ACK else b""
        published = tuple(pair for pair in headers if pair[0] not in _BROKERS_OWN)
        return Request(opcode, flag, headers, topic, tag, published, ok)

    def _check(self, opcode: int, headers: dict[str, str], size: int) -> tuple[str, str]:
        if opcode == CONNECT:
            return "", DEFAULT_TAG
        topic = topics.check(headers.get(TOPIC, ""), self._terms.topic_bytes)
        tag = headers.get(TAG, DEFAULT_TAG)
        if len(tag) > self._terms.topic_bytes:
            raise Refusal(Code.TOO_LARGE, "the subscription's tag is too long")
        if opcode == PUB and not {ONE_LEVEL, REST}.isdisjoint(topic.split("/")):
            raise Refusal(Code.MALFORMED, f"a message cannot be published to a wildcard: {topic}")
        if opcode == PUB and size > PUBLISHED_HEADERS_LIMIT:
            raise Refusal(Code.TOO_LARGE, f"the headers are over {PUBLISHED_HEADERS_LIMIT} bytes")
        return topic, tag


_HANDLERS: dict[int, Callable[[ServerSession, Request], Command]] = {
    CONNECT: ServerSession._connect,
    SUB: ServerSession._subscribe,
    UNSUB: ServerSession._unsubscribe,
}


def _encode_delivery(run: Run, pattern: str, tag: str) -> bytes:
    """MSG frames for one subscription."""
    headers = _brokers_headers(pattern, run.topic, tag, run.publisher)
    if run.headers:
        published = format_headers(run.headers)
        if len(headers) + len(published) <= HEADERS_LIMIT:
            headers += published
    payloads = list(run.payloads)
    prefixes = {
        size: _FIXED.pack(len(headers), MSG, 0, size) + headers for size in set(map(len, payloads))
    }
    if len(prefixes) == 1:
        (prefix,) = prefixes.values()
        return prefix + prefix.join(payloads)
    return b"".join([part for body in payloads for part in (prefixes[len(body)], body)])


# A publisher that sends one message at a time would pay for building the same text each time.
@lru_cache(maxsize=4096)
def _brokers_headers(pattern: str, topic: str, tag: str, publisher: str) -> bytes:
    return format_headers(((TOPIC, pattern), (ORIGIN, topic), (TAG, tag), (FROM, publisher)))


def _answer(opcode: int, status: int, request_headers: Headers, data: bytes) -> bytes:
    told = tuple(pair for pair in request_headers if pair[0] not in ("x-password", STATUS))
    headers = format_headers(((STATUS, str(status)), *told))
    if len(headers) > HEADERS_LIMIT:
        headers = format_headers(((STATUS, str(status)),))
    return frame(opcode, headers, data)


def _error(error: HeadwaterError, request_headers: Headers) -> bytes:
    """The one place where an error becomes -ERR."""
    code = getattr(error, "code", Code.INTERNAL)
    return _answer(ERR, STATUS_OF[code], request_headers, str(error).encode())


class Client(ClientSession):
    """The client's side. Requests ask for an answer, so the open ones are settled in order."""

    def __init__(self, message_bytes: int) -> None:
        self._limit = message_bytes
        self._intake = Intake()

    def connect(self, user: str = "", password: str = "") -> bytes:
        known = (("x-username", user), ("x-password", password)) if user else ()
        return frame(CONNECT, format_headers(known), flag=ACK)

    def publish(
        self, topic: str, payloads: Sequence[bytes], headers: Headers, *, ack: bool, echo: bool
    ) -> bytes:
        raw = format_headers(((TOPIC, topic), *headers))
        flag = (ACK if ack else 0) | (ECHO if echo else 0)
        return b"".join([frame(PUB, raw, payload, flag) for payload in payloads])

    def subscribe(self, topic: str, tag: str = DEFAULT_TAG) -> bytes:
        return frame(SUB, format_headers(((TOPIC, topic), (TAG, tag))), flag=ACK)

    def unsubscribe(self, topic: str, tag: str = DEFAULT_TAG) -> bytes:
        return frame(UNSUB, format_headers(((TOPIC, topic), (TAG, tag))), flag=ACK)

    def receive(self, data: bytes) -> Iterator[Event]:
        data = self._intake.take(data)
        position = 0
        while position < len(data):
            if len(data) - position < 8:
                self._intake.keep(data[position:], 8)
                return
            headers_size, opcode, _, data_size = _FIXED.unpack_from(data, position)
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
            status = int(dict(headers).get(STATUS, "500"))
            code = _CODE_OF.get(status, Code.INTERNAL)
            return Answered(Refusal(code, f"{status} {payloads[0].decode(errors='replace')}"))
        if opcode == INFO:
            return Ready()
        return Ended(f"the broker sent opcode {opcode}, which only clients send")
