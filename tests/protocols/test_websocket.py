"""WebSocket: frames against the `websockets` package in both directions, the handshake, and both
sides of a connection."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from headwater.commands import Close, Command, Identify, Respond
from headwater.errors import Code, Refusal
from headwater.protocols.base import Answered, Delivered, Ended, Event, Pinged, Ready, Terms
from headwater.protocols.websocket import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    CloseCode,
    FrameReader,
    HttpRefusal,
    Message,
    Request,
    TooLarge,
    WebSocketClient,
    WebSocketSession,
    check_upgrade,
    close_frame,
    frame,
    frames,
    masked_frame,
    masked_frames,
    read_request,
    switching,
)
from tests.protocols.helpers import memory_kept, pieces, seconds, sizes
from tests.protocols.vectors import PEER

LIMIT = 70_000
KEY = b"\x01\x80\xff\x10"

# All three ways to write a length, and what lies on the border between them.
lengths = st.sampled_from([0, 1, 3, 4, 5, 125, 126, 127, 65535, 65536]) | st.integers(0, 300)
data_payloads = lengths.map(lambda length: b"\xe2\x82\xac" * (length // 3) + b"." * (length % 3))
control_payloads = st.binary(max_size=125)
masks = st.booleans()


def read(reader: FrameReader, stream: Iterable[bytes]) -> list[Message | TooLarge]:
    return [message for piece in stream for message in reader.receive(piece)]


def library(masked: bool, limit: int = LIMIT) -> Protocol:
    """The package's own reader of what a client (masked) or a server sends."""
    if masked:
        return ServerProtocol(state=State.OPEN, max_size=limit)
    return ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=limit)


def library_reads(data: bytes, masked: bool, limit: int = LIMIT) -> tuple[list[Message], int]:
    """What the package makes of a stream: messages, and the close code of its failure or 0."""
    peer = library(masked, limit)
    peer.receive_data(data)
    messages: list[Message] = []
    begun: list[Frame] = []
    for each in peer.events_received():
        assert isinstance(each, Frame)
        if each.opcode >= CLOSE:
            messages.append((each.opcode, bytes(each.data)))
            continue
        begun.append(each)
        if each.fin:
            payload = b"".join([bytes(part.data) for part in begun])
            messages.append((begun[0].opcode, payload))
            begun = []
    failed = peer.parser_exc is not None and peer.close_sent is not None
    return messages, peer.close_sent.code if failed and peer.close_sent else 0


@st.composite
def conversations(draw: st.DrawFn) -> list[Frame]:
    """Messages, some of them in several frames with control frames between those."""
    written: list[Frame] = []
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            opcode = draw(st.sampled_from([Opcode.PING, Opcode.PONG]))
            written.append(Frame(opcode, draw(control_payloads)))
            continue
        opcode = draw(st.sampled_from([Opcode.TEXT, Opcode.BINARY]))
        whole = Frame(opcode, draw(data_payloads))
        if draw(st.booleans()):
            written += [whole] * draw(st.sampled_from([1, 2, 40 if len(whole.data) < 300 else 1]))
            continue
        cuts = sorted(draw(st.lists(st.integers(0, len(whole.data)), min_size=1, max_size=4)))
        bounds = list(zip([0, *cuts], [*cuts, len(whole.data)], strict=True))
        for number, (start, stop) in enumerate(bounds):
            kind = Opcode.CONT if number else opcode
            written.append(Frame(kind, whole.data[start:stop], fin=number == len(bounds) - 1))
            if number < len(bounds) - 1 and draw(st.booleans()):
                written.append(Frame(Opcode.PING, draw(control_payloads)))
    return written


def meant(written: list[Frame]) -> list[Message]:
    messages: list[Message] = []
    begun: list[Frame] = []
    for each in written:
        if each.opcode >= CLOSE:
            messages.append((each.opcode, bytes(each.data)))
            continue
        begun.append(each)
        if each.fin:
            messages.append((begun[0].opcode, b"".join([bytes(part.data) for part in begun])))
            begun = []
    return messages


# Frames, in both directions


