"""Streams: one publisher that never pauses, and subscribers that count bytes.

The publisher replays the same chunk until its time is up, then sends one message that ends in a
mark. A subscriber is done when that mark arrives; it has to have received exactly as many bytes by
then as so many messages have.
"""

import contextlib
import select
import socket
import time
from dataclasses import dataclass

from bench.crew import Stages
from bench.load.counter import Counter
from bench.wire import WIRES, Aim, Wire, connect
from bench.wire.base import END

CHUNK_BYTES = 64 * 1024
READ_BYTES = 256 * 1024
LARGE_BYTES = 64 * 1024
_CARRY = 32  # longer than the mark with any protocol's tail


@dataclass(frozen=True, slots=True)
class Published:
    messages: int
    started: int
    finished: int


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes per subscriber, the size of a frame, how many messages came before, and when the last
    byte of all came."""

    sizes: tuple[int, ...]
    frame: int
    before: int
    finished: int


def topics(aim: Aim) -> list[str]:
    if aim.spread == 1:
        return [aim.topic]
    join = WIRES[aim.wire].join
    return [join(aim.topic, f"{i:06d}", "v") for i in range(aim.spread)]


def warm_ups(payload_bytes: int) -> int:
    """How many messages are compared: of large ones a few, they are as many bytes."""
    return 32 if payload_bytes < LARGE_BYTES else 4


def chunk(aim: Aim) -> tuple[bytes, int]:
    """Encoded messages to replay, and their number. Every topic occurs equally often."""
    wire, names = WIRES[aim.wire], topics(aim)
    count = max(1, CHUNK_BYTES // (aim.payload_bytes * len(names))) * len(names)
    bodies = wire.payloads(count, aim.payload_bytes)
    data = b"".join(wire.publish(names[i % len(names)], body) for i, body in enumerate(bodies))
    return data, count


def publish(aim: Aim, seconds: float) -> Stages:
    """Publish as fast as the broker reads."""
    wire, link, first = WIRES[aim.wire], connect(aim.address), topics(aim)[0]
    wire.open_publisher(link, aim.topic)
    data, count = chunk(aim)
    last = wire.publish(first, wire.last_payload(aim.payload_bytes))
    yield "connected"
    link.sendall(warm_up(aim))
    yield "warm"
    answers = Counter(wire)
    messages, started = 0, time.monotonic_ns()
    stop = started + int(seconds * 1e9)
    while time.monotonic_ns() < stop:
        link.sendall(data)
        messages += count
        if wire.always_answers:
            _read_answers(link, answers)
    link.sendall(last)
    published = Published(messages + 1, started, time.monotonic_ns())
    answered = warm_ups(aim.payload_bytes) + published.messages
    while wire.always_answers and answers.acks < answered:
        answers.feed(link.recv(READ_BYTES))
    yield published
    return None


def _read_answers(link: socket.socket, answers: Counter) -> None:
    """What is there of them. A broker need not read from a client that does not read."""
    with contextlib.suppress(BlockingIOError):
        answers.feed(link.recv(READ_BYTES, socket.MSG_DONTWAIT))


def publish_paced(aim: Aim, seconds: float, bytes_per_second: int) -> Stages:
    """Publish at a given pace, a chunk at a time: a load that is the same in every run."""
    wire, link = WIRES[aim.wire], connect(aim.address)
    wire.open_publisher(link, aim.topic)
    data, count = chunk(aim)
    last = wire.publish(aim.topic, wire.last_payload(aim.payload_bytes))
    yield "connected"
    link.sendall(warm_up(aim))
    yield "warm"
    started = time.monotonic_ns()
    chunks = max(1, int(seconds * bytes_per_second / len(data)))
    for i in range(chunks):
        due = started + int(i * len(data) * 1e9 / bytes_per_second)
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        link.sendall(data)
    link.sendall(last)
    yield Published(chunks * count + 1, started, time.monotonic_ns())
    return None


def warm_up(aim: Aim) -> bytes:
    wire, first = WIRES[aim.wire], topics(aim)[0]
    bodies = wire.payloads(warm_ups(aim.payload_bytes), aim.payload_bytes, seed=3)
    return b"".join(wire.publish(first, body) for body in bodies)


def check_warm_up(aim: Aim, link: socket.socket) -> int:
    """Compare what arrives with what was sent; returns the size of a frame."""
    return WIRES[aim.wire].frame(read_warm_up(aim, link), warm_ups(aim.payload_bytes))


def read_warm_up(aim: Aim, link: socket.socket) -> int:
    """Compare what arrives with what was sent; returns how many bytes it was."""
    wire, count = WIRES[aim.wire], warm_ups(aim.payload_bytes)
    want = wire.payloads(count, aim.payload_bytes, seed=3)
    data, got, used = b"", list[bytes](), 0
    while len(got) < count:
        part = link.recv(READ_BYTES)
        if not part:
            raise ConnectionError("the broker closed a subscriber's connection")
        data += part
        got, used = wire.deliveries(data)
    if got != want or used != len(data):
        raise ConnectionError(f"the warm-up arrived altered: {data[:200]!r}")
    content = wire.content()
    size = len(data) if content is None else content.feed(memoryview(data))
    if wire.keepalive:
        size -= len(wire.keepalive) * data.count(wire.keepalive)
    return size


def subscribe(aim: Aim, count: int) -> Stages:
    """`count` subscribers that read as fast as they can."""
    wire = WIRES[aim.wire]
    links = [connect(aim.address) for _ in range(count)]
    for link in links:
        wire.open_subscriber(link, aim.filter or aim.topic)
    yield "subscribed"
    frames = {check_warm_up(aim, link) for link in links}
    if len(frames) != 1:
        raise ConnectionError(f"frames of different sizes: {frames}")
    yield "warm"
    (frame,) = frames
    before = warm_ups(aim.payload_bytes)
    sizes = [_read_one(links[0], wire, frame, before)] if count == 1 else _read_all(links, wire)
    return Received(tuple(sizes), frame, before, time.monotonic_ns())


def _read_one(link: socket.socket, wire: Wire, frame: int, before: int) -> int:
    """One subscriber needs no selector, and may acknowledge what it gets."""
    mark, buffer = END + wire.tail, memoryview(bytearray(READ_BYTES))
    size, carry, content = 0, b"", wire.content()
    warm_up_size, acknowledged = wire.size(frame, 0, before), 0
    while not carry.endswith(mark):
        got = link.recv_into(buffer)
        if not got:
            raise ConnectionError("the broker closed a subscriber's connection")
        size += got if content is None else content.feed(buffer[:got])
        carry = _ending(carry, buffer, got)
        if wire.must_acknowledge:
            whole = wire.whole(frame, warm_up_size + size)
            link.sendall(wire.receipts(acknowledged, whole - acknowledged))
            acknowledged = whole
    return size


def _read_all(links: list[socket.socket], wire: Wire) -> list[int]:
    mark, buffer = END + wire.tail, memoryview(bytearray(READ_BYTES))
    sizes, carries = [0] * len(links), [b""] * len(links)
    contents = [wire.content() for _ in links]
    numbers = {link.fileno(): i for i, link in enumerate(links)}
    with select.epoll() as poll:
        for number in numbers:
            poll.register(number, select.EPOLLIN)
        while numbers:
            events = poll.poll(20.0)
            if not events:
                raise TimeoutError(f"{len(numbers)} subscribers did not get everything")
            for number, _ in events:
                i = numbers[number]
                got = links[i].recv_into(buffer)
                if not got:
                    raise ConnectionError("the broker closed a subscriber's connection")
                content = contents[i]
                sizes[i] += got if content is None else content.feed(buffer[:got])
                carries[i] = _ending(carries[i], buffer, got)
                if carries[i].endswith(mark):
                    poll.unregister(number)
                    del numbers[number]
    return sizes


def _ending(carry: bytes, buffer: memoryview, got: int) -> bytes:
    """The last bytes of the stream so far; the mark may have come in two reads."""
    if got >= _CARRY:
        return bytes(buffer[got - _CARRY : got])
    return (carry + bytes(buffer[:got]))[-_CARRY:]


def verify(published: Published, received: Received, wire: Wire) -> None:
    """Every subscriber got every message, to the byte."""
    want = wire.size(received.frame, received.before, published.messages)
    for size in received.sizes:
        extra = size - want
        # A broker may have added a keep-alive or two of its own.
        unit = len(wire.keepalive)
        if extra and (not unit or extra % unit or not 0 < extra // unit <= 8):
            raise ConnectionError(f"a subscriber got {size} bytes instead of {want}")
