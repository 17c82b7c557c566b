"""BPSP's broker side. The layout of frames and the opcodes are drawn in wire.py.

A client without the ACK flag hears of a failure only if it ends the connection; then it always
does, before the end.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from mypy_extensions import mypyc_attr

from headwater import __version__, topics
from headwater.commands import (
    Close,
    Command,
    Identify,
    Password,
    Publish,
    Respond,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from headwater.errors import Code, HeadwaterError, ProtocolViolation, Refusal
from headwater.filters import ONE_LEVEL, REST, LevelFilter
from headwater.message import Batch, Headers, Run, Tiles
from headwater.protocols.base import Service, Session, Terms
from headwater.protocols.bpsp.wire import (
    ACK,
    CONNECT,
    DATA_SIZE,
    DEFAULT_TAG,
    ECHO,
    ERR,
    FIXED,
    FROM,
    HEADERS_LIMIT,
    HEADERS_SIZE,
    INFO,
    MSG,
    NAME,
    OK,
    OPCODES,
    ORIGIN,
    PUB,
    STATUS,
    STATUS_OF,
    SUB,
    TAG,
    TOPIC,
    UNSUB,
    format_headers,
    frame,
    parse_headers,
)
from headwater.protocols.bulk import TILED, Intake, alike, with_headers

# Said by the broker on MSG, so a publisher's own headers of these names do not travel.
_BROKERS_OWN = frozenset((TOPIC, ORIGIN, TAG, FROM))
# A MSG carries the publisher's headers and up to four of the broker's: leave room for those.
PUBLISHED_HEADERS_LIMIT = 0x8000
# A PUB that clients repeat is parsed once; those of the last so many, of so many bytes, are
# remembered, and as many that came before them.
_REMEMBERED_REQUESTS = 8_192
_REMEMBERED_BYTES = 256


class BpspRequest:
    """A client's frame up to its data: publishers repeat it, so it is parsed once. Treat it as
    frozen; building a frozen dataclass takes much longer, and there may be a topic per message."""

    __slots__ = ("error", "flag", "headers", "ok", "opcode", "published", "tag", "topic")

    def __init__(
        self,
        opcode: int,
        flag: int,
        headers: Headers,
        topic: str = "",
        tag: str = DEFAULT_TAG,
        published: Headers = (),
        ok: bytes = b"",
        error: Refusal | None = None,
    ) -> None:
        self.opcode = opcode
        self.flag = flag
        self.headers = headers
        self.topic = topic
        self.tag = tag
        self.published = published  # the headers that travel with a message
        self.ok = ok  # the +OK that answers it, if one is wanted
        self.error = error

    @property
    def wants_answer(self) -> bool:
        return bool(self.flag & ACK)

    @property
    def echo(self) -> bool:
        return bool(self.flag & ECHO)


class RequestCache:
    """The PUBs that the clients of a broker have sent lately, by opcode, flag and headers."""

    def __init__(self) -> None:
        self._new: dict[bytes, BpspRequest] = {}
        self._old: dict[bytes, BpspRequest] = {}

    def find(self, prefix: bytes) -> BpspRequest | None:
        found = self._new.get(prefix)
        if found is None:
            found = self._old.get(prefix)
            if found is not None:
                self.add(prefix, found)
        return found

    def add(self, prefix: bytes, request: BpspRequest) -> None:
        if len(prefix) > _REMEMBERED_BYTES:
            return
        if len(self._new) >= _REMEMBERED_REQUESTS:
            self._old, self._new = self._new, {}
        self._new[prefix] = request


class _Usual:
    """A PUB that a client has sent alone, and will send again with other data."""

    __slots__ = ("_headers", "_mark", "_most", "_prefix", "_size", "body", "request")

    def __init__(self, request: BpspRequest, mark: bytes, headers: bytes, most: int) -> None:
        self.request = request
        self.body = 8 + len(headers)
        self._mark, self._headers, self._most = mark, headers, most
        self._size, self._prefix = -1, b""  # of the last one

    def is_all(self, data: bytes) -> bool:
        """Whether these bytes are that PUB and nothing else."""
        if len(data) == self._size and data.startswith(self._prefix):
            return True
        size = len(data) - self.body
        if (
            0 <= size <= self._most
            and data.startswith(self._mark)
            and data.startswith(self._headers, 8)
            and DATA_SIZE.unpack_from(data, 4)[0] == size
        ):
            self._size, self._prefix = len(data), data[: self.body]
            return True
        return False


@mypyc_attr(native_class=False)
class BpspService(Service):
    def __init__(self, settings: object = None, apps: object = None) -> None:
        """There is nothing to choose."""
        self._requests = RequestCache()

    def session(self, terms: Terms) -> "BpspSession":
        return BpspSession(terms, self._requests)


@mypyc_attr(native_class=False)
class BpspSession(Session):
    """The broker's side."""

    def __init__(self, terms: Terms, requests: RequestCache | None = None) -> None:
        self.protocol = NAME
        self._terms = terms
        self._intake = Intake()
        self._closed = False
        self._publisher = self._known_as = terms.publisher
        self._requests = requests or RequestCache()
        self._usual: _Usual | None = None

    def greet(self) -> bytes:
        about = (
            ("x-server", "headwater"),
            ("x-version", __version__),
            ("x-max-data-size", str(self._terms.message_bytes)),
        )
        # Some tools print the data, and that there was no response if there are none.
        return frame(INFO, format_headers(about), f"Headwater {__version__}\n".encode())

    @property
    def unfinished(self) -> int:
        return self._intake.unfinished

    def receive(self, data: bytes) -> Iterator[Command]:
        data = self._intake.take(data)
        # Most clients of a fleet send one message at a time, and the same but for its data.
        if (usual := self._usual) is not None and usual.is_all(data):
            return iter((_publish(usual.request, [data[usual.body :]], self._publisher),))
        return self._read(data)

    def _read(self, data: bytes) -> Iterator[Command]:
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

    def encode(self, batch: Batch, subscription: Subscription) -> bytes:
        run, key = batch.run, subscription.key
        variant = (NAME, key)
        frames = run.recall(variant)
        if frames is None:
            frames = run.remember(variant, _encode_delivery(run, key[0], key[1]))
        return frames

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        if isinstance(command, Identify):
            self._publisher = self._known_as
        if isinstance(command, Publish):
            request, count = command.request, len(command.run)
        else:
            request, count = getattr(command, "request", None), 1
        if not isinstance(request, BpspRequest) or not request.wants_answer:
            return None
        return Respond(_error(error, request.headers) * count)

    def farewell(self, error: HeadwaterError) -> bytes:
        self._closed = True
        self._usual = None
        return _error(error, ())

    def _frame_size(self, data: bytes, position: int) -> int:
        """How many bytes the frame at `position` has, as far as that can be told yet."""
        if len(data) - position < 3:
            return 3
        opcode = data[position + 2]
        if opcode not in (CONNECT, PUB, SUB, UNSUB):
            name = OPCODES.get(opcode)
            sentence = f"a client does not send {name}" if name else f"unknown opcode {opcode}"
            raise ProtocolViolation(Code.UNKNOWN_COMMAND, sentence)
        if len(data) - position < 8:
            return 8
        headers_size, _, _, data_size = FIXED.unpack_from(data, position)
        if data_size > self._terms.message_bytes:  # told before anything is allocated for it
            raise ProtocolViolation(
                Code.TOO_LARGE,
                f"{data_size} bytes of data are over the limit of {self._terms.message_bytes}",
                limit="message_bytes",
            )
        return 8 + int(headers_size) + int(data_size)

    def _read_frames(self, data: bytes, position: int, size: int) -> tuple[int, Command | None]:
        """One request, or a whole run of PUBs that differ in their data only."""
        self.established = True
        (headers_size,) = HEADERS_SIZE.unpack_from(data, position)
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
        self, request: BpspRequest, data: bytes, position: int, body: int, end: int
    ) -> tuple[int, Command]:
        payloads, stop = self._read_payloads(data, position, body, end)
        if stop == len(data) and len(payloads) == 1:
            self._usual = _Usual(
                request,
                data[position : position + 4],
                data[position + 8 : body],
                self._terms.message_bytes,
            )
        return stop, _publish(request, payloads, self._publisher)

    def _read_payloads(
        self, data: bytes, position: int, body: int, end: int
    ) -> tuple[Sequence[bytes], int]:
        """The data of the PUBs from `position` on that have the same flag and headers."""
        mark, headers = data[position : position + 4], data[position + 8 : body]
        payloads: list[bytes] = []
        while end - body <= self._terms.message_bytes and end <= len(data):
            prefix = data[position:body]
            step, size = end - position, end - body
            count = alike(data, position, prefix, size) if data.startswith(prefix, end) else 1
            stop = position + count * step
            if count >= TILED:
                if payloads:
                    break  # the next call takes them as they are
                return Tiles(data[position:stop], len(prefix), size), stop
            bodies = range(body, body + count * step, step)
            payloads += [data[start : start + size] for start in bodies]
            position = stop
            if not data.startswith(mark, position) or not data.startswith(headers, position + 8):
                break
            body = position + 8 + len(headers)
            end = body + DATA_SIZE.unpack_from(data, position + 4)[0]
        return payloads, position

    def _connect(self, request: BpspRequest) -> Command:
        headers = dict(request.headers)
        name = headers.get("x-username") or headers.get("x-usename", "")
        topics.check_size(name, self._terms.topic_bytes, "the user name")
        password = headers.get("x-password", "")
        claim = Password(name, password) if password else None
        self._known_as, self._publisher = self._publisher, name or self._terms.publisher
        return Identify(self._publisher, claim, request.ok, request)

    def _subscribe(self, request: BpspRequest) -> Command:
        key = (request.topic, request.tag)
        return Subscribe(key, LevelFilter.parse(request.topic), request.ok, None, request)

    def _unsubscribe(self, request: BpspRequest) -> Command:
        return Unsubscribe((request.topic, request.tag), request.ok, request)

    def _refused(self, request: BpspRequest, error: Refusal) -> Command | None:
        return Respond(_error(error, request.headers)) if request.wants_answer else None

    def _request(self, prefix: bytes) -> BpspRequest:
        """The request that begins with these bytes (opcode, flag, headers)."""
        request = self._requests.find(prefix)
        if request is None:
            request = self._parse_request(prefix)
            # Others are not repeated, and what is refused is refused, and counted, each time.
            if request.opcode == PUB and request.error is None:
                self._requests.add(prefix, request)
        return request

    def _parse_request(self, prefix: bytes) -> BpspRequest:
        opcode, flag = prefix[0], prefix[1]
        headers: Headers = ()
        try:
            headers = parse_headers(prefix[2:])
            topic, tag = self._check(opcode, headers, len(prefix) - 2)
        except Refusal as error:
            return BpspRequest(opcode, flag, headers, error=error)
        ok = _answer(OK, 200, headers, b"") if flag & ACK else b""
        published = tuple([pair for pair in headers if pair[0] not in _BROKERS_OWN])
        return BpspRequest(opcode, flag, headers, topic, tag, published, ok)

    def _check(self, opcode: int, headers: Headers, size: int) -> tuple[str, str]:
        if opcode == CONNECT:
            return "", DEFAULT_TAG
        topic, tag = "", DEFAULT_TAG
        for name, value in headers:
            if name == TOPIC:
                topic = value
            elif name == TAG:
                tag = value
        topic = topics.check(topic, self._terms.topic_bytes)
        topics.check_size(tag, self._terms.topic_bytes, "the subscription's tag")
        if opcode == PUB and _has_wildcard(topic):
            raise Refusal(Code.MALFORMED, f"a message cannot be published to a wildcard: {topic}")
        if opcode == PUB and size > PUBLISHED_HEADERS_LIMIT:
            raise Refusal(Code.TOO_LARGE, f"the headers are over {PUBLISHED_HEADERS_LIMIT} bytes")
        return topic, tag


