"""WebSocket, as far as the load needs it: the upgrade, and frames of one message each.

The masking keys of the load are zero. A frame then holds its payload as it is, and can be built
in bulk; a broker has the same work with it as with any other key.
"""

import socket

from bench.wire.base import expect, receive_until

TEXT, BINARY, PING, PONG = 0x1, 0x2, 0x9, 0xA
_FIN, _MASK = 0x80, 0x80
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


def _size(size: int, mask: int) -> bytes:
    if size < 126:
        return bytes([mask | size])
    if size < 0x10000:
        return bytes([mask | 126]) + size.to_bytes(2, "big")
    return bytes([mask | 127]) + size.to_bytes(8, "big")


A_PING = masked(PING, b"")
A_PONG = bytes([_FIN | PONG, 0])