@pytest.mark.property
@given(conversations(), masks, sizes, st.booleans())
def test_what_the_package_writes_is_read_the_same(
    written: list[Frame], masked: bool, cut: list[int], whole: bool
) -> None:
    data = b"".join([each.serialize(mask=masked) for each in written])
    reader = FrameReader(LIMIT, masked=masked)
    stream = [data] if whole or len(data) > 5000 else pieces(data, cut)
    assert read(reader, stream) == meant(written)
    assert reader.failed is None


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("length", [0, 1, 125, 126, 300])
def test_a_frame_may_be_cut_anywhere(length: int, masked: bool) -> None:
    data = Frame(Opcode.BINARY, b"x" * length).serialize(mask=masked) * 2
    for position in range(len(data)):
        reader = FrameReader(LIMIT, masked=masked)
        stream = [data[:position], data[position:]]
        assert read(reader, stream) == [(BINARY, b"x" * length)] * 2


@pytest.mark.property
@given(st.sampled_from([TEXT, BINARY]), st.lists(data_payloads, max_size=8))
def test_the_package_reads_what_is_written(opcode: int, payloads: list[bytes]) -> None:
    expected = [(opcode, payload) for payload in payloads]
    sent = frames(opcode, payloads)
    assert library_reads(sent, masked=False) == (expected, 0)
    assert sent == b"".join([frame(opcode, payload) for payload in payloads])
    keys = bytes(range(4 * len(payloads)))
    assert library_reads(masked_frames(opcode, payloads, keys), masked=True) == (expected, 0)


@given(control_payloads)
def test_the_package_reads_control_frames(payload: bytes) -> None:
    sent = frame(PING, payload) + frame(PONG, payload)
    assert library_reads(sent, masked=False) == ([(PING, payload), (PONG, payload)], 0)
    assert library_reads(masked_frame(PING, payload, KEY), masked=True) == ([(PING, payload)], 0)


@given(st.sampled_from(CloseCode), st.text(max_size=200))
def test_the_package_reads_close_frames(code: CloseCode, reason: str) -> None:
    peer = library(masked=False)
    peer.receive_data(close_frame(code, reason))
    assert peer.parser_exc is None
    assert peer.close_rcvd is not None
    assert peer.close_rcvd.code == code
    assert reason.startswith(peer.close_rcvd.reason)
    assert len(peer.close_rcvd.reason.encode()) > min(len(reason.encode()), 123) - 4


# What breaks the rules


def raw(first: int, payload: bytes, masked: bool = True) -> bytes:
    """Like `masked_frame`, but with any first byte."""
    sent = masked_frame(0, payload, KEY) if masked else frame(0, payload)
    return bytes([first]) + sent[1:]


VIOLATIONS = {
    "a reserved bit": raw(0xC2, b"x"),
    "another reserved bit": raw(0x92, b"x"),
    "an unknown data opcode": raw(0x83, b"x"),
    "an unknown control opcode": raw(0x8B, b"x"),
    "a fragmented ping": raw(0x09, b"x"),
    "a ping of 126 bytes": raw(0x89, b"x" * 126),
    "a close frame of 126 bytes": raw(0x88, b"\x03\xe8" + b"x" * 124),
    "an unmasked frame": raw(0x82, b"x", masked=False),
    "an unmasked ping": raw(0x89, b"x", masked=False),
    "a continuation of nothing": raw(0x80, b"x"),
    "a continuation of nothing that goes on": raw(0x00, b"x"),
    "a message inside another": raw(0x02, b"x") + raw(0x82, b"x"),
    "the end inside a message": raw(0x02, b"x") + raw(0x88, b""),
    "half a close code": raw(0x88, b"\x03"),
    "a close code that is reserved": raw(0x88, b"\x03\xed"),
    "a close code that does not exist": raw(0x88, b"\x00\x01"),
    "a close reason that is not UTF-8": raw(0x88, b"\x03\xe8\xff"),
    "a message that is too large": raw(0x82, b"x" * (LIMIT + 1)),
    "parts that are too large together": raw(0x02, b"x" * LIMIT) + raw(0x80, b"x"),
    "more bytes than anyone has": b"\x82\xff" + b"\xff" * 8 + KEY,
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_fails_with_the_packages_code(name: str) -> None:
    data = raw(0x82, b"good") + VIOLATIONS[name]
    _, code = library_reads(data, masked=True)
    assert code
    for stream in ([data], [data[i : i + 1] for i in range(len(data))]):
        reader = FrameReader(LIMIT, masked=True)
        messages = read(reader, stream)
        assert messages[0] == (BINARY, b"good")
        assert messages[1:] in ([], [(PING, b"x")])
        assert reader.failed is not None
        assert reader.failed.code == code
        assert reader.receive(raw(0x82, b"after the end")) == []


def test_a_server_must_not_mask() -> None:
    reader = FrameReader(LIMIT, masked=False)
    assert reader.receive(raw(0x82, b"x")) == []
    assert reader.failed is not None
    assert reader.failed.code == CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    "start", [b"\x82\xfe\x00\x7d", b"\x82\xff" + (126).to_bytes(8, "big"), b"\x89\xfe\x00\x05"]
)
def test_lengths_have_their_shortest_form(start: bytes) -> None:
    """RFC 6455 demands it; the package does not look."""
    reader = FrameReader(LIMIT, masked=True)
    assert reader.receive(start + KEY + bytes(200)) == []
    assert reader.failed is not None
    assert reader.failed.code == CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize("parts", [[b"\xff"], [b"ok", b"ok", b"\xff"], [b"\xe2\x82", b"x"]])
