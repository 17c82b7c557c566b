"""What hostile clients do to the console, and over Arrow Flight."""

import json
import os
import socket
import time
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import flight

from bench.crew import Stages
from bench.wire.base import connect
from headwater.flight.requests import WRITE_SCHEMA

HOST = "127.0.0.1"
MIB = 1 << 20
STAY_SECONDS = 5.0
# Connections that are made in a second. With many more, not the open ones are the harm, but the
# work of accepting them.
NEW_RATE = 600
_HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "
_SLOW = (
    b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nX-Headwater: 1\r\n"
    b"Content-Type: application/json\r\nContent-Length: 200000\r\n\r\n"
)


def half_requests(ports: dict[str, int], count: int) -> Stages:
    """Connections to the console, each with a request that never ends."""
    yield "ready"
    return _dribble(ports, count, _HALF)


def slow_bodies(ports: dict[str, int], count: int) -> Stages:
    """The same with bodies that never end."""
    yield "ready"
    return _dribble(ports, count, _SLOW)


def _dribble(ports: dict[str, int], count: int, head: bytes) -> int:
    """Keep so many connections that send a byte now and then; who is dropped comes again."""
    wires: list[socket.socket] = []
    made, until = 0, time.monotonic() + count / NEW_RATE + STAY_SECONDS
    while time.monotonic() < until:
        began = time.monotonic()
        for _ in range(min(count - len(wires), NEW_RATE // 20)):
            wires.append(connect((HOST, ports["console"])))
            made += 1
            with suppress(OSError):
                wires[-1].sendall(head)
        if made % NEW_RATE == 0:
            wires = [wire for wire in wires if _goes_on(wire)]
        time.sleep(max(began + 1 / 20 - time.monotonic(), 0.0))
    for wire in wires:
        wire.close()
    return made


def _goes_on(wire: socket.socket) -> bool:
    try:
        wire.sendall(b"x")
    except OSError:
        wire.close()
        return False
    return True


def tiny_splits(ports: dict[str, int], mebibytes: int, count: int) -> Stages:
    """Have a large log cut into pieces of a byte each."""
    client = _flight(ports)
    for number in range(mebibytes // 16):
        _append(client, "hostile/split", number, 16, 1024)
    yield "ready"
    end = _act(client, "log")["end"]
    pieces = 0
    for _ in range(count):
        pieces += len(_act(client, "split", start=0, end=end, bytes=1)["ranges"])
    return pieces


def large_append(ports: dict[str, int], mebibytes: int) -> Stages:
    """Append very much in one step."""
    client = _flight(ports)
    yield "ready"
    _append(client, "hostile/append", 0, mebibytes, MIB)
    return mebibytes


def stalled_reads(ports: dict[str, int], mebibytes: int, count: int) -> Stages:
    """Ask for all of the log, many times, and read nothing of it."""
    client = _flight(ports)
    for number in range(mebibytes // 16):
        _append(client, "hostile/reads", number, 16, 1024)
    end = _act(client, "log")["end"]
    yield "ready"
    clients, readers = [client], []
    ticket = flight.Ticket(json.dumps({"start": 0, "end": end}).encode())
    for _ in range(count):
        clients.append(_flight(ports))
        with suppress(pa.ArrowException):  # there are enough already
            readers.append(clients[-1].do_get(ticket))
            readers[-1].read_chunk()
    time.sleep(STAY_SECONDS)
    for reader in readers:
        reader.cancel()
    return count


def _flight(ports: dict[str, int]) -> Any:
    return flight.connect(f"grpc://{HOST}:{ports['flight']}")


def _act(client: Any, name: str, **arguments: Any) -> Any:
    (result,) = client.do_action(flight.Action(name, json.dumps(arguments).encode()))
    return json.loads(result.body.to_pybytes())


def _append(client: Any, producer: str, sequence: int, mebibytes: int, size: int) -> None:
    rows = 8 * MIB // size
    columns = [
        pa.array([producer] * rows),
        pa.array([os.urandom(size)] * rows, pa.binary()),
        pa.nulls(rows, WRITE_SCHEMA.field("headers").type),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=WRITE_SCHEMA)
    command = {"do": "append", "producer": producer, "sequence": sequence}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    writer, answers = client.do_put(descriptor, WRITE_SCHEMA)
    with writer:
        for _ in range(mebibytes // 8):
            writer.write_batch(batch)
        writer.done_writing()
        answers.read()
