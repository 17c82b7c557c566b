"""What hostile clients do. Each attack is a job for a process of its own (`bench.crew`): it makes
its connections, says that it is ready, does harm, and says what it has done."""

import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from bench.crew import Stages
from bench.wire import bmtp, bpsp, psmb
from bench.wire.base import connect
from bench.wire.websocket import upgrade
from hostile import crowd, services

Ports = dict[str, int]
HOST = "127.0.0.1"
MESSAGE_BYTES = 16 * 1024 * 1024
SCRIPTS = (
    *("Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic", "Syriac", "Thaana", "Bengali"),
    *("Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan"),
    *("Myanmar", "Georgian", "Ethiopic", "Cherokee", "Ogham", "Runic", "Khmer", "Mongolian"),
)
# Connections of a broker that more come to.
LIMIT = 2_000
# Every step scans the rest of the topic for the characters of all these scripts.
COSTLY_PATTERN = "(?:(?=[^" + "".join([rf"\p{{{each}}}" for each in SCRIPTS * 2]) + "]*+).)*"


def link(ports: Ports, name: str) -> socket.socket:
    return connect((HOST, ports[name]))


def _reset(wire: socket.socket) -> None:
    """Hang up without a word."""
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


def _bpsp(ports: Ports) -> socket.socket:
    made = link(ports, "bpsp")
    bpsp.WIRE.open_publisher(made, "")
    return made


def _send_for(wire: socket.socket, data: bytes, seconds: float) -> None:
    """Send, and give up when the broker does not read on."""
    wire.settimeout(seconds)
    with suppress(OSError):
        wire.sendall(data)
    wire.settimeout(None)


def half_messages(ports: Ports, count: int) -> Stages:
    """Send all of a large message but its last byte, and leave."""
    frame = bpsp.WIRE.publish("hostile/half", bytes(MESSAGE_BYTES - 64))[:-1]
    yield "ready"
    for _ in range(count):
        wire = _bpsp(ports)
        _send_for(wire, frame, 5.0)
        _reset(wire)
    return count


def unfinished_messages(ports: Ports, count: int) -> Stages:
    """The same from many connections, which stay."""
    frame = bpsp.WIRE.publish("hostile/unfinished", bytes(MESSAGE_BYTES - 64))[:-1]
    wires = [_bpsp(ports) for _ in range(count)]
    yield "ready"
    for wire in wires:
        _send_for(wire, frame, 0.2)
    time.sleep(1.0)
    for wire in wires:
        _reset(wire)
    return count


def strangers(ports: Ports, count: int) -> Stages:
    """Large messages of CrystalConnector clients that have not said who they are."""
    head = struct.pack(">BBQ4x", 0x82, 0xFF, 8 * 1024 * 1024)
    wires = [link(ports, "crystal") for _ in range(count)]
    for wire in wires:
        upgrade(wire, "/")
    yield "ready"
    for wire in wires:
        _send_for(wire, head + bytes(8 * 1024 * 1024 - 1), 2.0)
    time.sleep(1.0)
    for wire in wires:
        _reset(wire)
    return count


def many_tags(ports: Ports, count: int) -> Stages:
    """One large message for many subscriptions of one client, which does not read."""
    wire, publisher = _bpsp(ports), _bpsp(ports)
    for number in range(count):
        wire.sendall(_subscribe("hostile/tags", f"tag{number}"))
    _drain(wire, 0.5)
    yield "ready"
    publisher.sendall(bpsp.WIRE.publish("hostile/tags", bytes(8 * 1024 * 1024)))
    time.sleep(2.0)
    _reset(wire)
    publisher.close()
    return count


def many_patterns(ports: Ports, patterns: int, topics: int) -> Stages:
    """Patterns that are alike, and a burst of messages to new topics."""
    wires = []
    for number in range(patterns):
        wire = link(ports, "psmb")
        psmb.WIRE.open_subscriber(wire, rf"s/(\w+)/{number}/.*")
        wires.append(wire)
    publisher = _bpsp(ports)
    yield "ready"
    names = [f"s/x{number}/{number % patterns}/y" for number in range(topics)]
    publisher.sendall(b"".join([bpsp.WIRE.publish(name, b"x") for name in names]))
    _wait_for_answer(publisher)
    return topics