def test_text_is_utf8(parts: list[bytes]) -> None:
    """The package leaves this to the layer above its frames, which uses the same code."""
    as_messages = masked_frames(TEXT, parts, KEY * len(parts))
    reader = FrameReader(LIMIT, masked=True)
    assert all(message == (TEXT, b"ok") for message in reader.receive(as_messages))
    assert reader.failed is not None
    assert reader.failed.code == CloseCode.INVALID_DATA
    reader = FrameReader(LIMIT, masked=True)
    assert reader.receive(raw(0x01, parts[0]) + raw(0x80, parts[-1])) == []
    assert reader.failed is not None
    assert reader.failed.code == CloseCode.INVALID_DATA


def test_a_character_may_be_cut_by_frames() -> None:
    reader = FrameReader(LIMIT, masked=True)
    sent = raw(0x01, b"\xe2\x82") + raw(0x89, b"?") + raw(0x80, b"\xac")
    assert reader.receive(sent) == [(PING, b"?"), (TEXT, "€".encode())]
    assert reader.controls == [0]


@pytest.mark.property
@given(
    st.lists(
        st.tuples(st.integers(0, 255), masks, st.binary(max_size=130)), min_size=1, max_size=5
    ),
    sizes,
)
def test_arbitrary_frames_end_as_with_the_package(
    written: list[tuple[int, bool, bytes]], cut: list[int]
) -> None:
    # The package does not look at text, so that is left to the tests above.
    data = b"".join([raw(first, payload, masked) for first, masked, payload in written])
    reader = FrameReader(LIMIT, masked=True)
    messages = read(reader, pieces(data, cut))
    expected, code = library_reads(data, masked=True)
    if reader.failed is not None and reader.failed.code == CloseCode.INVALID_DATA and code != 1007:
        assert messages == expected[: len(messages)]
        return
    assert messages == expected
    assert (reader.failed.code if reader.failed else 0) == code


@pytest.mark.property
@given(st.binary(max_size=300), masks, st.booleans(), sizes)
def test_any_bytes_are_survived(data: bytes, masked: bool, skip: bool, cut: list[int]) -> None:
    reader = FrameReader(50, masked=masked, skip_oversized=skip)
    in_pieces = read(reader, pieces(data, cut))
    other = FrameReader(50, masked=masked, skip_oversized=skip)
    assert other.receive(data) == in_pieces
    assert (reader.failed and reader.failed.code) == (other.failed and other.failed.code)


# Messages that are too large

OVERSIZED = [
    raw(0x82, b"x" * 101),
    raw(0x81, b"\xff" * 101),  # what is dropped is not looked at
    raw(0x82, b"x" * 65536),
    raw(0x02, b"x" * 60) + raw(0x80, b"x" * 41),
    raw(0x02, b"x" * 101) + raw(0x80, b""),
    raw(0x02, b"x" * 60) + raw(0x00, b"x" * 60) + raw(0x00, b"x") + raw(0x80, b"x"),
]


@pytest.mark.parametrize("data", OVERSIZED)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_oversized_messages_can_be_skipped(data: bytes, size: int) -> None:
    good = raw(0x82, b"y" * 100)
    stream = list(pieces(good + data + good + data, [size]))
    reader = FrameReader(100, masked=True, skip_oversized=True)
    found = read(reader, stream)
    assert [isinstance(each, TooLarge) for each in found] == [False, True, False, True]
    assert found[0] == found[2] == (BINARY, b"y" * 100)
    assert reader.failed is None
    reader = FrameReader(100, masked=True)
    assert read(reader, stream) == [(BINARY, b"y" * 100)]
    assert reader.failed is not None
    assert reader.failed.code == CloseCode.TOO_BIG


