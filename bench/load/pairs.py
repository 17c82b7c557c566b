"""Pairs of a publisher and a subscriber in one process: a message goes out, its delivery comes in.

PSMB connections do one or the other, so every pair has two connections with every broker.
"""

import select
import socket
import time
from collections import deque
from dataclasses import dataclass, replace

from bench.crew import Stages
from bench.load.bulk import read_warm_up, topics, warm_up, warm_ups
from bench.load.counter import Arrivals
from bench.wire import WIRES, Aim, Wire, connect

WARM_BURSTS = 200


@dataclass(frozen=True, slots=True)
class Looped:
    """Round trips: how many, from when to when, and how long each took."""

    messages: int
    started: int
    finished: int
    nanoseconds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    publisher: socket.socket
    subscriber: socket.socket
    message: bytes
    frame: int  # bytes of one delivery


def open_pair(aim: Aim) -> Pair:
    wire = WIRES[aim.wire]
    subscriber, publisher = connect(aim.address), connect(aim.address)
    wire.open_subscriber(subscriber, aim.filter or aim.topic)
    wire.open_publisher(publisher, aim.topic)
    publisher.sendall(warm_up(aim))
    size = read_warm_up(aim, subscriber)
    # Where deliveries have a mark, their size depends on what others have published.
    frame = 0 if wire.delivery_mark else wire.frame(size, warm_ups(aim.payload_bytes))
    message = wire.publish(topics(aim)[0], wire.payloads(1, aim.payload_bytes)[0])
    return Pair(publisher, subscriber, message, frame)


def ping(aim: Aim, rounds: int) -> Stages:
    """One message at a time: the next goes out when the last has come back."""
    wire, pair = WIRES[aim.wire], open_pair(aim)
    bodies = wire.payloads(64, aim.payload_bytes)
    messages = [wire.publish(name, bodies[i % 64]) for i, name in enumerate(topics(aim))]
    for _ in range(min(200, rounds)):  # code paths and caches get warm
        pair.publisher.send(messages[0])
        _receive_frame(pair, wire)
    yield "ready"
    taken, clock, started = [0] * rounds, time.perf_counter_ns, time.monotonic_ns()
    for i in range(rounds):
        message = messages[i % len(messages)]
        before = clock()
        pair.publisher.send(message)
        _receive_frame(pair, wire)
        taken[i] = clock() - before
    return Looped(rounds, started, time.monotonic_ns(), tuple(taken))


