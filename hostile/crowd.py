"""More clients than a broker has room for: most do nothing, some do not go on with their handshake,
and some subscribe and never read. They come from many addresses, as devices do."""

import socket
import time
from contextlib import suppress

from bench.crew import Stages
from bench.wire import bpsp

Ports = dict[str, int]
ADDRESSES = 50
#: Of those that connect, so many subscribe.
SUBSCRIBERS = 10
#: So many come in a second to a broker that has no room for them.
NEW_RATE = 400
#: Left for those who are looked at meanwhile, until all are there.
SPARE = 8
#: Who leaves later than that is not noticed by them.
STAY_SECONDS = 6.0
#: What is published for them: more than their sockets take.
MESSAGE = bytes(64 * 1024)
MESSAGES = 40


def idle(
    ports: Ports, count: int, subscribers: int = SUBSCRIBERS, messages: int = MESSAGES
) -> Stages:
    """Connect, and stay. One of ten subscribes to much, and reads nothing of it."""
    yield "ready"
    wires = [wire for number in range(count) if (wire := _connect(ports["bpsp"], number))]
    for wire in wires[::subscribers]:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with suppress(OSError):  # it may have been turned away
            bpsp.WIRE.open_subscriber(wire, "hostile/crowd")
    publisher = _connect(ports["bpsp"], count)
    if publisher is not None:
        publisher.settimeout(10.0)
        for _ in range(messages):
            _send(publisher, bpsp.WIRE.publish("hostile/crowd", MESSAGE))
            time.sleep(0.05)
    time.sleep(3.0)
    for wire in wires:
        wire.close()
    return len(wires)


def beyond_the_limit(ports: Ports, limit: int, count: int) -> Stages:
    """Be as many as the broker takes, and then come again and again. Returns how many of those were
    told why they are turned away."""
    wires = [_greeted(ports["bpsp"], number) for number in range(limit - SPARE)]
    yield "ready"
    wires += [_greeted(ports["bpsp"], number) for number in range(SPARE)]
    told, began = 0, time.monotonic()
    for number in range(count):
        time.sleep(max(began + number / NEW_RATE - time.monotonic(), 0.0))
        told += _is_told(ports["bpsp"], number)
    time.sleep(STAY_SECONDS)
    for wire in wires:
        if wire is not None:
            wire.close()
    return told


def _greeted(port: int, number: int) -> socket.socket | None:
    """One that has said all that it has to, so that it may stay."""
    wire = _connect(port, number)
    if wire is not None:
        with suppress(OSError):  # it may have been turned away
            bpsp.WIRE.open_publisher(wire, "")
    return wire


def _is_told(port: int, number: int) -> bool:
    if (wire := _connect(port, number)) is None:
        return False
    said = b""
    with wire, suppress(OSError):
        while data := wire.recv(4096):
            said += data
    return b"limit of connections" in said


def half_open(ports: Ports, count: int) -> Stages:
    """Begin a handshake, and do not go on with it."""
    yield "ready"
    wires = [wire for number in range(count) if (wire := _connect(ports["psmb"], number))]
    for wire in wires:
        _send(wire, b"PSM")
    time.sleep(4.0)
    for wire in wires:
        wire.close()
    return len(wires)


def _connect(port: int, number: int) -> socket.socket | None:
    """From another address for each; None if this machine has no more for us."""
    made = socket.socket()
    try:
        made.bind((f"127.0.1.{number % ADDRESSES + 1}", 0))
        made.settimeout(5.0)
        made.connect(("127.0.0.1", port))
    except OSError:
        made.close()
        return None
    return made


def _send(wire: socket.socket, data: bytes) -> None:
    with suppress(OSError):  # it may have been turned away
        wire.sendall(data)
