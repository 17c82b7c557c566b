"""The NATS client protocol inside WebSocket frames, as nats-server's own listener speaks it.

A message that is published has a frame of its own, as those of Prism and CrystalConnector have.
What nats-server sends at once is one frame, however many messages it is, so deliveries are counted
by what is inside.
"""

import socket
from typing import ClassVar

from bench.wire.base import Content, receive_until
from bench.wire.nats import CONNECT, Nats
from bench.wire.websocket import BINARY, Frames, masked, payloads_in, upgrade


class NatsWebSocket(Nats):
    name: ClassVar[str] = "nats-ws"

    def open_publisher(self, link: socket.socket, topic: str) -> None:
        upgrade(link, "/")  # INFO comes after the answer, and perhaps with it
        link.sendall(masked(BINARY, CONNECT))
        receive_until(link, b"PONG\r\n")

    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        self.open_publisher(link, topic)
        link.sendall(masked(BINARY, b"SUB %b 1\r\nPING\r\n" % topic.encode()))
        receive_until(link, b"PONG\r\n")

    def publish(self, topic: str, payload: bytes) -> bytes:
        return masked(BINARY, super().publish(topic, payload))

    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        frames, used = payloads_in(data)
        return super().deliveries(b"".join(frames))[0], used

    def content(self) -> Content:
        return Frames()