def test_control_frames_between_skipped_parts() -> None:
    reader = FrameReader(100, masked=True, skip_oversized=True)
    assert reader.receive(raw(0x02, b"x" * 101) + raw(0x89, b"?")) == [(PING, b"?")]
    (found,) = reader.receive(raw(0x80, b"x"))
    assert isinstance(found, TooLarge)


def test_skipping_takes_no_memory() -> None:
    reader = FrameReader(1000, masked=True, skip_oversized=True)
    chunk = bytes(100_000)

    def skip() -> FrameReader:
        reader.receive(b"\x82\xff" + (1 << 40).to_bytes(8, "big") + KEY)
        for _ in range(100):
            assert reader.receive(chunk) == []
        return reader

    assert memory_kept(skip) < 10_000


def test_empty_parts_take_no_memory() -> None:
    reader = FrameReader(1000, masked=True)
    parts = raw(0x00, b"") * 1000

    def feed() -> FrameReader:
        reader.receive(raw(0x02, b"x"))
        for _ in range(100):
            reader.receive(parts)
        return reader

    assert memory_kept(feed) < 10_000


def test_byte_by_byte_takes_time_in_proportion() -> None:
    def feed(length: int) -> float:
        data = masked_frame(BINARY, bytes(length), KEY)
        cut = [data[i : i + 1] for i in range(len(data))]
        return seconds(lambda: read(FrameReader(1 << 24, masked=True), cut))

    assert feed(200_000) < 12 * feed(50_000)


# The opening handshake

HEADERS = (
    b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
REQUEST = b"GET /chat?a=1&b=%20x&a= HTTP/1.1\r\n" + HEADERS + b"\r\n"
SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
)


def parsed(data: bytes) -> Request:
    found = read_request(data)
    assert found is not None
    return found[0]


def test_a_request_is_taken_apart() -> None:
    found = read_request(REQUEST + b"more")
    assert found is not None
    request, size = found
    assert size == len(REQUEST)
    assert (request.method, request.path, request.query) == ("GET", "/chat", "a=1&b=%20x&a=")
    assert request.parameters() == [("a", "1"), ("b", " x"), ("a", "")]
    assert request.headers[0] == ("Host", "localhost")
    assert request.header("host") == "localhost"
    assert request.header("nothing") == ""
    assert parsed(b"GET / HTTP/1.1\r\na: 1\r\nA:2\r\n\r\n").header("a") == "1, 2"


def test_the_answer_is_the_one_of_the_rfc() -> None:
    request = parsed(REQUEST)
    check_upgrade(request)
    assert switching(request) == SWITCHING


@pytest.mark.parametrize("size", range(len(REQUEST)))
def test_half_a_request_is_not_enough(size: int) -> None:
    assert read_request(REQUEST[:size]) is None


@pytest.mark.parametrize(
    "old, new",
    [
        (b"Upgrade: websocket", b"upgrade: WebSocket"),
        (b"Connection: Upgrade", b"CONNECTION: keep-alive, upgrade"),
        (b"Connection: Upgrade", b"Connection: keep-alive\r\nConnection: Upgrade"),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"MTIzNDU2Nzg5MA=="),  # ten bytes, as deployed clients do
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"not base64"),
        (b"Host: localhost\r\n", b"Content-Length: 0\r\n"),
        (b"Host: localhost", b"X-Weird: \xff\xfe"),
    ],
)
def test_these_requests_are_good(old: bytes, new: bytes) -> None:
    assert old in REQUEST
    check_upgrade(parsed(REQUEST.replace(old, new)))


@pytest.mark.parametrize(
    "old, new, status",
    [
        (b"Upgrade: websocket", b"Upgrade: h2c", 426),
        (b"Upgrade: websocket\r\n", b"", 426),
        (b"Connection: Upgrade", b"Connection: close", 426),
        (b"Version: 13", b"Version: 8", 426),
        (b"dGhlIHNhbXBsZSBub25jZQ==", b"", 400),
        (b"GET ", b"POST ", 405),
        (b"HTTP/1.1", b"HTTP/1.0", 505),
        (b"HTTP/1.1", b"HTTP/2.0", 505),
        (b"HTTP/1.1", b"HTTP", 400),
        (b"GET /chat", b"GET chat", 400),
        (b"GET /chat", b"GET  /chat", 400),
        (b"GET /chat", b"\x16\x03\x01", 400),
        (b"Host: localhost", b"Host", 400),
        (b"Host: localhost", b"Host : localhost", 400),
        (b"Host: localhost", b"Host: local\x00host", 400),
        (b"Host: localhost", b"Host: local\nhost", 400),
        (b"Host: localhost", b"Content-Length: 5", 400),
        (b"Host: localhost", b"Transfer-Encoding: chunked", 400),
        (b"Host: localhost", b"X: " + b"x" * 8192, 431),
    ],
)
def test_these_requests_are_refused(old: bytes, new: bytes, status: int) -> None:
    assert old in REQUEST
    with pytest.raises(HttpRefusal) as caught:
        check_upgrade(parsed(REQUEST.replace(old, new)))
    assert caught.value.status == status
    head, _, body = caught.value.to_bytes().partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert f"\r\nContent-Length: {len(body)}\r\nConnection: close".encode() in head
    told = json.loads(body)
    assert told == {"error": caught.value.code, "message": str(caught.value)}


