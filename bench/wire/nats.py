"""The NATS client protocol, plain and with JetStream acknowledgements."""

import json
import socket
from typing import ClassVar

from bench.wire.base import Burst, Wire, receive_until

STREAM = "BENCH"

_OPTIONS = {"verbose": False, "pedantic": False, "lang": "bench", "version": "1", "protocol": 1}
CONNECT = b"CONNECT %b\r\nPING\r\n" % json.dumps(_OPTIONS).encode()


class Nats(Wire):
    name: ClassVar[str] = "nats"
    separator: ClassVar[str] = "."
    any_level: ClassVar[str] = "*"
    tail: ClassVar[bytes] = b"\r\n"
    keepalive: ClassVar[bytes] = b"PING\r\n"  # at once after CONNECT, and then at intervals
    keepalive_answer: ClassVar[bytes] = b"PONG\r\n"

    def open_publisher(self, link: socket.socket, topic: str) -> None:
        receive_until(link, b"\r\n")  # INFO
        link.sendall(CONNECT)
        receive_until(link, b"PONG\r\n")

    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        self.open_publisher(link, topic)
        link.sendall(b"SUB %b 1\r\nPING\r\n" % topic.encode())
        receive_until(link, b"PONG\r\n")

    def publish(self, topic: str, payload: bytes) -> bytes:
        return b"PUB %b %d\r\n%b\r\n" % (topic.encode(), len(payload), payload)

    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        found, position = [], 0
        while (line := data.find(b"\r\n", position)) >= 0:
            words = data[position:line].split()
            end = line + 2
            if words[0] == b"MSG":
                end += int(words[-1]) + 2
                if end > len(data):
                    break
                found.append(data[line + 2 : end - 2])
            position = end
        return found, position


class JetStream(Nats):
    """Every PUB names an inbox, where the stream's acknowledgement arrives as a message."""

    name: ClassVar[str] = "jetstream"
    ack_mark: ClassVar[bytes] = b"{"  # {"stream":"BENCH","seq":1}
    refusal_mark: ClassVar[bytes] = b'"error"'

    def prepare_acked(self, link: socket.socket, topic: str) -> None:
        self.open_subscriber(link, "_INBOX.setup")
        stream = {"name": STREAM, "subjects": [topic], "storage": "file", "retention": "limits"}
        request = json.dumps({**stream, "max_msgs": -1, "max_bytes": -1, "num_replicas": 1})
        head = f"PUB $JS.API.STREAM.CREATE.{STREAM} _INBOX.setup {len(request)}\r\n"
        link.sendall(head.encode() + request.encode() + b"\r\n")
        answer = receive_until(link, b"}\r\n")
        if b'"error"' in answer:
            raise ConnectionError(f"JetStream refused the stream: {answer!r}")

    def open_acked(self, link: socket.socket, topic: str, index: int) -> None:
        self.open_subscriber(link, _inbox(index))

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        head = f"PUB {topic} {_inbox(index)} {len(messages[0])}\r\n".encode()
        data = b"".join(head + message + b"\r\n" for message in messages)
        return Burst(data, len(messages), len(messages))


def _inbox(index: int) -> str:
    return f"_INBOX.{index:03d}"
