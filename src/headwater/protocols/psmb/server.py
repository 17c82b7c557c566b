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

from mypy_extensions import mypyc_attr

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
from headwater.protocols.base import Service, Session, Terms
from headwater.protocols.bulk import Intake
from headwater.protocols.psmb.settings import PsmbSettings
from headwater.protocols.psmb.wire import (
    ALLOW_HISTORY,
    BAD_COMMAND,
    BYE,
    ERROR_BYTES,
    FAILED,
    MAGIC,
    MSG,
    NAME,
    NIL,
    NOP,
    OK,
    PUB,
    SUB,
    U32,
    U64,
    UNSUPPORTED,
    VERSIONS,
    WELCOME,
    encode_messages,
    message_size,
    read_messages,
)

MOST_UNPROVEN = 1000  # NOPs that may wait for their NIL
# A NOP in one segment with messages is taken for the end of the last one by some clients.
QUIET_SECONDS = 0.02

#: What a reader found: the position behind it and a command, or how many bytes it would need.
Step = tuple[int, Command | None] | int


class PsmbState(IntEnum):
    HANDSHAKE = 1
    MODE = 2
    PUBLISHING = 3
    SUBSCRIBED = 4
    CLOSED = 5


@mypyc_attr(native_class=False)
class PsmbService(Service):
    def __init__(self, settings: PsmbSettings, apps: object = None) -> None:
        self._settings = settings

    def session(self, terms: Terms) -> "PsmbSession":
        return PsmbSession(terms, self._settings)


@mypyc_attr(native_class=False)
class PsmbSession(Session):
    """The broker's side."""

    def __init__(self, terms: Terms, settings: PsmbSettings) -> None:
        self.protocol = NAME
        self.state = PsmbState.HANDSHAKE
        self._terms = terms
        self._settings = settings
        self._intake = Intake()
        self._version = 0
        self._topic = ""
        self._unproven: deque[int] = deque()  # a position for each NOP that has no NIL yet
        self._durable = False
        self._missed = 0

    @property
    def established(self) -> bool:  # type: ignore[override]
        return self.state in (PsmbState.PUBLISHING, PsmbState.SUBSCRIBED)

    @property
    def idle_after(self) -> float | None:  # type: ignore[override]
        # In version 1 the passive side sends no NOP, and toward a publisher that is the broker.
        if self.state is PsmbState.CLOSED or (
            self.state is PsmbState.PUBLISHING and self._version < 2
        ):
            return None
        return self._settings.keepalive_seconds

    @property
    def unfinished(self) -> int:
        return self._intake.unfinished

    def receive(self, data: bytes) -> Iterator[Command]:
        data = self._intake.take(data)
        # Most clients of a fleet send one message at a time.
        if self.state is PsmbState.PUBLISHING:
            command = _single(data, self._topic, self._terms)
            if command is not None:
                return iter((command,))
        return self._read(data)

    def _read(self, data: bytes) -> Iterator[Command]:
        position = 0
        while position < len(data) and self.state is not PsmbState.CLOSED:
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

    def encode(self, batch: Batch, subscription: Subscription) -> bytes:
        run = batch.run
        frames = run.recall(NAME)
        if frames is None:
            frames = run.remember(NAME, encode_messages(run.payloads))
        return frames

    def mark(self, position: int) -> bytes:
        """NOP behind messages for a durable subscriber: its NIL proves that they were read."""
        # A client that answers nothing must not fill our memory; a later NOP proves the same.
        if not self._durable or len(self._unproven) >= MOST_UNPROVEN:
            return b""
        return self._ask(position)

    def _ask(self, position: int) -> bytes:
        if self._durable:
            self._unproven.append(position)
        return NOP

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        if isinstance(command, Advertise | Subscribe):
            self.state = PsmbState.MODE
            self._durable, self.mark_after = False, None
            return Respond(_failed(error))
        # A message cannot be refused by itself in state III: ending the connection is the only
        # way to tell its publisher that it was not taken.
        return self._end(BYE, str(error))

    def idle(self, position: int) -> Command | None:
        if self._missed >= self._settings.keepalive_misses:
            return self._end(b"", f"{self._missed} NOPs were left unanswered")
        self._missed += 1
        return Respond(self._ask(position))

    def farewell(self, error: HeadwaterError) -> bytes:
        state, self.state = self.state, PsmbState.CLOSED
        if state is PsmbState.MODE:
            return _failed(error)
        return BYE if state in (PsmbState.PUBLISHING, PsmbState.SUBSCRIBED) else b""

    # (I) handshake

    def _read_handshake(self, data: bytes, position: int) -> Step:
        head = data[position : position + 4]
        if not MAGIC.startswith(head):  # I.2.1, as soon as a byte is wrong
            return position, self._end(b"", "the connection did not begin with PSMB")
        if len(head) < 4:
            return len(head) + 1
        if len(data) - position < 8:
            return 8
        (version,) = U32.unpack_from(data, position + 4)
        if version not in VERSIONS:  # I.2.2
            return position, self._end(UNSUPPORTED, f"version {version} is not supported")
        if len(data) - position < 12:
            return 12
        (options,) = U32.unpack_from(data, position + 8)
        if options:  # I.2.3
            return position, self._end(b"", f"handshake options {options:#x} are not defined")
        self._version = version
        self.state = PsmbState.MODE
        return position + 12, Respond(WELCOME)

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
        end = self._end_of_text(data, position + 3)
        if end < 0:
            return len(data) - position + 1
        try:
            topic = topics.check(_ascii(data[position + 3 : end], "topic"), self._terms.topic_bytes)
        except Refusal as error:
            return end + 1, Respond(_failed(error))
        self._topic = topic
        self.state = PsmbState.PUBLISHING
        return end + 1, Advertise(topic, OK)

    def _read_sub(self, data: bytes, position: int) -> Step:
        """Message 5: "SUB" options:u32 pattern NUL [subscriber id:u64]"""
        if len(data) - position < 7:
            return 7
        (options,) = U32.unpack_from(data, position + 3)
        end = self._end_of_text(data, position + 7)
        if end < 0:
            return len(data) - position + 1
        stop = end + 1 + (8 if options & ALLOW_HISTORY else 0)
        if len(data) < stop:
            return stop - position
        try:
            command = self._subscribe(options, data[position + 7 : end], data[end + 1 : stop])
        except Refusal as error:
            return stop, Respond(_failed(error))
        self.state = PsmbState.SUBSCRIBED
        return stop, command

    def _subscribe(self, options: int, pattern: bytes, subscriber: bytes) -> Subscribe:
        if options & ~ALLOW_HISTORY:
            raise Refusal(Code.MALFORMED, f"option bits {options:#x} are not defined")
        topic_filter = RegexFilter.parse(_ascii(pattern, "pattern"))
        self._durable = bool(options & ALLOW_HISTORY)
        key = (topic_filter.text, "")
        if not self._durable:
            return Subscribe(key, topic_filter, OK)
        self.mark_after = QUIET_SECONDS
        # Clients use one id for several patterns, each with a position of its own.
        client = f"{NAME}/{U64.unpack(subscriber)[0]}"
        return Subscribe(
            key,
            topic_filter,
            OK,
            durable=f"{client}/{topic_filter.text}",
            known_as=client,
            from_start=self._settings.new_subscribers == "all",
        )

    def _end_of_text(self, data: bytes, start: int) -> int:
        """Where the NUL is, or -1 while it may still come."""
        limit = self._terms.topic_bytes
        end = data.find(b"\0", start, start + limit + 1)
        # Where the text ends is unknown, so there is no way to skip it and stay in this state.
        if end < 0 and len(data) - start > limit:
            why = f"the text has no end within {limit} bytes"
            raise ProtocolViolation(Code.TOO_LARGE, why, limit="topic_bytes")
        return end

    # (III) messages

    def _read_publishing(self, data: bytes, position: int) -> Step:
        payloads, end = read_messages(data, position, self._terms.message_bytes)
        if payloads:
            whole = payloads.data if isinstance(payloads, Tiles) else data[position:end]
            answer = NIL if data.startswith(NOP, end) else b""
            command = _publish(self._topic, self._terms.publisher, payloads, whole, answer)
            return end + len(answer), command
        if data.startswith(MSG, position):
            return message_size(data, position)
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
        self.state = PsmbState.CLOSED
        return Close(answer, reason)


