"""What the load needs to know of a protocol.

A `Wire` opens connections (blocking, before any clock runs), encodes, and can take deliveries
apart for the warm-up. In the measurement itself only sizes and marks are used:

    frame size   learned in the warm-up; a delivery of the same topic always has the same size
    tail         the bytes that follow a payload, so that the last message can be recognised
    keepalive    what a broker may send in between on its own, so that it is not taken for loss
    ack mark     a byte that occurs once in every acknowledgement; none: they all have one size
"""

import random
import socket
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

# No socket call may wait longer than this, so that every run comes to an end.
SOCKET_SECONDS = 20

# With the kernel's own choice (up to 4 MB) the slowest broker would need many seconds to read what
# a publisher had written when its time was up.
SEND_BUFFER = 256 * 1024

END = b"<end of replay!>"  # the last bytes of the last payload


@dataclass(frozen=True, slots=True)
class Aim:
    """Where to send what."""

    wire: str
    address: tuple[str, int]
    topic: str
    payload_bytes: int
    filter: str = ""  # what the subscriber asks for; empty: the topic
    spread: int = 1  # number of topics; more than one: `topic` is completed with a number


@dataclass(frozen=True, slots=True)
class Burst:
    """Messages to send at once, and how many acknowledgements they bring."""

    data: bytes
    messages: int
    acks: int


class Wire(ABC):
    name: ClassVar[str]
    tail: ClassVar[bytes] = b""
    keepalive: ClassVar[bytes] = b""
    keepalive_answer: ClassVar[bytes] = b""
    ack_mark: ClassVar[bytes] = b""
    refusal_mark: ClassVar[bytes] = b""

    @abstractmethod
    def open_publisher(self, link: socket.socket, topic: str) -> None:
        """Make a fresh connection ready for `publish`."""

    @abstractmethod
    def open_subscriber(self, link: socket.socket, topic: str) -> None:
        """Subscribe; returns when the broker has confirmed it."""

    @abstractmethod
    def publish(self, topic: str, payload: bytes) -> bytes:
        """One message, not acknowledged."""

    @abstractmethod
    def deliveries(self, data: bytes) -> tuple[list[bytes], int]:
        """The payloads of all whole deliveries in `data`, and how many bytes those are."""

    def prepare_acked(self, link: socket.socket, topic: str) -> None:
        """Set up what keeps the messages, on a connection of its own. Most need no more."""
        self.open_publisher(link, topic)

    def open_acked(self, link: socket.socket, topic: str, index: int) -> None:
        """Make a fresh connection ready for `acked`; `index` tells connections apart."""
        self.open_publisher(link, topic)

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        """Messages that the broker acknowledges; `first` numbers them where that is needed."""
        raise NotImplementedError(f"{self.name} has no acknowledged publishing")


def connect(address: tuple[str, int], receive_buffer: int = 0) -> socket.socket:
    """A blocking connection with bounded waits.

    The bounds are socket options: Python's own timeout would cost one more system call per read.
    """
    link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound = struct.pack("ll", SOCKET_SECONDS, 0)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, bound)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, bound)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if receive_buffer:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    link.connect(address)
    return link


def receive(link: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes."""
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionError(f"the broker closed the connection after {data!r}")
        data += part
    return data


def receive_until(link: socket.socket, end: bytes) -> bytes:
    """Until `end` has come; for answers that nothing follows, except perhaps a keep-alive."""
    data = b""
    while end not in data:
        part = link.recv(65536)
        if not part:
            raise ConnectionError(f"the broker closed the connection after {data!r}")
        data += part
    return data


def expect(link: socket.socket, answer: bytes) -> None:
    got = receive(link, len(answer))
    if got != answer:
        raise ConnectionError(f"expected {answer!r}, the broker answered {got!r}")


def payloads(count: int, size: int, seed: int = 1) -> list[bytes]:
    """Random-looking and the same in every run: no broker gains by compressing them."""
    source = random.Random(seed)
    return [source.randbytes(size) for _ in range(count)]


def last_payload(size: int) -> bytes:
    return payloads(1, size - len(END), seed=2)[0] + END
