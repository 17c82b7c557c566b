"""The client's side of a WebSocket connection: what the codecs that use it have in common."""

import json
import os
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import cast

from headwater.errors import Code, Refusal
from headwater.message import Headers
from headwater.protocols.base import Answered, ClientSession, Ended, Event, Pinged, Ready
from headwater.protocols.websocket.frames import (
    CLOSE,
    PING,
    PONG,
    CloseCode,
    FrameReader,
    Message,
    close_payload,
    masked_frame,
    masked_frames,
)
from headwater.protocols.websocket.handshake import END, accept, find_header, read_headers

RESPONSE_BYTES = 64 * 1024
_CODE_OF = {401: Code.NOT_PERMITTED, 403: Code.NOT_PERMITTED, 404: Code.NOT_FOUND}


class WebSocketClient(ClientSession):
    """The opening handshake, then messages; pings and the end are dealt with here.

    The answer to the handshake is a greeting, and settles the request that asked for it.
    """

    def __init__(self, message_bytes: int, nonce: bytes = b"") -> None:
        self._key = b64encode(nonce or os.urandom(16)).decode()
        self._reader = FrameReader(message_bytes, masked=False)
        self._response = b""  # what has arrived of it
        self._open = False
        self._ended = False

    def request(self, host: str, target: str, headers: Headers = ()) -> bytes:
        """The request that opens the connection."""
        lines = [
            f"GET {target} HTTP/1.1",
            f"Host: {host}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key}",
            "Sec-WebSocket-Version: 13",
            *[f"{name}: {value}" for name, value in headers],
        ]
        return "\r\n".join(lines).encode() + END

    def messages(self, opcode: int, payloads: Sequence[bytes]) -> bytes:
        return masked_frames(opcode, payloads, os.urandom(4 * len(payloads)))

    def ping(self, payload: bytes = b"") -> bytes:
        return masked_frame(PING, payload, os.urandom(4))

    def close_frame(self, code: CloseCode = CloseCode.NORMAL, reason: str = "") -> bytes:
        return masked_frame(CLOSE, close_payload(code, reason), os.urandom(4))

    @abstractmethod
    def read(self, messages: list[Message]) -> Iterator[Event]:
        """Data messages that arrived together, in order."""

    def pong(self, payload: bytes) -> Iterator[Event]:
        """The broker has answered a ping."""
        return iter(())

    def receive(self, data: bytes) -> Iterator[Event]:
        if self._ended:
            return
        for event in self._receive(data):
            self._ended = isinstance(event, Ended)
            yield event
            if self._ended:
                return

    def _receive(self, data: bytes) -> Iterator[Event]:
        if not self._open:
            self._response += data
            yield from self._handshake()
            if not self._open:
                return
            data, self._response = self._response, b""
        if data:
            yield from self._frames(data)

    def _handshake(self) -> Iterator[Event]:
        end = self._response.find(END)
        if end < 0:
            if len(self._response) > RESPONSE_BYTES:
                yield Ended("the answer to the handshake has no end")
            return
        first, *lines = self._response[:end].decode(errors="replace").split("\r\n")
        body = self._response[end + len(END) :]
        try:
            version, status, *_ = [*first.split(" ", 2), ""]
            headers = read_headers(lines)
            number = int(status)
        except ValueError:
            yield Ended("the answer to the handshake is not HTTP")
            return
        if number != 101:
            yield from self._refused(number, headers, body)
        elif not version.startswith("HTTP/1.") or not self._proven(headers):
            yield Ended("the answer to the handshake does not fit its key")
        else:
            self._open, self._response = True, body
            yield Ready()
            yield Answered()

    def _proven(self, headers: list[tuple[str, str]]) -> bool:
        return find_header(headers, "Sec-WebSocket-Accept") == accept(self._key)

    def _refused(self, status: int, headers: list[tuple[str, str]], body: bytes) -> Iterator[Event]:
        size = find_header(headers, "Content-Length")
        if size.isdecimal() and len(size) < 10:
            body = body[: int(size)]
            if len(body) < min(int(size), RESPONSE_BYTES):
                return  # the rest is on its way
        sentence = _message(body) or "the broker refuses the connection"
        if 400 <= status < 500:  # trying again would not help
            code = _CODE_OF.get(status, Code.MALFORMED)
            yield Answered(Refusal(code, f"{status} {sentence}"))
        yield Ended(f"{status} {sentence}")

    def _frames(self, data: bytes) -> Iterator[Event]:
        messages = cast(list[Message], self._reader.receive(data))  # it skips none
        failed = self._reader.failed
        start = 0
        for index in self._reader.controls:
            if start < index:
                yield from self.read(messages[start:index])
            yield from self._control(*messages[index])
            start = index + 1
        if start < len(messages):
            yield from self.read(messages[start:])
        if failed is not None:
            yield Ended(f"what the broker sent makes no sense: {failed}")

    def _control(self, opcode: int, payload: bytes) -> Iterator[Event]:
        if opcode == PING:
            yield Pinged(masked_frame(PONG, payload, os.urandom(4)))
        elif opcode == PONG:
            yield from self.pong(payload)
        else:
            reason = payload[2:].decode() or "the broker closed the connection"
            yield Ended(reason)


def _message(body: bytes) -> str:
    """What a refusal says for people."""
    try:
        told = json.loads(body)
    except ValueError:
        return ""
    return str(told.get("message", "")) if isinstance(told, dict) else ""
