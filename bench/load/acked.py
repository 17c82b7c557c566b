"""Publishers that count acknowledgements: one with a window, or many with one message each."""

import select
import socket
import time
from dataclasses import dataclass

from bench.crew import Stages
from bench.load.pairs import Looped
from bench.wire import WIRES, Aim, Burst, Wire, connect, payloads

BURST = 256  # messages per write in a window; PSMB asks once per burst, the others per message


@dataclass(slots=True)
class Counter:
    """Acknowledgements, by mark or by size; the size is learned from the first one."""

    wire: Wire
    size: int = 0
    units: int = 0

    def feed(self, data: bytes) -> None:
        if not data:
            raise ConnectionError("the broker closed a publisher's connection")
        if self.wire.refusal_mark and self.wire.refusal_mark in data:
            raise ConnectionError(f"the broker refused a message: {data[:200]!r}")
        self.units += data.count(self.wire.ack_mark) if self.wire.ack_mark else len(data)

    def learn(self, link: socket.socket, burst: Burst) -> None:
        """Send one message, wait for its one acknowledgement."""
        link.sendall(burst.data)
        self.feed(link.recv(65536))
        self.size = 1 if self.wire.ack_mark else self.units
        self.units = 0

    @property
    def acks(self) -> int:
        return self.units // self.size


def window(aim: Aim, size: int, seconds: float) -> Stages:
    """One publisher with up to `size` messages unacknowledged."""
    wire, link = WIRES[aim.wire], connect(aim.address)
    wire.open_acked(link, aim.topic, 0)
    counter = Counter(wire)
    counter.learn(link, wire.acked(aim.topic, payloads(1, aim.payload_bytes), 0, 0))
    per_burst = min(BURST, size)
    bodies = payloads(per_burst, aim.payload_bytes)
    # Twice the window, so that no number is used again before its acknowledgement.
    bursts = [wire.acked(aim.topic, bodies, 0, i * per_burst) for i in range(2 * size // per_burst)]
    yield "ready"
    return _pump(link, counter, bursts, size // per_burst, seconds)


def _pump(
    link: socket.socket, counter: Counter, bursts: list[Burst], ahead: int, seconds: float
) -> Looped:
    sent, wanted, per_burst = 0, 0, bursts[0].acks
    started = time.monotonic_ns()
    stop = started + int(seconds * 1e9)
    while True:
        if time.monotonic_ns() < stop:
            while wanted + per_burst <= counter.acks + ahead * per_burst:
                link.sendall(bursts[sent % len(bursts)].data)
                sent += 1
                wanted += per_burst
        elif counter.acks >= wanted:
            break
        counter.feed(link.recv(262144))
    if counter.acks != wanted:
        raise ConnectionError(f"{counter.acks} acknowledgements for {wanted}")
    return Looped(sent * bursts[0].messages, started, time.monotonic_ns(), ())


@dataclass(slots=True)
class _Publisher:
    link: socket.socket
    burst: Burst
    counter: Counter
    sent: int = 0
    since: int = 0

    def send(self) -> None:
        self.sent += 1
        self.since = time.monotonic_ns()
        self.link.send(self.burst.data)


def each(aim: Aim, first: int, count: int, seconds: float) -> Stages:
    """Many publishers, each of which waits for its acknowledgement before it sends again."""
    publishers = {p.link.fileno(): p for p in (_open(aim, first + i) for i in range(count))}
    yield "ready"
    waiting, taken, started = set(publishers), list[int](), time.monotonic_ns()
    stop = started + int(seconds * 1e9)
    with select.epoll() as poll:
        for number, publisher in publishers.items():
            poll.register(number, select.EPOLLIN)
            publisher.send()
        while waiting:
            events = poll.poll(20.0)
            if not events:
                raise TimeoutError(f"{len(waiting)} messages were not acknowledged")
            for number, _ in events:
                publisher = publishers[number]
                publisher.counter.feed(publisher.link.recv(65536))
                if publisher.counter.acks < publisher.sent:
                    continue
                now = time.monotonic_ns()
                taken.append(now - publisher.since)
                if now < stop:
                    publisher.send()
                else:
                    waiting.discard(number)
    return Looped(len(taken), started, time.monotonic_ns(), tuple(taken))


def _open(aim: Aim, index: int) -> _Publisher:
    wire, link = WIRES[aim.wire], connect(aim.address)
    wire.open_acked(link, aim.topic, index)
    burst = wire.acked(aim.topic, payloads(1, aim.payload_bytes, seed=index), index, 0)
    counter = Counter(wire)
    counter.learn(link, burst)
    return _Publisher(link, burst, counter)
