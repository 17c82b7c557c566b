"""Devices that report now and then: very many connections, each with a message a second.

A device is a connection with a topic of its own, `<topic>/<group>/<number>`. Each group has one
subscriber, with a wildcard. The first bytes of a message say when it was sent.
"""

import selectors
import socket
import struct
import time

from bench.crew import Stages
from bench.load.pairs import Looped
from bench.wire import WIRES, Aim, connect

_STAMP = struct.Struct(">Q")
MARK = b"\xfe\xed\xfa\xce"


def devices(aim: Aim, first: int, count: int, groups: int, seconds: float) -> Stages:
    """Each sends once a second, all of them spread evenly over it."""
    wire, links = WIRES[aim.wire], list[tuple[socket.socket, bytes, bytes]]()
    for number in range(first, first + count):
        topic = wire.separator.join((aim.topic, str(number % groups), str(number)))
        link = connect(aim.address)
        wire.open_publisher(link, topic)
        filler = wire.payloads(1, aim.payload_bytes)[0][len(MARK) + 8 :]
        whole = wire.publish(topic, MARK + bytes(8) + filler)
        before, _, after = whole.partition(MARK + bytes(8))
        links.append((link, before + MARK, after))
    yield "ready"
    started, sent, total = time.monotonic_ns(), 0, int(count * seconds)
    while sent < total:
        due = started + sent * 1_000_000_000 // count
        now = time.monotonic_ns()
        if due > now:
            time.sleep((due - now) / 1e9)
            continue
        link, before, after = links[sent % count]
        link.send(before + _STAMP.pack(time.monotonic_ns()) + after)
        sent += 1
    return Looped(sent, started, time.monotonic_ns(), ())


def groups(aim: Aim, count: int, expected: int) -> Stages:
    """One subscriber for each group of devices, until all messages have come."""
    wire = WIRES[aim.wire]
    links: dict[socket.socket, bytearray] = {}
    with selectors.EpollSelector() as selector:
        for number in range(count):
            link = connect(aim.address)
            group = f"{aim.topic}{wire.separator}{number}"
            wire.open_subscriber(link, wire.wildcard(group))
            links[link] = bytearray()
            selector.register(link, selectors.EVENT_READ)
        yield "ready"
        started, taken = time.monotonic_ns(), list[int]()
        while len(taken) < expected:
            ready = selector.select(20.0)
            if not ready:
                raise TimeoutError(f"{expected - len(taken)} messages did not come")
            for key, _ in ready:
                assert isinstance(key.fileobj, socket.socket)
                kept = links[key.fileobj]
                kept += key.fileobj.recv(262144)
                taken += _ages(kept)
    return Looped(len(taken), started, time.monotonic_ns(), tuple(taken))


def _ages(kept: bytearray) -> list[int]:
    """How old the messages are that have arrived; what is left of the last stays."""
    now, found, at, size = time.monotonic_ns(), list[int](), 0, len(MARK) + _STAMP.size
    while (place := kept.find(MARK, at)) >= 0 and place + size <= len(kept):
        found.append(now - _STAMP.unpack_from(kept, place + len(MARK))[0])
        at = place + size
    del kept[: max(at, len(kept) - size)]
    return found
