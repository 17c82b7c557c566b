"""CrystalConnector. Every Publish is answered by a Result once it is durable, whether or not anyone
wants to know; publishers read them."""

import socket
import uuid
from typing import ClassVar

from bench.wire.base import Burst, Wire, expect
from bench.wire.websocket import BINARY, masked, payloads_in, upgrade

SECRET = "what the benchmark authenticates with"
_INCOMING, _OUTGOING = 1, 2
_SUCCESSFUL = b"\x82\x02\x0a\x00"  # a frame with a Result


class Crystal(Wire):
    name: ClassVar[str] = "crystal"
    text: ClassVar[bool] = True
    always_answers: ClassVar[bool] = True
    ack_mark: ClassVar[bytes] = b"\x0a"
    refusal_mark: ClassVar[bytes] = b"\x10"  # the field of a Result that holds an error

    def open_publisher(self, link: socket.socket, topic: str) -> None:
        _authenticate(link, topic, _OUTGOING)

    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        _authenticate(link, topic, _INCOMING)

    def publish(self, topic: str, payload: bytes) -> bytes:
        return masked(BINARY, _field(1, _channel(topic)) + _field(2, payload))

    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        found, used = payloads_in(data)
        return [_last_field(forward) for forward in found], used

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        data = b"".join(self.publish(topic, message) for message in messages)
        return Burst(data, len(messages), len(messages))


def _authenticate(link: socket.socket, topic: str, direction: int) -> None:
    upgrade(link, "/")
    # Every client has an id of its own; all have the same name, which is what subscribers see.
    client = _field(1, b"bench") + _field(2, uuid.uuid4().hex.encode())
    channel = _field(1, _channel(topic)) + bytes([2 << 3, direction])
    request = _field(1, client) + _field(2, b"bench") + _field(3, SECRET.encode())
    link.sendall(masked(BINARY, request + _field(4, channel)))
    expect(link, _SUCCESSFUL)


def _channel(topic: str) -> bytes:
    """The first level of a topic is the namespace."""
    namespace, _, name = topic.encode().partition(b"/")
    return _field(1, namespace) + _field(2, name)


def _field(number: int, content: bytes) -> bytes:
    """A field of text, bytes or a message."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    digits = bytearray()
    while True:
        number, digit = divmod(number, 128)
        digits.append(digit | 0x80 if number else digit)
        if not number:
            return bytes(digits)


def _last_field(message: bytes) -> bytes:
    """The payload is the last field of a Forward, which has no other kind of fields."""
    position, content = 0, b""
    while position < len(message):
        size = shift = 0
        position += 1
        while True:
            digit = message[position]
            size |= (digit & 0x7F) << shift
            shift, position = shift + 7, position + 1
            if digit < 0x80:
                break
        content = message[position : position + size]
        position += size
    return content


WIRE = Crystal()