def costly_patterns(ports: Ports, count: int) -> Stages:
    """Patterns that take a step for hours, and a long topic."""
    wires = []
    for number in range(count):
        wire = link(ports, "psmb")
        psmb.WIRE.open_subscriber(wire, f"{COSTLY_PATTERN}|x{number}")
        wires.append(wire)
    publisher = _bpsp(ports)
    yield "ready"
    for number in range(20):
        publisher.sendall(bpsp.WIRE.publish(f"{number}" + "a" * 1000, b"x"))
    _wait_for_answer(publisher)
    time.sleep(2.0)
    return count


def subscriptions(ports: Ports, count: int) -> Stages:
    """A flood of subscriptions, and leaving with all of them."""
    wire = _bpsp(ports)
    flood = b"".join([_subscribe(f"hostile/{number}", "_0", ack=False) for number in range(count)])
    yield "ready"
    wire.sendall(flood)
    _wait_for_answer(wire)
    _reset(wire)
    return count


def overlapping(ports: Ports, levels: int) -> Stages:
    """All filters that match one topic, and a message to it."""
    wire, publisher = _bpsp(ports), _bpsp(ports)
    names = [f"l{level}" for level in range(levels)]
    filters = [
        "/".join("+" if number >> level & 1 else name for level, name in enumerate(names))
        for number in range(1 << levels)
    ]
    wire.sendall(b"".join([_subscribe(each, "_0", ack=False) for each in filters]))
    _wait_for_answer(wire)
    yield "ready"
    publisher.sendall(bpsp.WIRE.publish("/".join(names), bytes(10_000)))
    time.sleep(2.0)
    _reset(wire)
    publisher.close()
    return len(filters)


def channels(ports: Ports, count: int) -> Stages:
    """BMTP channels that nobody has ever heard of."""
    wire = link(ports, "bmtp")
    bmtp.WIRE.open_publisher(wire, "")
    yield "ready"
    for first in range(0, count, 500):
        wire.sendall(
            b"".join([bmtp.WIRE.consume(f"hostile/{first + number}") for number in range(500)])
        )
        _drain(wire, 0.0)
    _drain(wire, 1.0)
    _reset(wire)
    return count


def leavers(ports: Ports, count: int) -> Stages:
    """BMTP consumers that take messages, acknowledge none, and leave."""
    publisher = link(ports, "bmtp")
    topic = "hostile/leavers"
    bmtp.WIRE.open_publisher(publisher, topic)
    yield "ready"
    bodies = [b"x" * 32] * 255
    for _ in range(count):
        wire = link(ports, "bmtp")
        bmtp.WIRE.open_subscriber(wire, topic)
        publisher.sendall(bmtp.WIRE.acked(topic, bodies, 0, 0).data)
        _drain(publisher, 0.0)
        _drain(wire, 0.01)
        _reset(wire)
    return count


def new_topics(ports: Ports, count: int) -> Stages:
    """A publisher that never uses a topic twice."""
    publisher = _bpsp(ports)
    yield "ready"
    for first in range(0, count, 1000):
        names = range(first, first + 1000)
        publisher.sendall(b"".join([bpsp.WIRE.publish(f"hostile/{n}", b"x" * 64) for n in names]))
    _wait_for_answer(publisher)
    return count


def two_topics(ports: Ports, count: int) -> Stages:
    """A publisher that changes its topic with every message."""
    publisher = _bpsp(ports)
    pair = bpsp.WIRE.publish("hostile/a", b"x" * 64) + bpsp.WIRE.publish("hostile/b", b"x" * 64)
    yield "ready"
    for _ in range(0, count, 2000):
        publisher.sendall(pair * 1000)
    _wait_for_answer(publisher)
    return count


def never_reading(ports: Ports, count: int, messages: int) -> Stages:
    """Subscribers that read nothing, while much is published to them."""
    wires = []
    for _ in range(count):
        wire = connect((HOST, ports["bpsp"]), receive_buffer=4096)
        bpsp.WIRE.open_subscriber(wire, "hostile/stalled")
        wires.append(wire)
    publisher = _bpsp(ports)
    data = bpsp.WIRE.publish("hostile/stalled", b"x" * 100) * 1000
    yield "ready"
    for _ in range(0, messages, 1000):
        publisher.sendall(data)
    _wait_for_answer(publisher)
    for wire in wires:
        _reset(wire)
    return messages