@pytest.mark.property
@given(st.binary(max_size=200))
def test_any_request_is_survived(data: bytes) -> None:
    for start in (b"", b"GET / HTTP/1.1\r\n"):
        try:
            read_request(start + data + b"\r\n\r\n")
        except HttpRefusal as refusal:
            assert refusal.to_bytes()


# The broker's side


class Echo(WebSocketSession):
    """Says what it heard."""

    def admit(self, request: Request) -> Identify | None:
        if request.path == "/closed":
            raise HttpRefusal(404, "not_found", "nothing here")
        return Identify("echo")

    def read(self, messages: list[Message | TooLarge]) -> Iterator[Command]:
        for message in messages:
            if message == (TEXT, b"end"):
                yield self.end(CloseCode.POLICY, "enough")
            elif isinstance(message, TooLarge):
                yield Respond(b"<too large>")
            else:
                yield Respond(b"<" + message[1] + b">")

    def refuse(self, command: Command, error: Refusal) -> None:
        raise NotImplementedError


class Skipping(Echo):
    skip_oversized = True


def answers(session: WebSocketSession, stream: Iterable[bytes]) -> tuple[bytes, bool]:
    answer, closed = b"", False
    for command in chain.from_iterable(map(session.receive, stream)):
        assert not closed, f"a command after the end: {command}"
        assert isinstance(command, Identify | Respond | Close)
        answer += command.answer
        closed = isinstance(command, Close)
    return answer, closed


def text(payload: bytes) -> bytes:
    return masked_frame(TEXT, payload, KEY)


@pytest.mark.property
@given(sizes)
def test_a_conversation(cut: list[int]) -> None:
    sent = (
        REQUEST
        + text(b"one")
        + masked_frame(PING, b"?", KEY)
        + masked_frame(PONG, b"?", KEY)
        + text(b"two")
        + masked_frame(CLOSE, b"\x03\xe8bye", KEY)
        + text(b"after the end")
    )
    session = Echo(Terms(PEER))
    answer, closed = answers(session, pieces(sent, cut))
    assert answer == SWITCHING + b"<one>\x8a\x01?<two>\x88\x05\x03\xe8bye"
    assert closed
    assert session.established
    assert not list(session.receive(text(b"after the end")))


def test_who_is_not_admitted() -> None:
    session = Echo(Terms(PEER))
    answer, closed = answers(session, [REQUEST.replace(b"/chat", b"/closed") + text(b"one")])
    assert answer.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert closed
    assert not session.established


def test_a_violation_ends_the_connection_after_what_was_good() -> None:
    answer, closed = answers(Echo(Terms(PEER)), [REQUEST, text(b"one") + b"\xff\xff" + bytes(8)])
    assert b"<one>\x88" in answer
    assert b"\x03\xea" in answer
    assert closed


def test_the_codec_can_end_the_connection() -> None:
    stream = [REQUEST, text(b"end") + text(b"one")]
    answer, closed = answers(Echo(Terms(PEER)), stream)
    assert answer.endswith(close_frame(CloseCode.POLICY, "enough"))
    assert closed


def test_a_message_that_is_too_large() -> None:
    stream = [REQUEST, text(b"x" * 11) + text(b"one")]
    answer, closed = answers(Echo(Terms(PEER), 10), stream)
    assert answer.startswith(SWITCHING + b"\x88")
    assert b"\x03\xf1" in answer
    assert closed
    answer, closed = answers(Skipping(Terms(PEER, message_bytes=10)), stream)
    assert answer == SWITCHING + b"<too large><one>"
    assert not closed


