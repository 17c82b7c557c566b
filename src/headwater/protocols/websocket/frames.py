"""Frames of RFC 6455, read and written many at a time.

    | FIN RSV opcode | MASK length | extended length | masking key | payload |
    |   1   3    4   |   1     7   |  0, 16 or 64    |  0 or 32    |         |   bits, big-endian

A client masks what it sends and a server does not. A message is one frame, or several: the first
has the opcode, the others are continuations, the last has FIN. Control frames (the opcodes from 8
on) are one frame of at most 125 bytes, and may come between the frames of a message.
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from struct import Struct, iter_unpack

from headwater.errors import HeadwaterError
from headwater.protocols.bulk import Intake, alike, with_headers
from headwater.protocols.websocket.masking import apply_mask

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
FIN, MASK = 0x80, 0x80
LONGEST_CONTROL = 125

_WHOLE = frozenset((FIN | TEXT, FIN | BINARY))  # the first byte of a message of one frame
_OPCODES = frozenset((CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG))
_CLOSE_CODES = frozenset((*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)))
_SHORT, _MEDIUM, _LONG = Struct(">BB"), Struct(">BBH"), Struct(">BBQ")

Message = tuple[int, bytes]


class TooLarge:
    """Stands for a message over the limit that was dropped."""

    def __repr__(self) -> str:
        return "TOO_LARGE"


TOO_LARGE = TooLarge()


class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED = 1003
    INVALID_DATA = 1007
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL = 1011


class Failed(HeadwaterError):
    """The peer broke RFC 6455 or a limit; the connection ends with this code."""

    def __init__(self, code: CloseCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class FrameReader:
    """Bytes in, messages out: those of one read together.

    `failed` is set when the peer broke the rules. What came before that is still good; nothing
    comes after it, nor after a close frame.
    """

    def __init__(
        self,
        message_bytes: int,
        *,
        masked: bool,
        skip_oversized: bool = False,
        check_text: bool = True,
    ) -> None:
        self.failed: Failed | None = None
        #: Where control frames are in what `receive` returned last.
        self.controls: list[int] = []
        self._limit = message_bytes
        self._mask, self._key_size = (MASK, 4) if masked else (0, 0)
        self._skip_oversized = skip_oversized
        self._check_text = check_text
        self._intake = Intake()
        self._closed = False
        self._opcode = 0  # of the message that has begun and not ended; 0: there is none
        self._begun = bytearray()  # its payload so far
        self._dropping = False  # it is too large, and dropped
        self._to_drop = 0  # so many bytes of the current frame are still to be dropped

    def allow(self, message_bytes: int) -> None:
        """Messages may have so many bytes from now on."""
        self._limit = message_bytes

    @property
    def unfinished(self) -> int:
        """How many bytes a message that has begun will have, as far as is known."""
        return self._intake.unfinished + len(self._begun)

    def receive(self, data: bytes) -> list[Message | TooLarge]:
        messages: list[Message | TooLarge] = []
        self.controls = []
        if not self._closed:
            try:
                self._read(data, messages)
            except Failed as failed:
                self.failed, self._closed = failed, True
        return messages

    def _read(self, data: bytes, messages: list[Message | TooLarge]) -> None:
        data = self._intake.take(data)
        position, end = self._drop(data, 0), len(data)
        while position < end and not self._closed:
            if not self._opcode:
                position = self._whole_messages(data, position, messages)
            if position < end:
                position = self._one_frame(data, position, messages)

    def _whole_messages(
        self, data: bytes, position: int, messages: list[Message | TooLarge]
    ) -> int:
        """Messages of one frame, as long as they come one after the other: nearly all do, so
        this is the loop that has to be quick. It stops at whatever needs a closer look."""
        mask, key_size, limit, end = self._mask, self._key_size, self._limit, len(data)
        while position + 4 <= end:
            first, body = data[position], position + 2
            size = data[position + 1] ^ mask
            if size == 126:
                size, body = data[position + 2] << 8 | data[position + 3], position + 4
                if size < 126:
                    break
            elif size > 126:
                break
            header = data[position:body]
            body += key_size
            stop = body + size
            if first not in _WHOLE or stop > end or size > limit:
                break
            if data.startswith(header, stop):
                position = self._alike_messages(data, position, header, stop - body, messages)
                continue
            payload = data[body:stop]
            if mask:
                payload = apply_mask(payload, data[body - 4 : body])
            if first == FIN | TEXT and self._check_text:
                _check_utf8(payload, "a text message")
            messages.append((first & 0x0F, payload))
            position = stop
        return position

    def _alike_messages(
        self,
        data: bytes,
        position: int,
        header: bytes,
        size: int,
        messages: list[Message | TooLarge],
    ) -> int:
        """A message, and those behind it of the same kind and size: publishers send many such,
        and looking at their headers together is quicker."""
        behind = self._key_size + size
        stop = position + alike(data, position, header, behind) * (len(header) + behind)
        layout = f"{len(header)}x{self._key_size}s{size}s"
        opcode = header[0] & 0x0F
        cut = iter_unpack(layout, memoryview(data)[position:stop])
        if self._mask:
            payloads = [apply_mask(payload, key) for key, payload in cut]
        else:
            payloads = [payload for _, payload in cut]
        if opcode == TEXT and self._check_text and not all(map(bytes.isascii, payloads)):
            for payload in payloads:
                _check_utf8(payload, "a text message")
                messages.append((opcode, payload))
        else:
            messages += [(opcode, payload) for payload in payloads]
        return stop

    def _one_frame(self, data: bytes, position: int, messages: list[Message | TooLarge]) -> int:
        """The frame at `position`, whatever it is, or what there is of it."""
        body, size, need = self._header(data, position)
        if not need:
            first = data[position]
            if first & 0x0F < CLOSE and self._is_too_large(first, size):
                if first & FIN:
                    messages.append(TOO_LARGE)
                self._to_drop = self._key_size + size
                return self._drop(data, body)
            body += self._key_size
            need = body + size - position
        if position + need > len(data):
            self._intake.keep(data[position:], need)
            return len(data)
        self._take(first, self._payload(data, body, body + size), messages)
        return body + size

    def _header(self, data: bytes, position: int) -> tuple[int, int, int]:
        """Where the header ends (but for the key), the size of the payload, and how many bytes
        of the frame are needed to tell, if they are not there."""
        body, end = position + 2, len(data)
        if body > end:
            return 0, 0, 2
        self._check(data[position], data[position + 1])
        size = data[position + 1] & 0x7F
        if size < 126:
            return body, size, 0
        more, least = (2, 126) if size == 126 else (8, 0x10000)
        if body + more > end:
            return 0, 0, 2 + more
        size = int.from_bytes(data[body : body + more], "big")
        if size < least:  # 5.2: "the minimal number of bytes MUST be used"
            raise Failed(CloseCode.PROTOCOL_ERROR, f"{size} has a shorter form as a length")
        return body + more, size, 0

    def _check(self, first: int, second: int) -> None:
        """Whether a frame may begin with these bytes, here."""
        opcode = first & 0x0F
        if opcode not in _OPCODES:
            raise Failed(CloseCode.PROTOCOL_ERROR, f"there is no opcode {opcode}")
        if first & 0x70:
            raise Failed(CloseCode.PROTOCOL_ERROR, "reserved bits are set")
        if second & MASK != self._mask:
            how = "is not" if self._mask else "is"
            raise Failed(CloseCode.PROTOCOL_ERROR, f"a frame {how} masked")
        if opcode >= CLOSE:
            if not first & FIN:
                raise Failed(CloseCode.PROTOCOL_ERROR, "a control frame is fragmented")
            if second & 0x7F > LONGEST_CONTROL:
                raise Failed(CloseCode.PROTOCOL_ERROR, "a control frame is too long")
        elif opcode == CONTINUATION and not self._opcode:
            raise Failed(CloseCode.PROTOCOL_ERROR, "there is no message to continue")
        elif opcode != CONTINUATION and self._opcode:
            raise Failed(CloseCode.PROTOCOL_ERROR, "a message begins inside another one")

    def _is_too_large(self, first: int, size: int) -> bool:
        if not self._dropping and len(self._begun) + size <= self._limit:
            return False
        if not self._skip_oversized:
            raise Failed(CloseCode.TOO_BIG, f"a message is over the limit of {self._limit} bytes")
        self._begun.clear()
        self._dropping = not first & FIN
        self._opcode = (self._opcode or first & 0x0F) if self._dropping else 0
        return True

    def _drop(self, data: bytes, position: int) -> int:
        """Pass over what is left of a frame that is not wanted."""
        dropped = min(self._to_drop, len(data) - position)
        self._to_drop -= dropped
        return position + dropped

    def _take(self, first: int, payload: bytes, messages: list[Message | TooLarge]) -> None:
        """A frame that is complete and has its place."""
        opcode = first & 0x0F
        if opcode >= CLOSE:
            if opcode == CLOSE:
                self._check_close(payload)
                self._closed = True
            self.controls.append(len(messages))
            messages.append((opcode, payload))
            return
        opcode = self._opcode = self._opcode or opcode
        if not first & FIN:
            self._begun += payload
            return
        if self._begun:
            payload, self._begun = bytes(self._begun + payload), bytearray()
        self._opcode = 0
        if opcode == TEXT and self._check_text:
            _check_utf8(payload, "a text message")
        messages.append((opcode, payload))

    def _check_close(self, payload: bytes) -> None:
        if len(payload) == 1:
            raise Failed(CloseCode.PROTOCOL_ERROR, "a close code has two bytes")
        _check_utf8(payload[2:], "the reason of a close frame")
        code = int.from_bytes(payload[:2], "big")
        if payload and code not in _CLOSE_CODES:
            raise Failed(CloseCode.PROTOCOL_ERROR, f"{code} is not a close code")
        if self._opcode:
            raise Failed(CloseCode.PROTOCOL_ERROR, "the last message is not complete")

    def _payload(self, data: bytes, body: int, stop: int) -> bytes:
        if self._mask:
            return apply_mask(data[body:stop], data[body - 4 : body])
        return data[body:stop]


def _check_utf8(payload: bytes, what: str) -> None:
    if not payload.isascii():
        try:
            payload.decode()
        except UnicodeDecodeError:
            raise Failed(CloseCode.INVALID_DATA, f"{what} is not UTF-8") from None


def header(opcode: int, size: int, mask: int = 0) -> bytes:
    if size < 126:
        return _SHORT.pack(FIN | opcode, mask | size)
    if size < 0x10000:
        return _MEDIUM.pack(FIN | opcode, mask | 126, size)
    return _LONG.pack(FIN | opcode, mask | 127, size)


def frame(opcode: int, payload: bytes = b"") -> bytes:
    return header(opcode, len(payload)) + payload


def frames(opcode: int, payloads: Sequence[bytes]) -> bytes:
    """One frame for each payload."""
    return with_headers(payloads, partial(header, opcode))


def masked_frame(opcode: int, payload: bytes, key: bytes) -> bytes:
    """A client's frame. The key has four bytes that nobody can foresee."""
    return header(opcode, len(payload), MASK) + key + apply_mask(payload, key)


def masked_frames(opcode: int, payloads: Sequence[bytes], keys: bytes) -> bytes:
    """One client's frame for each payload; `keys` has four bytes for each of them."""
    cut = [key for (key,) in iter_unpack("4s", keys)]
    return b"".join(
        [masked_frame(opcode, payload, key) for payload, key in zip(payloads, cut, strict=True)]
    )


def close_frame(code: CloseCode, reason: str = "") -> bytes:
    return frame(CLOSE, close_payload(code, reason))


def close_payload(code: CloseCode, reason: str) -> bytes:
    """Code and reason; the reason is cut to what fits, between two characters."""
    cut = reason.encode()[: LONGEST_CONTROL - 2].decode(errors="ignore")
    return code.to_bytes(2, "big") + cut.encode()
