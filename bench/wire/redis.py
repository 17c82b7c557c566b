"""RESP: PUBLISH and SUBSCRIBE, and XADD to a stream where messages are acknowledged."""

import socket
from typing import ClassVar

from bench.wire.base import Burst, Wire, receive_until


class Redis(Wire):
    name: ClassVar[str] = "redis"
    tail: ClassVar[bytes] = b"\r\n"
    ack_mark: ClassVar[bytes] = b"$"  # $15\r\n1526919030474-0\r\n
    refusal_mark: ClassVar[bytes] = b"-ERR"

    def open_publisher(self, link: socket.socket, topic: str) -> None:
        # Without this every PUBLISH would be answered, which the other brokers do not do.
        link.sendall(_command(b"CLIENT", b"REPLY", b"OFF"))

    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        link.sendall(_command(b"SUBSCRIBE", topic.encode()))
        receive_until(link, b":1\r\n")

    def publish(self, topic: str, payload: bytes) -> bytes:
        return _command(b"PUBLISH", topic.encode(), payload)

    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        found, position = [], 0
        while (parts := _array(data, position)) is not None:
            values, position = parts
            found.append(values[-1])
        return found, position

    def open_acked(self, link: socket.socket, topic: str, index: int) -> None:
        """A fresh connection can do it all."""

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        data = b"".join(_command(b"XADD", topic.encode(), b"*", b"m", m) for m in messages)
        return Burst(data, len(messages), len(messages))


def _command(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


def _array(data: bytes, position: int) -> tuple[list[bytes], int] | None:
    """The strings of the array at `position` and where it ends; None while it is not whole."""
    line = data.find(b"\r\n", position)
    if line < 0:
        return None
    values: list[bytes] = []
    for _ in range(int(data[position + 1 : line])):
        start = line + 2
        line = data.find(b"\r\n", start)
        if line < 0:
            return None
        size = int(data[start + 1 : line])
        values.append(data[line + 2 : line + 2 + size])
        line += 2 + size
    return (values, line + 2) if line + 2 <= len(data) else None
