"""PSMB: handshake, choice of mode, then messages one way.

    state           the broker reads                     and answers
    ─────────────── ──────────────────────────────────── ─────────────────────────────────
    HANDSHAKE (I)   "PSMB" version:u32 options:u32       "OK\\0" 0:u32, or "UNSUPPORTED PROTOCOL\\0"
    MODE (II)       "PUB" topic\\0                        "OK\\0", or "FAILED\\0" text\\0
                    "SUB" options:u32 pattern\\0 [id:u64] the same; anything else "BAD COMMAND\\0"
    PUBLISHING      "MSG" length:u64 payload, NOP, BYE   NIL for NOP
    (III)
    SUBSCRIBED      NIL, NOP, BYE                        NIL for NOP; sends MSG and NOP itself
    (III)

All integers are big-endian, all text is ASCII. Section numbers in comments are the document's.

NIL proves things both ways. The broker answers a publisher's NOP once everything it sent before is
durable, so NOP/NIL is PSMB's acknowledgement. Toward a durable subscriber the broker sends NOP
after messages, and the NIL that answers it proves that they were read; only then the subscriber's
position moves.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from struct import Struct

from headwater import topics
from headwater.commands import (
    Advertise,
    Close,
    Command,
    Confirm,
    Publish,
    Respond,
    Subscribe,
    Subscription,
)
from headwater.errors import Code, HeadwaterError, ProtocolViolation, Refusal
from headwater.filters import RegexFilter
from headwater.message import Batch, Run, Tiles
from headwater.protocols.base import (
    TILED,
    Answered,
    ClientSession,
    Delivered,
    Ended,
    Event,
    Intake,
    Pinged,
    Ready,
    Session,
    Terms,
    alike,
)

NAME = "psmb"
VERSIONS = (1, 2)

MAGIC = b"PSMB"
UNSUPPORTED = b"UNSUPPORTED PROTOCOL\0"  # message 2
OK = b"OK\0"  # message 7
BAD_COMMAND = b"BAD COMMAND\0"  # message 6
FAILED = b"FAILED\0"  # message 8
PUB, SUB, MSG, NOP, BYE, NIL = b"PUB", b"SUB", b"MSG", b"NOP", b"BYE", b"NIL"

ERROR_BYTES = 128  # message 8: "read up to 128 bytes including the terminating NUL"
ALLOW_HISTORY = 1  # bit 0 of the options of SUB

_HANDSHAKE = Struct(">4sII")
_U32 = Struct(">I")
_U64 = Struct(">Q")
_WELCOME = OK + _U32.pack(0)  # message 3


class State(IntEnum):
    HANDSHAKE = 1
    MODE = 2
    PUBLISHING = 3
    SUBSCRIBED = 4
    CLOSED = 5


#: What a reader found: the position behind it and a command, or how many bytes it would need.
Step = tuple[int, Command | None] | int
ClientStep = tuple[int, Event | None] | int


def message_header(size: int) -> bytes:
    return MSG + _U64.pack(size)


def read_messages(data: bytes, position: int, limit: int) -> tuple[Sequence[bytes], int]:
    """The payloads of the MSG frames from `position` on, and where they end."""
    payloads: list[bytes] = []
    while len(data) - position >= 11 and data.startswith(MSG, position):
        (size,) = _U64.unpack_from(data, position + 3)
        end = position + 11 + size
        if size > limit and not payloads:  # told before anything is allocated for it
            raise ProtocolViolation(
                Code.TOO_LARGE, f"a message of {size} bytes is over the limit of {limit}"
            )
        if size > limit or end > len(data):
            break
        header = data[position : position + 11]
        if data.startswith(header, end) and (count := alike(data, position, header, size)) >= TILED:
            if payloads:
                break  # the next call takes them as they are
            end = position + count * (11 + size)
            return Tiles(data[position:end], 11, size), end
        payloads.append(data[position + 11 : end])
        position = end
    return payloads, position


def _message_size(data: bytes, position: int) -> int:
    """How many bytes an incomplete MSG frame needs to be complete."""
    if len(data) - position < 11:
        return 11
    return 11 + int(_U64.unpack_from(data, position + 3)[0])


def encode_messages(payloads: Sequence[bytes]) -> bytes:
    """MSG frames for all payloads."""
    payloads = list(payloads)
    headers = {size: message_header(size) for size in set(map(len, payloads))}
    if len(headers) == 1:
        (header,) = headers.values()
        return header + header.join(payloads)
    return b"".join([part for body in payloads for part in (headers[len(body)], body)])


class ServerSession(Session):
    """The broker's side."""

    def __init__(self, terms: Terms) -> None:
        self.state = State.HANDSHAKE
        self._terms = terms
        self._intake = Intake()
        self._version = 0
        self._topic = ""
        self._unproven: deque[int] = deque()  # a position for each NOP that has no NIL yet
        self._durable = False
        self._missed = 0

    @property
    def established(self) -> bool:  # type: ignore[override]
        return self.state in (State.PUBLISHING, State.SUBSCRIBED)

    @property
    def keeps_alive(self) -> bool:  # type: ignore[override]
        # In version 1 the passive side sends no NOP, and toward a publisher that is the broker.
        return self.state is State.SUBSCRIBED or (
            self.state is State.PUBLISHING and self._version >= 2
        )

    def receive(self, data: bytes) -> Iterator[Command]:
        data = self._intake.take(data)
        position = 0
        while position < len(data) and self.state is not State.CLOSED:
            try:
                step = _READERS[self.state](self, data, position)
            except ProtocolViolation as violation:
                yield self._end(self.farewell(violation), str(violation))
                return
            if isinstance(step, int):
                self._intake.keep(data[position:], step)
                return
            position, command = step
            if command is not None:
                yield command

    def encode(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> list[bytes]:
        run = batch.run
        frames = run.encoded.get(NAME)
        if frames is None:
            frames = run.encoded[NAME] = encode_messages(run.payloads)
        return [frames]

    def mark(self, position: int) -> bytes:
        """NOP behind messages for a durable subscriber: its NIL proves that they were read."""
        if not self._durable:
            return b""
        self._unproven.append(position)
        return NOP

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        if isinstance(command, Advertise | Subscribe):
            self.state = State.MODE
            return Respond(_failed(error))
        # A message cannot be refused by itself in state III: ending the connection is the only
        # way to tell its publisher that it was not taken.
        return self._end(BYE, str(error))

    def idle(self, position: int) -> Command | None:
        if self._missed >= self._terms.keepalive_misses:
            return self._end(b"", f"{self._missed} NOPs were left unanswered")
        self._missed += 1
        return Respond(self.mark(position) or NOP)

    def farewell(self, error: HeadwaterError) -> bytes:
        state, self.state = self.state, State.CLOSED
        if state is State.MODE:
            return _failed(error)
        return BYE if state in (State.PUBLISHING, State.SUBSCRIBED) else b""

    # (I) handshake

    def _read_handshake(self, data: bytes, position: int) -> Step:
        head = data[position : position + 4]
        if not MAGIC.startswith(head):  # I.2.1, as soon as a byte is wrong
            return position, self._end(b"", "the connection did not begin with PSMB")
        if len(data) - position < 8:
            return 8
        (version,) = _U32.unpack_from(data, position + 4)
        if version not in VERSIONS:  # I.2.2
            return position, self._end(UNSUPPORTED, f"version {version} is not supported")
        if len(data) - position < 12:
            return 12
        (options,) = _U32.unpack_from(data, position + 8)
        if options:  # I.2.3
            return position, self._end(b"", f"handshake options {options:#x} are not defined")
        self._version = version
        self.state = State.MODE
        return position + 12, Respond(_WELCOME)

    # (II) choice of mode

    def _read_mode(self, data: bytes, position: int) -> Step:
        if len(data) - position < 3:
            return 3
        word = data[position : position + 3]
        if word == PUB:
            return self._read_pub(data, position)
        if word == SUB:
            return self._read_sub(data, position)
        return position, self._end(BAD_COMMAND, f"{word!r} is neither PUB nor SUB")

    def _read_pub(self, data: bytes, position: int) -> Step:
        """Message 4: "PUB" topic NUL"""
        end = data.find(b"\0", position + 3)
        if end < 0:
            return self._bounded(len(data) - position - 3, len(data) - position + 1)
        try:
            topic = topics.check(_ascii(data[position + 3 : end], "topic"), self._terms.topic_bytes)
        except Refusal as error:
            return end + 1, Respond(_failed(error))
        self._topic = topic
        self.state = State.PUBLISHING
        return end + 1, Advertise(topic, OK)

    def _read_sub(self, data: bytes, position: int) -> Step:
        """Message 5: "SUB" options:u32 pattern NUL [subscriber id:u64]"""
        if len(data) - position < 7:
            return 7
        (options,) = _U32.unpack_from(data, position + 3)
        end = data.find(b"\0", position + 7)
        if end < 0:
            return self._bounded(len(data) - position - 7, len(data) - position + 1)
        stop = end + 1 + (8 if options & ALLOW_HISTORY else 0)
        if len(data) < stop:
            return stop - position
        try:
            command = self._subscribe(options, data[position + 7 : end], data[end + 1 : stop])
        except Refusal as error:
            return stop, Respond(_failed(error))
        self.state = State.SUBSCRIBED
        return stop, command

    def _subscribe(self, options: int, pattern: bytes, subscriber: bytes) -> Subscribe:
        if options & ~ALLOW_HISTORY:
            raise Refusal(Code.MALFORMED, f"option bits {options:#x} are not defined")
        if len(pattern) > self._terms.topic_bytes:
            raise Refusal(Code.TOO_LARGE, "the pattern is too long")
        topic_filter = RegexFilter.parse(_ascii(pattern, "pattern"))
        self._durable = bool(options & ALLOW_HISTORY)
        durable = f"{NAME}/{_U64.unpack(subscriber)[0]}" if self._durable else None
        return Subscribe((topic_filter.text, ""), topic_filter, OK, durable)

    def _bounded(self, length: int, need: int) -> int:
        # Where the text ends is unknown, so there is no way to skip it and stay in this state.
        if length > self._terms.topic_bytes:
            raise ProtocolViolation(
                Code.TOO_LARGE, f"the text has no end within {self._terms.topic_bytes} bytes"
            )
        return need

    # (III) messages

    def _read_publishing(self, data: bytes, position: int) -> Step:
        payloads, end = read_messages(data, position, self._terms.message_bytes)
        if payloads:
            run = Run(self._topic, payloads, protocol=NAME, publisher=self._terms.peer)
            # What subscribers get is what came in, byte for byte.
            if isinstance(payloads, Tiles):
                run.encoded[NAME] = payloads.data
            else:
                run.encoded[NAME] = data[position:end]
            return end, Publish(run)
        if data.startswith(MSG, position):
            return _message_size(data, position)
        return self._read_control(data, position)

    def _read_control(self, data: bytes, position: int) -> Step:
        if len(data) - position < 3:
            return 3
        word = data[position : position + 3]
        if word == NOP:  # message 10: "the receiver always returns message 12"
            return position + 3, Respond(NIL)
        if word == NIL:
            return position + 3, self._proven()
        if word == BYE:  # message 11
            return position, self._end(b"", "the client said BYE")
        raise ProtocolViolation(
            Code.UNKNOWN_COMMAND, f"{word!r} is not a message of the state {self.state.name}"
        )

    def _proven(self) -> Command | None:
        self._missed = 0
        return Confirm(self._unproven.popleft()) if self._unproven else None

    def _end(self, answer: bytes, reason: str) -> Close:
        self.state = State.CLOSED
        return Close(answer, reason)


_READERS: dict[State, Callable[[ServerSession, bytes, int], Step]] = {
    State.HANDSHAKE: ServerSession._read_handshake,
    State.MODE: ServerSession._read_mode,
    State.PUBLISHING: ServerSession._read_publishing,
    State.SUBSCRIBED: ServerSession._read_control,
}


def _ascii(raw: bytes, what: str) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise Refusal(Code.MALFORMED, f"the {what} is not ASCII") from None


def _failed(error: HeadwaterError) -> bytes:
    """Message 8, its text cut to what clients read."""
    text = str(error).encode("ascii", "replace").replace(b"\0", b"?")
    return FAILED + text[: ERROR_BYTES - 1] + b"\0"


class Client(ClientSession):
    """The client's side."""

    def __init__(self, message_bytes: int, pattern: str = "") -> None:
        self._limit = message_bytes
        self._intake = Intake()
        self._pattern = pattern  # all that a subscriber knows of the topics it receives
        self._read: Callable[[bytes, int], ClientStep] = self._read_welcome

    @staticmethod
    def hello(version: int = VERSIONS[-1]) -> bytes:
        return _HANDSHAKE.pack(MAGIC, version, 0)

    @staticmethod
    def publishing(topic: str) -> bytes:
        return PUB + topic.encode("ascii") + b"\0"

    @staticmethod
    def subscribe(pattern: str, subscriber: int | None = None) -> bytes:
        options = 0 if subscriber is None else ALLOW_HISTORY
        tail = b"" if subscriber is None else _U64.pack(subscriber)
        return SUB + _U32.pack(options) + pattern.encode("ascii") + b"\0" + tail

    def receive(self, data: bytes) -> Iterator[Event]:
        data = self._intake.take(data)
        position = 0
        while position < len(data):
            step = self._read(data, position)
            if isinstance(step, int):
                self._intake.keep(data[position:], step)
                return
            position, event = step
            if event is not None:
                yield event
            if isinstance(event, Ended):
                return

    def _read_welcome(self, data: bytes, position: int) -> ClientStep:
        end = data.find(b"\0", position, position + len(UNSUPPORTED))
        if end < 0 and len(data) - position < len(UNSUPPORTED):
            return len(data) - position + 1
        word = data[position : end + 1]
        if word == UNSUPPORTED:
            return end + 1, Ended("the broker does not support this version of PSMB")
        if word != OK:
            return len(data), Ended("what answered is not a PSMB broker")
        if len(data) - position < len(_WELCOME):
            return len(_WELCOME)
        if data[end + 1 : end + 5] != bytes(4):  # I.3: anything but zero ends the connection
            return end + 5, Ended("the broker asked for options that are not defined")
        self._read = self._read_verdict
        return end + 5, Ready()

    def _read_verdict(self, data: bytes, position: int) -> ClientStep:
        end = data.find(b"\0", position, position + len(BAD_COMMAND))
        if end < 0 and len(data) - position < len(BAD_COMMAND):
            return len(data) - position + 1
        word = data[position : end + 1]
        if word == OK:
            self._read = self._read_exchange
            return end + 1, Answered()
        if word != FAILED:
            return len(data), Ended("the broker did not understand the mode")
        stop = data.find(b"\0", end + 1, end + 1 + ERROR_BYTES)
        if stop < 0:
            return len(data) - position + 1
        text = data[end + 1 : stop].decode("ascii", "replace")
        return stop + 1, Answered(Refusal(Code.NOT_PERMITTED, text))

    def _read_exchange(self, data: bytes, position: int) -> ClientStep:
        payloads, end = read_messages(data, position, self._limit)
        if payloads:
            return end, Delivered(self._pattern, payloads)
        if len(data) - position < 3:
            return 3
        word = data[position : position + 3]
        if word == MSG:
            return _message_size(data, position)
        if word == NOP:
            return position + 3, Pinged(NIL)
        if word == NIL:
            return position + 3, Answered()
        return len(data), Ended("the broker said BYE" if word == BYE else f"unknown word {word!r}")
