"""PSMB's client side: the bytes of requests, and what a broker sends as events."""

from collections.abc import Callable, Iterator

from headwater.errors import Code, ProtocolViolation, Refusal
from headwater.protocols.base import Answered, ClientSession, Delivered, Ended, Event, Pinged, Ready
from headwater.protocols.bulk import Intake
from headwater.protocols.psmb.wire import (
    ALLOW_HISTORY,
    BAD_COMMAND,
    BYE,
    ERROR_BYTES,
    FAILED,
    HANDSHAKE,
    MAGIC,
    MSG,
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
    message_size,
    read_messages,
)

#: What a reader found: the position behind it and an event, or how many bytes it would need.
Step = tuple[int, Event | None] | int


def _text(text: str) -> bytes:
    if "\0" in text or not text.isascii():
        raise Refusal(Code.MALFORMED, f"PSMB's names are ASCII without NUL, not: {text!r}")
    return text.encode("ascii") + b"\0"


class PsmbClientSession(ClientSession):
    """The client's side."""

    def __init__(self, message_bytes: int, pattern: str = "") -> None:
        self._limit = message_bytes
        self._intake = Intake()
        self._ended = False
        self._pattern = pattern  # all that a subscriber knows of the topics it receives
        self._read: Callable[[bytes, int], Step] = self._read_welcome

    @staticmethod
    def hello(version: int = VERSIONS[-1]) -> bytes:
        return HANDSHAKE.pack(MAGIC, version, 0)

    @staticmethod
    def publishing(topic: str) -> bytes:
        return PUB + _text(topic)

    @staticmethod
    def subscribe(pattern: str, subscriber: int | None = None) -> bytes:
        options = 0 if subscriber is None else ALLOW_HISTORY
        tail = b"" if subscriber is None else U64.pack(subscriber)
        return SUB + U32.pack(options) + _text(pattern) + tail

    def receive(self, data: bytes) -> Iterator[Event]:
        data = self._intake.take(data)
        position = 0
        while position < len(data) and not self._ended:
            try:
                step = self._read(data, position)
            except ProtocolViolation as violation:
                step = position, Ended(str(violation))
            if isinstance(step, int):
                self._intake.keep(data[position:], step)
                return
            position, event = step
            self._ended = isinstance(event, Ended)
            if event is not None:
                yield event

    def _read_welcome(self, data: bytes, position: int) -> Step:
        end = data.find(b"\0", position, position + len(UNSUPPORTED))
        if end < 0 and len(data) - position < len(UNSUPPORTED):
            return len(data) - position + 1
        word = data[position : end + 1]
        if word == UNSUPPORTED:
            return end + 1, Ended("the broker does not support this version of PSMB")
        if word != OK:
            return len(data), Ended("what answered is not a PSMB broker")
        if len(data) - position < len(WELCOME):
            return len(WELCOME)
        if data[end + 1 : end + 5] != bytes(4):  # I.3: anything but zero ends the connection
            return end + 5, Ended("the broker asked for options that are not defined")
        self._read = self._read_verdict
        return end + 5, Ready()

    def _read_verdict(self, data: bytes, position: int) -> Step:
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
        if stop < 0 and len(data) - end - 1 >= ERROR_BYTES:
            return len(data), Ended("the broker's answer has no end")
        if stop < 0:
            return len(data) - position + 1
        text = data[end + 1 : stop].decode("ascii", "replace")
        return stop + 1, Answered(Refusal(Code.NOT_PERMITTED, text))

    def _read_exchange(self, data: bytes, position: int) -> Step:
        payloads, end = read_messages(data, position, self._limit)
        if payloads:
            return end, Delivered(self._pattern, payloads)
        if len(data) - position < 3:
            return 3
        word = data[position : position + 3]
        if word == MSG:
            return message_size(data, position)
        if word == NOP:
            return position + 3, Pinged(NIL)
        if word == NIL:
            return position + 3, Answered()
        return len(data), Ended("the broker said BYE" if word == BYE else f"unknown word {word!r}")