_HANDLERS: dict[int, Callable[[BpspSession, BpspRequest], Command]] = {
    CONNECT: BpspSession._connect,
    SUB: BpspSession._subscribe,
    UNSUB: BpspSession._unsubscribe,
}


def _publish(request: BpspRequest, payloads: Sequence[bytes], publisher: str) -> Publish:
    run = Run(
        request.topic,
        payloads,
        protocol=NAME,
        publisher=publisher,
        headers=request.published,
    )
    ok = request.ok * len(payloads) if request.ok else b""
    return Publish(run, ok, request.echo, request)


def _has_wildcard(topic: str) -> bool:
    return (ONE_LEVEL in topic or REST in topic) and not {ONE_LEVEL, REST}.isdisjoint(
        topic.split("/")
    )


def _encode_delivery(run: Run, pattern: str, tag: str) -> bytes:
    """MSG frames for one subscription."""
    headers = _brokers_headers(pattern, run.topic, tag, run.publisher)
    if run.headers:
        published = format_headers(run.headers)
        if len(headers) + len(published) <= HEADERS_LIMIT:
            headers += published
    if len(run.payloads) == 1:
        body = run.payloads[0]
        return b"".join((FIXED.pack(len(headers), MSG, 0, len(body)), headers, body))
    return with_headers(run.payloads, lambda size: FIXED.pack(len(headers), MSG, 0, size) + headers)


# A publisher that sends one message at a time would pay for building the same text each time. A
# fleet has a topic for each device.
@lru_cache(maxsize=16_384)
def _brokers_headers(pattern: str, topic: str, tag: str, publisher: str) -> bytes:
    own: Headers = ((TOPIC, pattern), (TAG, tag), (ORIGIN, topic), (FROM, publisher))
    headers = format_headers(((TOPIC, pattern), (ORIGIN, topic), (TAG, tag), (FROM, publisher)))
    while len(headers) > HEADERS_LIMIT:
        own = own[:-1]
        headers = format_headers(own)
    return headers


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