@pytest.mark.parametrize(
    "code, status, close_code",
    [
        (Code.UNAVAILABLE, 503, CloseCode.GOING_AWAY),
        (Code.TOO_LARGE, 413, CloseCode.TOO_BIG),
        (Code.INTERNAL, 500, CloseCode.INTERNAL),
        (Code.NOT_PERMITTED, 403, CloseCode.POLICY),
    ],
)
def test_last_words(code: Code, status: int, close_code: CloseCode) -> None:
    session = Echo(Terms(PEER))
    farewell = session.farewell(Refusal(code, "because"))
    assert farewell.startswith(f"HTTP/1.1 {status} ".encode())
    assert not list(session.receive(REQUEST))
    session = Echo(Terms(PEER))
    list(session.receive(REQUEST))
    assert session.farewell(Refusal(code, "because")) == close_frame(close_code, "because")
    assert not list(session.receive(text(b"one")))


# The client's side


class Listener(WebSocketClient):
    def read(self, messages: list[Message]) -> Iterator[Event]:
        yield Delivered("", [payload for _, payload in messages])

    def pong(self, payload: bytes) -> Iterator[Event]:
        yield Delivered("pong", [payload])


NONCE = b"the sample nonce"


def heard(stream: Iterable[bytes]) -> list[Event]:
    client = Listener(100, NONCE)
    return [event for piece in stream for event in client.receive(piece)]


def test_the_clients_request_opens_a_connection() -> None:
    client = Listener(100)
    sent = client.request("localhost:80", "/chat?a=1", (("X-Api-Key", "k"),))
    request = parsed(sent)
    check_upgrade(request)
    assert (request.path, request.query) == ("/chat", "a=1")
    assert request.header("X-Api-Key") == "k"
    assert list(client.receive(switching(request))) == [Ready(), Answered()]
    assert Listener(100, NONCE).request("localhost", "/") == (
        b"GET / HTTP/1.1\r\n" + HEADERS + b"\r\n"
    )


def test_the_package_accepts_the_clients_request() -> None:
    server = ServerProtocol()
    client = Listener(100)
    server.receive_data(client.request("localhost", "/"))
    (request,) = server.events_received()
    server.send_response(server.accept(request))  # type: ignore[arg-type]
    assert server.handshake_exc is None
    assert list(client.receive(b"".join(server.data_to_send()))) == [Ready(), Answered()]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_what_a_client_hears(size: int) -> None:
    sent = SWITCHING + frame(TEXT, b"one") + frame(PING, b"?") + frame(PONG, b"!")
    sent += close_frame(CloseCode.GOING_AWAY, "enough") + frame(TEXT, b"after the end")
    ready, answered, one, ping, pong, end = heard(pieces(sent, [size]))
    assert (ready, answered, one) == (Ready(), Answered(), Delivered("", [b"one"]))
    assert isinstance(ping, Pinged)
    assert library_reads(ping.answer, masked=True) == ([(PONG, b"?")], 0)
    assert (pong, end) == (Delivered("pong", [b"!"]), Ended("enough"))


def test_what_a_client_sends() -> None:
    client = Listener(100)
    sent = client.messages(BINARY, [b"one", b"two"]) + client.ping(b"?") + client.close_frame()
    expected = [(BINARY, b"one"), (BINARY, b"two"), (PING, b"?"), (CLOSE, b"\x03\xe8")]
    assert library_reads(sent, masked=True) == (expected, 0)


@pytest.mark.parametrize("size", [1, 1000])
def test_a_client_that_is_refused(size: int) -> None:
    refused = HttpRefusal(401, "unauthorized", "the signature is wrong").to_bytes()
    answered, end = heard(pieces(refused, [size]))
    assert isinstance(answered, Answered)
    assert answered.error is not None
    assert answered.error.code is Code.NOT_PERMITTED
    assert "the signature is wrong" in str(answered.error)
    assert isinstance(end, Ended)
    away = HttpRefusal(503, "unavailable", "the broker is shutting down").to_bytes()
    (end,) = heard(pieces(away, [size]))
    assert isinstance(end, Ended)
    assert "the broker is shutting down" in end.reason


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 101 ok\r\nbad header\r\n\r\n",
        SWITCHING.replace(b"s3pP", b"s3pQ"),
        b"HTTP/1.1 500 x\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 500 x\r\n\r\nnot JSON",
        b"x" * 70_000,
        SWITCHING + b"\xff\xff",
        SWITCHING + frame(TEXT, b"x" * 101),
    ],
)
def test_answers_that_make_no_sense(answer: bytes) -> None:
    events = heard([answer, b"more"])
    assert isinstance(events[-1], Ended)
