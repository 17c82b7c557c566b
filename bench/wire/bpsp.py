"""BPSP. Acknowledged means: the ACK flag; each PUB is answered by +OK once it is durable."""

import socket
import struct
from typing import ClassVar

from bench.wire.base import Burst, Wire, receive

_INFO, _CONNECT, _PUB, _SUB, _MSG, _OK = 1, 2, 3, 4, 6, 7
_ACK = 0x80
_HEAD = struct.Struct(">HBBI")


class Bpsp(Wire):
    name: ClassVar[str] = "bpsp"

    def open_publisher(self, link: socket.socket, topic: str) -> None:
        _answer(link, _INFO)
        link.sendall(_frame(_CONNECT, _ACK))
        _answer(link, _OK)

    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        self.open_publisher(link, topic)
        link.sendall(_frame(_SUB, _ACK, topic))
        _answer(link, _OK)

    def publish(self, topic: str, payload: bytes) -> bytes:
        return _frame(_PUB, 0, topic, payload)

    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        found, position = [], 0
        while position + _HEAD.size <= len(data):
            headers, opcode, _, size = _HEAD.unpack_from(data, position)
            end = position + _HEAD.size + headers + size
            if end > len(data):
                break
            if opcode == _MSG:
                found.append(data[end - size : end])
            position = end
        return found, position

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        data = b"".join(_frame(_PUB, _ACK, topic, message) for message in messages)
        return Burst(data, len(messages), len(messages))

    def subscribe_many(self, link: socket.socket, topics: list[str]) -> None:
        """Add subscriptions to an open connection. Only the last asks for an answer, which comes
        after all of them are in place."""
        frames = [_frame(_SUB, 0, topic) for topic in topics[:-1]]
        link.sendall(b"".join(frames) + _frame(_SUB, _ACK, topics[-1]))
        _answer(link, _OK)


def _frame(opcode: int, flags: int, topic: str = "", data: bytes = b"") -> bytes:
    headers = f'"x-topic""{topic}";'.encode() if topic else b""
    return _HEAD.pack(len(headers), opcode, flags, len(data)) + headers + data


def _answer(link: socket.socket, wanted: int) -> None:
    headers, opcode, _, size = _HEAD.unpack(receive(link, _HEAD.size))
    body = receive(link, headers + size)
    if opcode != wanted:
        raise ConnectionError(f"expected opcode {wanted}, the broker sent {opcode}: {body!r}")


WIRE = Bpsp()