def lockstep(aim: Aim, width: int, seconds: float) -> Stages:
    """Some messages at a time, each to another topic: the next go out when all have come back.

    Every topic has had messages before: the first passes are not measured."""
    wire, pair, names = WIRES[aim.wire], open_pair(aim), topics(aim)
    bodies = wire.payloads(width, aim.payload_bytes)
    bursts = [
        b"".join(map(wire.publish, names[start : start + width], bodies))
        for start in range(0, len(names), width)
    ]
    for burst in bursts * max(1, WARM_BURSTS // len(bursts)):
        pair.publisher.send(burst)
        _receive_frame(pair, wire, width)
    yield "ready"
    count, started = 0, time.monotonic_ns()
    stop = started + int(seconds * 1e9)
    while time.monotonic_ns() < stop:
        pair.publisher.send(bursts[count % len(bursts)])
        _receive_frame(pair, wire, width)
        count += 1
    return Looped(count * width, started, time.monotonic_ns(), ())


def _receive_frame(pair: Pair, wire: Wire, count: int = 1) -> None:
    missing = wanted = pair.frame * count
    while missing > 0:
        data = pair.subscriber.recv(65536)
        if not data:
            raise ConnectionError("the broker closed a subscriber's connection")
        if len(data) != wanted and wire.keepalive and wire.keepalive in data:
            pair.subscriber.send(wire.keepalive_answer)
            missing += len(wire.keepalive)
        missing -= len(data)
    if missing:
        raise ConnectionError(f"{-missing} bytes more than there should be")


def closed_loop(aim: Aim, first: int, count: int, seconds: float) -> Stages:
    """Many pairs, each with one message under way."""
    aims = [replace(aim, topic=f"{aim.topic}/{i:03d}") for i in range(first, first + count)]
    pairs = [open_pair(each) for each in aims]
    yield "ready"
    return _Loop(WIRES[aim.wire], pairs).run(seconds)


def shared_loop(aim: Aim, count: int, seconds: float) -> Stages:
    """Many publishers to one topic, each with one message under way, and one subscriber. Whose
    message came back does not matter: all are alike, so the oldest is taken for it."""
    wire, pair = WIRES[aim.wire], open_pair(aim)
    publishers = [pair.publisher]
    for _ in range(count - 1):
        publishers.append(connect(aim.address))
        wire.open_publisher(publishers[-1], aim.topic)
    yield "ready"
    arrivals, taken, started = Arrivals(wire, pair.frame), list[int](), time.monotonic_ns()
    stop = started + int(seconds * 1e9)
    under_way: deque[tuple[int, socket.socket]] = deque()
    for publisher in publishers:
        under_way.append((time.monotonic_ns(), publisher))
        publisher.send(pair.message)
    pair.subscriber.settimeout(20.0)
    while under_way:
        received = arrivals.feed(pair.subscriber.recv(262144))
        now = time.monotonic_ns()
        for _ in range(min(received, len(under_way))):
            since, publisher = under_way.popleft()
            taken.append(now - since)
            if now < stop:
                under_way.append((time.monotonic_ns(), publisher))
                publisher.send(pair.message)
    return Looped(len(taken), started, time.monotonic_ns(), tuple(taken))


class _Loop:
    """The bookkeeping of `closed_loop`: who waits since when."""

    def __init__(self, wire: Wire, pairs: list[Pair]) -> None:
        self._by_number = {pair.subscriber.fileno(): pair for pair in pairs}
        self._arrivals = {
            number: Arrivals(wire, pair.frame) for number, pair in self._by_number.items()
        }
        self._sent: dict[int, int] = {}
        self._taken: list[int] = []

    def run(self, seconds: float) -> Looped:
        started = time.monotonic_ns()
        stop = started + int(seconds * 1e9)
        with select.epoll() as poll:
            for number in self._by_number:
                poll.register(number, select.EPOLLIN)
                self._send(number)
            while self._sent:
                events = poll.poll(20.0)
                if not events:
                    raise TimeoutError(f"{len(self._sent)} messages did not come back")
                for number, _ in events:
                    self._receive(number, stop)
        return Looped(len(self._taken), started, time.monotonic_ns(), tuple(self._taken))

    def _send(self, number: int) -> None:
        pair = self._by_number[number]
        self._sent[number] = time.monotonic_ns()
        pair.publisher.send(pair.message)

    def _receive(self, number: int, stop: int) -> None:
        data = self._by_number[number].subscriber.recv(65536)
        if not self._arrivals[number].feed(data) or number not in self._sent:
            return
        now = time.monotonic_ns()
        self._taken.append(now - self._sent.pop(number))
        if now < stop:
            self._send(number)


def probe(aim: Aim, rate: int, seconds: float) -> Stages:
    """Messages at a steady pace, whether or not earlier ones have come back: a delay in the broker
    is seen by every message that it hits, not by one."""
    wire, pair = WIRES[aim.wire], open_pair(aim)
    yield "ready"
    total, sent, taken = int(rate * seconds), list[int](), list[int]()
    started = time.monotonic_ns()
    received, last, give_up = 0, started, started + int((seconds + 20) * 1e9)
    while len(taken) < total:
        now = time.monotonic_ns()
        if now > give_up:
            after = (last - started) / 1e9
            raise TimeoutError(
                f"{aim.wire}: {total - len(taken)} messages did not come back, "
                f"the last one that did after {after:.1f} s"
            )
        due = started + len(sent) * 1_000_000_000 // rate
        if len(sent) < total and now >= due:
            sent.append(time.monotonic_ns())
            pair.publisher.send(pair.message)
            continue
        wait = (due - now) / 1e9 if len(sent) < total else 1.0
        # select() takes microseconds where epoll rounds up to milliseconds.
        if select.select([pair.subscriber], [], [], wait)[0]:
            data = pair.subscriber.recv(65536)
            if not data:
                raise ConnectionError(f"{aim.wire}: the broker closed a subscriber's connection")
            received += len(data)
            if len(data) % pair.frame and wire.keepalive and wire.keepalive in data:
                pair.subscriber.send(wire.keepalive_answer)
                received -= len(wire.keepalive)
            now = last = time.monotonic_ns()
            while (len(taken) + 1) * pair.frame <= received and len(taken) < len(sent):
                taken.append(now - sent[len(taken)])
    return Looped(total, started, time.monotonic_ns(), tuple(taken))
