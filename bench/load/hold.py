"""Connections that are held and do nothing: idle ones, one that never reads, one that has
subscribed to very much, and those that leave queues behind."""

import select
import socket
import struct
import time

from bench.crew import Stages
from bench.load.bulk import check_warm_up
from bench.wire import WIRES, Aim, Wire, connect
from bench.wire.bpsp import Bpsp
from bench.wire.websocket import ask

QUEUES_AT_ONCE = 1000


def idle(aim: Aim, first: int, count: int, settle_seconds: float) -> Stages:
    """Two steps of connections that have subscribed: a few, and then `count` more.

    What the broker needs once, and not per connection, is there after the first step.
    """
    wire, links = WIRES[aim.wire], list[socket.socket]()
    for number in (first, count):
        links += [_open_idle(aim, wire) for _ in range(number)]
        _answer_keepalives(links, wire, settle_seconds)
        yield "settled"
    return None


def _open_idle(aim: Aim, wire: Wire) -> socket.socket:
    link = connect(aim.address)
    # Reset on close: thousands of ports in TIME_WAIT would be in the way of the next broker.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.open_subscriber(link, aim.topic)
    return link


def _answer_keepalives(links: list[socket.socket], wire: Wire, seconds: float) -> None:
    by_number = {link.fileno(): link for link in links}
    stop = time.monotonic() + seconds
    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        while (left := stop - time.monotonic()) > 0:
            for number, _ in poll.poll(left):
                if not by_number[number].recv(65536):
                    raise ConnectionError("the broker closed an idle connection")
                by_number[number].send(wire.keepalive_answer)


def never_read(aim: Aim) -> Stages:
    """A subscriber that reads the warm-up and then nothing more."""
    # A small buffer, so that the kernel does not hide the stall for long.
    link = connect(aim.address, receive_buffer=65536)
    WIRES[aim.wire].open_subscriber(link, aim.topic)
    yield "subscribed"
    check_warm_up(aim, link)
    yield "warm"
    return None


def subscriptions(aim: Aim, count: int) -> Stages:
    """One connection with many subscriptions around the published topics; none matches."""
    wire, link = Bpsp(), connect(aim.address)
    wire.open_publisher(link, aim.topic)
    names = [near_miss(aim.topic, i) for i in range(count)]
    for start in range(0, count, 1000):
        wire.subscribe_many(link, names[start : start + 1000])
    yield "subscribed"
    return None


def near_miss(topic: str, i: int) -> str:
    """Beside `topic/000000/v`: shares its levels, so that matching has to walk past it."""
    place = f"{topic}/{i // 4:06d}"
    return (f"{place}/x", f"{place}/+/y", f"{place}/v/*", f"{topic}/+/n{i}")[i % 4]


def queues(aim: Aim, count: int) -> Stages:
    """Queues beside the published topics, which take none of the messages. Whoever asks for a queue
    makes it; it stays when they go."""
    wire = WIRES[aim.wire]
    for start in range(0, count, QUEUES_AT_ONCE):
        with connect(aim.address) as link:
            wire.open_publisher(link, aim.topic)
            numbers = range(start, min(start + QUEUES_AT_ONCE, count))
            link.sendall(b"".join(wire.consume(f"{aim.topic}/{i:06d}/x") for i in numbers))
            ask(link)
    yield "made"
    return None