_READERS: dict[PsmbState, Callable[[PsmbSession, bytes, int], Step]] = {
    PsmbState.HANDSHAKE: PsmbSession._read_handshake,
    PsmbState.MODE: PsmbSession._read_mode,
    PsmbState.PUBLISHING: PsmbSession._read_publishing,
    PsmbState.SUBSCRIBED: PsmbSession._read_control,
}


def _single(data: bytes, topic: str, terms: Terms) -> Publish | None:
    """One message, and maybe a NOP, if that is all."""
    if len(data) < 11 or not data.startswith(MSG):
        return None
    size = message_size(data, 0)
    answer = b""
    if len(data) == size + 3 and data.endswith(NOP):
        answer, data = NIL, data[:size]
    if len(data) != size or size > 11 + terms.message_bytes:
        return None
    return _publish(topic, terms.publisher, [data[11:]], data, answer)


def _publish(
    topic: str, publisher: str, payloads: Sequence[bytes], whole: bytes, answer: bytes
) -> Publish:
    """`answer`: NIL if a NOP follows them, which is answered when they are durable."""
    run = Run(topic, payloads, protocol=NAME, publisher=publisher)
    run.remember(NAME, whole)  # what subscribers get is what came in, byte for byte
    return Publish(run, answer)


def _ascii(raw: bytes, what: str) -> str:
    try:
        return raw.decode("ascii")
    except UnicodeDecodeError:
        raise Refusal(Code.MALFORMED, f"the {what} is not ASCII") from None


def _failed(error: HeadwaterError) -> bytes:
    """Message 8, its text cut to what clients read."""
    text = str(error).encode("ascii", "replace").replace(b"\0", b"?")
    return FAILED + text[: ERROR_BYTES - 1] + b"\0"