def never_reading_durable(ports: Ports, count: int, messages: int) -> Stages:
    """Durable subscribers that read nothing of large messages."""
    wires = []
    for number in range(count):
        wire = connect((HOST, ports["psmb"]), receive_buffer=4096)
        _subscribe_for_ever(wire, "hostile/durable", number + 1)
        wires.append(wire)
    publisher = _bpsp(ports)
    yield "ready"
    for _ in range(messages):
        publisher.sendall(bpsp.WIRE.publish("hostile/durable", bytes(64 * 1024)))
        time.sleep(0.1)
    _wait_for_answer(publisher)
    for wire in wires:
        _reset(wire)
    return messages


def history(ports: Ports, count: int) -> Stages:
    """Readers of all that is retained, who want next to nothing of it."""
    yield "ready"
    wires = []
    for number in range(count):
        wire = link(ports, "psmb")
        _subscribe_for_ever(wire, rf"nothing/\w+/{number}", number + 1)
        wires.append(wire)
    time.sleep(4.0)
    for wire in wires:
        _reset(wire)
    return count


def _subscribe_for_ever(wire: socket.socket, pattern: str, number: int) -> None:
    """With the messages of times when it is away, and all there were before it came first."""
    wire.sendall(struct.pack(">4sII", b"PSMB", 2, 0))
    wire.sendall(b"SUB" + struct.pack(">I", 1) + pattern.encode() + b"\0")
    wire.sendall(struct.pack(">Q", number))


def _subscribe(topic: str, tag: str, ack: bool = True) -> bytes:
    headers = f'"x-topic""{topic}";"x-sub-tag""{tag}";'.encode()
    return struct.pack(">HBBI", len(headers), 4, 0x80 if ack else 0, 0) + headers


def _drain(wire: socket.socket, seconds: float) -> None:
    """Read what there is, until nothing comes for so long."""
    wire.settimeout(seconds or 0.0)
    with suppress(OSError):
        while wire.recv(1 << 20):
            pass
    wire.settimeout(None)


def _wait_for_answer(wire: socket.socket) -> None:
    """Until the broker has carried out all that was sent: it answers in order."""
    wire.settimeout(60.0)
    wire.sendall(_subscribe("hostile/end", f"end{time.monotonic_ns()}"))
    with suppress(OSError):
        while (data := wire.recv(1 << 20)) and b"hostile/end" not in data:
            pass
    wire.settimeout(None)


@dataclass(frozen=True, slots=True)
class Attack:
    job: Callable[..., Stages]
    numbers: tuple[int, ...]  # as it was found
    few: tuple[int, ...]  # for a short run
    #: A listener that the broker has for this attack only.
    listener: str | None = None
    #: This limit of connections, which the attack goes beyond: nobody else may notice much of it.
    #: (Other attacks at the same time would be turned away.)
    limit: int | None = None


ATTACKS: dict[str, Attack] = {
    "half messages": Attack(half_messages, (240,), (10,)),
    "unfinished messages": Attack(unfinished_messages, (100,), (20,)),
    "strangers": Attack(strangers, (40,), (8,)),
    "many tags": Attack(many_tags, (150,), (40,)),
    "many patterns": Attack(many_patterns, (1_000, 2_000), (200, 300)),
    "costly patterns": Attack(costly_patterns, (10,), (3,)),
    "subscriptions": Attack(subscriptions, (100_000,), (20_000,)),
    "overlapping filters": Attack(overlapping, (15,), (11,)),
    "channels": Attack(channels, (20_000,), (1_000,)),
    "leavers": Attack(leavers, (478,), (30,)),
    "new topics": Attack(new_topics, (1_000_000,), (30_000,)),
    "two topics": Attack(two_topics, (300_000,), (40_000,)),
    "never reading": Attack(never_reading, (125, 1_000_000), (20, 50_000)),
    "never reading, durable": Attack(never_reading_durable, (1_900, 40), (100, 10)),
    "history": Attack(history, (25,), (5,)),
    "idle clients": Attack(crowd.idle, (19_000,), (1_000,), "console"),
    "beyond the limit": Attack(
        crowd.beyond_the_limit, (LIMIT, 4_000), (LIMIT, 300), "console", limit=LIMIT
    ),
    "half-open clients": Attack(crowd.half_open, (5_000,), (500,), "console"),
    "half requests": Attack(services.half_requests, (3_000,), (1_200,), "console"),
    "slow bodies": Attack(services.slow_bodies, (3_000,), (1_200,), "console"),
    "tiny splits": Attack(services.tiny_splits, (512, 20), (64, 2), "flight"),
    "large append": Attack(services.large_append, (1_536,), (128,), "flight"),
    "stalled reads": Attack(services.stalled_reads, (256, 150), (64, 10), "flight"),
}
