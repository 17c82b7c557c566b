"""What the load needs to know of a protocol.

A `Wire` opens connections (blocking, before any clock runs), encodes, and can take deliveries
apart for the warm-up. In the measurement itself only sizes and marks are used:

    frame size   learned in the warm-up; a delivery of the same topic always has the same size, or
                 one that follows from its number (`Numbered`)
    tail         the bytes that follow a payload, so that the last message can be recognised
    mark         bytes that occur once in every delivery, where its size cannot be known
    content      what is left of the bytes that arrive, where frames hold any number of deliveries
    keepalive    what a broker may send in between on its own, so that it is not taken for loss
    ack mark     a byte that occurs once in every acknowledgement; none: they all have one size
"""

import random
import socket
import string
import struct
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
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


class Content(ABC):
    """Takes the frames off what one connection receives, however the reads have cut it."""

    @abstractmethod
    def feed(self, data: memoryview) -> int:
        """How many bytes of it are not of a frame's head."""


class Wire(ABC):
    name: ClassVar[str]
    separator: ClassVar[str] = "/"  # of the levels of a topic
    any_level: ClassVar[str] = "+"  # in what is subscribed to: one level, whatever it is
    tail: ClassVar[bytes] = b""
    delivery_mark: ClassVar[bytes] = b""
    keepalive: ClassVar[bytes] = b""
    keepalive_answer: ClassVar[bytes] = b""
    ack_mark: ClassVar[bytes] = b""
    refusal_mark: ClassVar[bytes] = b""
    text: ClassVar[bool] = False  # it carries text, not bytes
    always_answers: ClassVar[bool] = False  # also what `publish` sent; the answers are like acks
    must_acknowledge: ClassVar[bool] = False  # a subscriber has to send `receipts`
    most_unacked: ClassVar[int] = sys.maxsize  # messages that a publisher may have on their way

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

    def wildcard(self, topic: str) -> str:
        """What to subscribe to for all topics one level below this one."""
        return self.join(topic, self.any_level)

    def join(self, *levels: str) -> str:
        return self.separator.join(levels)

    def content(self) -> Content | None:
        """None: every frame is a delivery, and its size counts as it is."""
        return None

    def prepare_acked(self, link: socket.socket, topic: str) -> None:  # noqa: B027
        """Set up what keeps the messages of a topic, which may be a wildcard, on a connection of
        its own. Most have nothing to set up."""

    def open_acked(self, link: socket.socket, topic: str, index: int) -> None:
        """Make a fresh connection ready for `acked`; `index` tells connections apart."""
        self.open_publisher(link, topic)

    def acked(self, topic: str, messages: list[bytes], index: int, first: int) -> Burst:
        """Messages that the broker acknowledges; `first` numbers them where that is needed."""
        raise NotImplementedError(f"{self.name} has no acknowledged publishing")

    def refuses(self, answers: bytes, position: int) -> bool:
        """Whether the broker declined a message; `position`: the bytes of answers before these."""
        return bool(self.refusal_mark) and self.refusal_mark in answers

    def consume(self, topic: str) -> bytes:
        """On an open connection: take messages from the queue of this topic, from now on."""
        raise NotImplementedError(f"{self.name} has no queues")

    def receipts(self, first: int, count: int) -> bytes:
        """Acknowledge deliveries of a connection; `first` is 0 for the first one."""
        raise NotImplementedError(f"{self.name} has no queues")

    def size(self, frame: int, first: int, count: int) -> int:
        """The bytes of so many deliveries, where `first` were before them."""
        return frame * count

    def whole(self, frame: int, size: int) -> int:
        """How many whole deliveries the first `size` bytes are."""
        return size // frame

    def frame(self, size: int, count: int) -> int:
        """What `size` and `whole` call the size of a frame, if the first `count` have so many
        bytes."""
        for frame in range(size // count, 0, -1):
            if self.size(frame, 0, count) == size:
                return frame
        raise ConnectionError(f"{count} deliveries cannot have {size} bytes")

    def payloads(self, count: int, size: int, seed: int = 1) -> list[bytes]:
        return payloads(count, size, seed, self.text)

    def last_payload(self, size: int) -> bytes:
        """One that ends in the mark."""
        return self.payloads(1, size - len(END), seed=2)[0] + END


class Numbered(Wire):
    """Deliveries that carry their number in decimal, so that later ones are larger.

    What is called a frame is without those digits.
    """

    first_number: ClassVar[int]

    @abstractmethod
    def framed(self, size: int) -> int:
        """The bytes of a delivery, if its frame and its number have `size`."""

    def size(self, frame: int, first: int, count: int) -> int:
        stretches = by_digits(first + self.first_number, count)
        return sum(part * self.framed(frame + digits) for digits, part in stretches)

    def whole(self, frame: int, size: int) -> int:
        found = 0
        for digits, part in by_digits(self.first_number, sys.maxsize):
            each = self.framed(frame + digits)
            fitting = min(part, size // each)
            found, size = found + fitting, size - fitting * each
            if fitting < part:
                break
        return found


def by_digits(number: int, count: int) -> Iterator[tuple[int, int]]:
    """`count` numbers from `number` on: how many of them have how many digits."""
    while count:
        digits = len(str(number))
        part = min(count, 10**digits - number)
        yield digits, part
        number, count = number + part, count - part


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


_LETTERS = (string.ascii_letters + string.digits + "+-").encode()  # 64, and none is special in JSON
_AS_LETTERS = bytes(_LETTERS[byte % len(_LETTERS)] for byte in range(256))


def payloads(count: int, size: int, seed: int = 1, text: bool = False) -> list[bytes]:
    """Random-looking and the same in every run: no broker gains by compressing bytes, and none
    gains much by compressing text."""
    source = random.Random(seed)
    found = [source.randbytes(size) for _ in range(count)]
    return [each.translate(_AS_LETTERS) for each in found] if text else found
