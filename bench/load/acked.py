"""Publishers that count acknowledgements: one with a window, or many with one message each."""

import select
import socket
import sys
import time
from dataclasses import dataclass, replace

from bench.crew import Stages
from bench.load.counter import Counter
from bench.load.pairs import Looped
from bench.wire import WIRES, Aim, Burst, connect

# Messages per write in a window. PSMB and Prism ask once per burst, the others per message.
BURST = 256
# Of a window, so many parts: the next is sent when one is acknowledged, not when all are.
BURSTS = 5
FILLED = 50  # messages per write where it is the number of them that counts
FILL_SECONDS = 300.0


def window(aim: Aim, size: int, seconds: float) -> Stages:
    """One publisher with up to `size` messages unacknowledged, or what the protocol allows."""
    wire = WIRES[aim.wire]
    size = min(size, wire.most_unacked)
    per_burst = min(BURST, size // BURSTS)
    link, counter, bursts = _prepare(aim, size, per_burst)
    yield "ready"
    return _pump(link, counter, bursts, size // per_burst, seconds)


def fill(aim: Aim, count: int) -> Stages:
    """Publish so many messages (and the one that is sent first), and wait until all are durable."""
    size = min(BURST * FILLED, WIRES[aim.wire].most_unacked)
    link, counter, bursts = _prepare(aim, size, FILLED)
    yield "ready"
    return _pump(link, counter, bursts, size // FILLED, FILL_SECONDS, -(-count // FILLED))


def _prepare(aim: Aim, size: int, per_burst: int) -> tuple[socket.socket, Counter, list[Burst]]:
    wire, link = WIRES[aim.wire], connect(aim.address)
    wire.open_acked(link, aim.topic, 0)
    counter = Counter(wire)
    counter.learn(link, wire.acked(aim.topic, wire.payloads(1, aim.payload_bytes), 0, 0))
    bodies = wire.payloads(per_burst, aim.payload_bytes)
    # Twice the window, so that no number is used again before its acknowledgement; where a protocol
    # has too few numbers for that, its acknowledgements come in order.
    different = min(2 * size, wire.most_unacked) // per_burst
    bursts = [wire.acked(aim.topic, bodies, 0, i * per_burst) for i in range(different)]
    return link, counter, bursts


def _pump(
    link: socket.socket,
    counter: Counter,
    bursts: list[Burst],
    ahead: int,
    seconds: float,
    most: int = sys.maxsize,
) -> Looped:
    """Send bursts for some seconds, or until there were enough, with so many of them ahead of
    their acknowledgements."""
    sent, wanted, per_burst = 0, 0, bursts[0].acks
    started = time.monotonic_ns()
    stop = started + int(seconds * 1e9)
    while True:
        if sent < most and time.monotonic_ns() < stop:
            while wanted + per_burst <= counter.acks + ahead * per_burst and sent < most:
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


def each(aim: Aim, first: int, count: int, seconds: float, own_topics: bool) -> Stages:
    """Many publishers, each of which waits for its acknowledgement before it sends again."""
    join = WIRES[aim.wire].join
    aims = {
        i: replace(aim, topic=join(aim.topic, f"{i:03d}")) if own_topics else aim
        for i in range(first, first + count)
    }
    publishers = {p.link.fileno(): p for p in (_open(one, i) for i, one in aims.items())}
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
    burst = wire.acked(aim.topic, wire.payloads(1, aim.payload_bytes, seed=index), index, 0)
    counter = Counter(wire)
    counter.learn(link, burst)
    return _Publisher(link, burst, counter)
