"""Prism Notify. A consumer acknowledges every message; a publisher gets no answers.

Where publishing is to be acknowledged it pings: the pong comes when all that was published before
is durable.
"""

import hashlib
import json
import socket
import time
from typing import ClassVar
from urllib.parse import quote

from bench.wire.base import Burst, Numbered, by_digits
from bench.wire.websocket import (
    A_PING,
    BINARY,
    ask,
    framed,
    masked,
    masked_head,
    payloads_in,
    upgrade,
)

APP, SECRET = "bench", "what the benchmark signs with"
_PATH = "/api/notify"
_PUBLISH, _CONSUME, _ACK = b"\x01", b"\x02", b"\x03"


class Prism(Numbered):
    name: ClassVar[str] = "prism"
    text: ClassVar[bool] = True
    tail: ClassVar[bytes] = b'"}'
    must_acknowledge: ClassVar[bool] = True
    first_number: ClassVar[int] = 1  # the first tag of a connection

    def open_publisher(self, link: socket.socket, topic: str) -> None:
        upgrade(link, _signed_target())

    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        self.open_publisher(link, topic)
        link.sendall(self.consume(topic))
        ask(link)

    def publish(self, topic: str, payload: bytes) -> bytes:
        name = key(topic).encode()
        head = _PUBLISH + len(name).to_bytes(2, "big") + name + len(payload).to_bytes(4, "big")
        return masked(BINARY, head + payload)

    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        found, used = payloads_in(data)
        return [json.loads(text)["body"].encode() for text in found], used

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        data = b"".join(self.publish(topic, message) for message in messages)
        return Burst(data + A_PING, len(messages), 1)

    def consume(self, topic: str) -> bytes:
        """The queue that is called like the key; unless it is configured otherwise, it takes it."""
        name = key(topic).encode()
        return masked(BINARY, _CONSUME + len(name).to_bytes(2, "big") + name)

    def receipts(self, first: int, count: int) -> bytes:
        parts, number = list[bytes](), first + self.first_number
        for digits, part in by_digits(number, count):
            # No byte of the head or the command is a percent sign.
            ack = masked_head(BINARY, 1 + digits) + _ACK + b"%d"
            parts += map(ack.__mod__, range(number, number + part))
            number += part
        return b"".join(parts)

    def framed(self, size: int) -> int:
        return framed(size)


def key(topic: str) -> str:
    return topic.replace("/", ".")


def _signed_target() -> str:
    query = f"client_id={APP}&sign_method=md5&sign_time={int(time.time())}"  # sorted
    parts = (SECRET, "GET", quote(_PATH, safe=""), "", quote(query, safe=""), "", SECRET)
    sign = hashlib.md5("&".join(parts).encode(), usedforsecurity=False).hexdigest().upper()
    return f"{_PATH}?{query}&sign={sign}"


WIRE = Prism()
