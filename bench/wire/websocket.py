"""WebSocket, as far as the load needs it: the upgrade, and frames of one message each.

The masking keys of the load are zero. A frame then holds its payload as it is, and can be built
in bulk; a broker has the same work with it as with any other key.
"""

import socket

from bench.wire.base import Content, expect, receive_until

TEXT, BINARY, PING, PONG = 0x1, 0x2, 0x9, 0xA
_FIN, _MASK = 0x80, 0x80
_MOST_HEAD = 10  # bytes, without a key
_KEY = bytes(4)

# The key of RFC 6455, 1.3: nothing depends on it but the answer.
_REQUEST = (
    "GET {target} HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def upgrade(link: socket.socket, target: str) -> None:
    link.sendall(_REQUEST.format(target=target).encode())
    answer = receive_until(link, b"\r\n\r\n")
    if b" 101 " not in answer.partition(b"\r\n")[0]:
        raise ConnectionError(f"the broker refused the connection: {answer!r}")


def ask(link: socket.socket) -> None:
    """Wait until everything that was sent before has had its effect."""
    link.sendall(A_PING)
    expect(link, A_PONG)


def masked_head(opcode: int, size: int) -> bytes:
    """What a client sends before a payload of this size."""
    return bytes([_FIN | opcode]) + _size(size, _MASK) + _KEY


def masked(opcode: int, payload: bytes) -> bytes:
    return masked_head(opcode, len(payload)) + payload


def framed(size: int) -> int:
    """The bytes of a frame of the broker that carries so many."""
    return 1 + len(_size(size, 0)) + size


def payloads_in(data: bytes) -> tuple[list[bytes], int]:
    """The payloads of all whole frames of the broker in `data`, and how many bytes those are."""
    found, position = [], 0
    while position + 2 <= len(data):
        size, start = data[position + 1], position + 2
        if size >= 126:
            digits = 2 if size == 126 else 8
            size, start = int.from_bytes(data[start : start + digits], "big"), start + digits
        if start + size > len(data):
            break
        found.append(data[start : start + size])
        position = start + size
    return found, position


class Frames(Content):
    """What the frames of a broker hold, where one frame may hold any number of deliveries."""

    def __init__(self) -> None:
        self._head = b""  # of the next frame, as far as it has arrived
        self._missing = 0  # bytes of the frame that has begun

    def feed(self, data: memoryview) -> int:
        found = position = 0
        while position < len(data):
            if not self._missing:
                position += self._feed_head(data, position)
                continue
            part = min(self._missing, len(data) - position)
            self._missing -= part
            found, position = found + part, position + part
        return found

    def _feed_head(self, data: memoryview, position: int) -> int:
        """How many bytes were taken: those that are missing for a head, or all there are."""
        before = len(self._head)
        head = self._head + bytes(data[position : position + _MOST_HEAD])
        if len(head) >= 2:
            digits = {126: 2, 127: 8}.get(head[1], 0)
            if len(head) >= 2 + digits:
                size = head[2 : 2 + digits] if digits else head[1:2]
                self._head, self._missing = b"", int.from_bytes(size, "big")
                return 2 + digits - before
        self._head = head
        return len(head) - before


def _size(size: int, mask: int) -> bytes:
    if size < 126:
        return bytes([mask | size])
    if size < 0x10000:
        return bytes([mask | 126]) + size.to_bytes(2, "big")
    return bytes([mask | 127]) + size.to_bytes(8, "big")


A_PING = masked(PING, b"")
A_PONG = bytes([_FIN | PONG, 0])
