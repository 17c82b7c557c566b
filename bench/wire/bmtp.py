"""BMTP, with the JSON envelope. Not acknowledged means QoS 0, acknowledged QoS 1: each PUB is
answered by a PUBACK once it is durable. A connection has 255 stream ids, and so may a client have
255 messages unacknowledged."""

import json
import socket
import struct
import zlib
from typing import ClassVar

from bench.wire.base import Burst, Numbered, expect

_HELLO, _ACCEPTED = b"\x11BMTP", b"\x20"
_PUB, _PUBACK, _SUB, _SUBACK = 3, 4, 0x50, 0x60
_SIZES = {1: 5, 2: 1, _PUBACK: 2, 5: 5, 6: 5, 12: 1, 13: 1, 14: 1}  # by type; PUB has its own
_HEAD = struct.Struct(">BBH")
_CHANNEL = struct.Struct(">BI")
STREAMS = 255
_DONE = bytes([_PUBACK << 4])


class Bmtp(Numbered):
    name: ClassVar[str] = "bmtp"
    text: ClassVar[bool] = True
    tail: ClassVar[bytes] = b'"}'
    delivery_mark: ClassVar[bytes] = tail  # no payload has a quotation mark
    most_unacked: ClassVar[int] = STREAMS
    first_number: ClassVar[int] = 0  # the msg_id of the first message in the log

    def open_publisher(self, link: socket.socket, topic: str) -> None:
        link.sendall(_HELLO)
        expect(link, _ACCEPTED)

    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        self.open_publisher(link, topic)
        link.sendall(self.consume(topic))
        expect(link, _CHANNEL.pack(_SUBACK, channel(topic)))

    def publish(self, topic: str, payload: bytes) -> bytes:
        return _pub(topic, payload, qos=0, stream=0)

    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        found, position = [], 0
        while position < len(data):
            if data[position] >> 4 != _PUB:
                size = _SIZES[data[position] >> 4]
            elif position + _HEAD.size <= len(data):
                size = _HEAD.size + _HEAD.unpack_from(data, position)[2]
            else:
                break
            if position + size > len(data):
                break
            if data[position] >> 4 == _PUB:
                envelope = json.loads(data[position + _HEAD.size : position + size])
                found.append(envelope["data"].encode())
            position += size
        return found, position

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        data = b"".join(
            _pub(topic, message, qos=1, stream=_stream(first + i))
            for i, message in enumerate(messages)
        )
        return Burst(data, len(messages), len(messages))

    def refuses(self, answers: bytes, position: int) -> bool:
        """Every other byte is the status of a PUBACK."""
        statuses = answers[position % 2 :: 2]
        return statuses.count(_DONE) != len(statuses)

    def consume(self, topic: str) -> bytes:
        return _CHANNEL.pack(_SUB, channel(topic))

    def receipts(self, first: int, count: int) -> bytes:
        """The broker takes the stream id that was freed first, so they come round in order."""
        return b"".join(_DONE + bytes([_stream(i)]) for i in range(first, first + count))

    def framed(self, size: int) -> int:
        return size


def channel(topic: str) -> int:
    """Topics of the benchmark are names, and BMTP has numbers."""
    return zlib.crc32(topic.encode())


def _stream(number: int) -> int:
    return number % STREAMS + 1


def _pub(topic: str, payload: bytes, qos: int, stream: int) -> bytes:
    envelope = b'{"consumer_id":%d,"data":"%b"}' % (channel(topic), payload)
    return _HEAD.pack(_PUB << 4 | qos, stream, len(envelope)) + envelope


WIRE = Bmtp()
