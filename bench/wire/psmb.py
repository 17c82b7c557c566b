"""PSMB. Acknowledged means: NOP after messages; its NIL comes when they all are durable."""

import socket
import struct
from typing import ClassVar

from bench.wire.base import Burst, Wire, expect

# In version 1 the broker sends no NOP to publishers, so all that they read is NIL.
_HELLO = struct.pack(">4sII", b"PSMB", 1, 0)
_LENGTH = struct.Struct(">Q")


class Psmb(Wire):
    name: ClassVar[str] = "psmb"
    any_level: ClassVar[str] = "[^/]+"  # patterns are regular expressions
    keepalive: ClassVar[bytes] = b"NOP"
    keepalive_answer: ClassVar[bytes] = b"NIL"

    def open_publisher(self, link: socket.socket, topic: str) -> None:
        _hello(link)
        link.sendall(b"PUB" + topic.encode() + b"\0")
        expect(link, b"OK\0")

    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        _hello(link)
        link.sendall(b"SUB\0\0\0\0" + topic.encode() + b"\0")
        expect(link, b"OK\0")

    def publish(self, topic: str, payload: bytes) -> bytes:
        return b"MSG" + _LENGTH.pack(len(payload)) + payload

    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        found, position = [], 0
        while position + 3 <= len(data):
            if data[position : position + 3] == b"MSG":
                start = position + 11
                if start > len(data):
                    break
                end = start + _LENGTH.unpack_from(data, position + 3)[0]
                if end > len(data):
                    break
                found.append(data[start:end])
                position = end
            else:
                position += 3  # NOP
        return found, position

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        data = b"".join(self.publish(topic, message) for message in messages)
        return Burst(data + b"NOP", len(messages), 1)


def _hello(link: socket.socket) -> None:
    link.sendall(_HELLO)
    expect(link, b"OK\0\0\0\0\0")


WIRE = Psmb()
