"""MQTT 3.1.1: QoS 0 where nothing is acknowledged, QoS 1 where it is."""

import socket
from typing import ClassVar

from bench.wire.base import Burst, Wire, expect

_PUBLISH_QOS0, _PUBLISH_QOS1 = 0x30, 0x32
_CLEAN, _KEEP = 0x02, 0x00


class Mqtt(Wire):
    name: ClassVar[str] = "mqtt"

    def open_publisher(self, link: socket.socket, topic: str) -> None:
        _hello(link, b"", _CLEAN)

    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        _hello(link, b"", _CLEAN)
        _subscribe(link, topic, qos=0)

    def publish(self, topic: str, payload: bytes) -> bytes:
        return _packet(_PUBLISH_QOS0, _text(topic.encode()) + payload)

    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        found, position = [], 0
        while (head := _header(data, position)) is not None:
            start, end = head
            if end > len(data):
                break
            topic_size = int.from_bytes(data[start : start + 2], "big")
            found.append(data[start + 2 + topic_size : end])
            position = end
        return found, position

    def prepare_acked(self, link: socket.socket, topic: str) -> None:
        """A durable session that is away: without it the broker would have nothing to keep."""
        _hello(link, b"keeper", _KEEP)
        _subscribe(link, topic, qos=1)
        link.sendall(b"\xe0\x00")  # DISCONNECT

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        name = _text(topic.encode())
        data = b"".join(
            _packet(_PUBLISH_QOS1, name + (first + i + 1).to_bytes(2, "big") + message)
            for i, message in enumerate(messages)
        )
        return Burst(data, len(messages), len(messages))


def _hello(link: socket.socket, client: bytes, flags: int) -> None:
    # A keep-alive of 0 switches it off.
    link.sendall(_packet(0x10, _text(b"MQTT") + bytes([4, flags, 0, 0]) + _text(client)))
    expect(link, b"\x20\x02\x00\x00")


def _subscribe(link: socket.socket, topic: str, qos: int) -> None:
    link.sendall(_packet(0x82, b"\x00\x01" + _text(topic.encode()) + bytes([qos])))
    expect(link, b"\x90\x03\x00\x01" + bytes([qos]))


def _text(value: bytes) -> bytes:
    return len(value).to_bytes(2, "big") + value


def _packet(kind: int, body: bytes) -> bytes:
    size, digits = len(body), bytearray()
    while True:
        size, digit = divmod(size, 128)
        digits.append(digit | 0x80 if size else digit)
        if not size:
            return bytes([kind]) + bytes(digits) + body


def _header(data: bytes, position: int) -> tuple[int, int] | None:
    """Where the body of the packet at `position` starts and ends; None while that is unknown."""
    size = shift = 0
    for i in range(position + 1, min(position + 5, len(data))):
        size |= (data[i] & 0x7F) << shift
        shift += 7
        if not data[i] & 0x80:
            return i + 1, i + 1 + size
    return None
