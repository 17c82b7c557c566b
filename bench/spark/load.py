"""What runs in processes of its own, next to Spark. See bench/crew.py for how they are kept in
step."""

import json
import random
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.crew import Stages
from bench.load.bulk import Published
from bench.load.counter import Counter
from bench.wire import WIRES, Aim, connect

_CHUNK = 4096  # messages per write
#: Where orders go that fit the contract in the project that `headwater pipeline init` makes.
ORDERS = "shop/orders/bench"
STAMP = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class Taken:
    """What a reader got over Flight."""

    rows: int
    bytes: int  # of payload
    started: int
    finished: int

    @property
    def seconds(self) -> float:
        return (self.finished - self.started) / 1e9


def fill(aim: Aim, count: int) -> Stages:
    """Publish so many messages, all of them different, and wait until they are durable.

    Nothing gains by finding the same bytes twice: neither the log nor a Parquet file."""
    return _fill(aim, count, _bodies(aim, count))


def fill_orders(aim: Aim, count: int) -> Stages:
    """The same with orders of a shop, about one message in JSON each."""
    chunks = (range(first, min(first + _CHUNK, count)) for first in range(0, count, _CHUNK))
    return _fill(aim, count, ([_order(number) for number in numbers] for numbers in chunks))


def _fill(aim: Aim, count: int, bursts: Iterator[list[bytes]]) -> Stages:
    wire, link = WIRES[aim.wire], connect(aim.address)
    wire.open_acked(link, aim.topic, 0)
    counter, wanted = Counter(wire), 0
    started = time.monotonic_ns()
    for bodies in bursts:
        burst = wire.acked(aim.topic, bodies, 0, 0)
        if wanted:
            link.sendall(burst.data)
        else:
            counter.learn(link, burst)
        wanted += burst.acks
    while counter.acks < wanted - 1:  # what was learnt from is not counted
        counter.feed(link.recv(65536))
    yield Published(count, started, time.monotonic_ns())
    return None


def _bodies(aim: Aim, count: int) -> Iterator[list[bytes]]:
    source, size = random.Random(1), aim.payload_bytes
    for first in range(0, count, _CHUNK):
        number = min(_CHUNK, count - first)
        data = source.randbytes(number * size)
        yield [data[at : at + size] for at in range(0, number * size, size)]


def _order(number: int) -> bytes:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return (
        b'{"order_id":"o-%d","customer":"c-%d","amount":%d.5,"quantity":%d,"currency":"EUR",'
        b'"status":"paid","placed_at":"%s"}'
    ) % (number, number % 1000, number % 100, number % 9 + 1, now.encode())


def publish_orders(aim: Aim, rate: int, seconds: float) -> Stages:
    """Orders at a steady pace, twenty bursts a second, until it is stopped."""
    wire, link = WIRES[aim.wire], connect(aim.address)
    wire.open_publisher(link, aim.topic)
    yield "ready"
    started, burst, number = time.monotonic(), rate // 20, 0
    while number < rate * seconds:
        time.sleep(max(0.0, started + number / rate - time.monotonic()))
        numbers = range(number, number + burst)
        link.sendall(b"".join(wire.publish(aim.topic, _order(each)) for each in numbers))
        number = numbers.stop
    return Published(number, int(started * 1e9), time.monotonic_ns())


def publish_stamped(aim: Aim, rate: int, seconds: float) -> Stages:
    """Messages at a steady pace, each of which begins with the time it was sent at."""
    wire, link = WIRES[aim.wire], connect(aim.address)
    wire.open_publisher(link, aim.topic)
    rest = wire.payloads(1, aim.payload_bytes - STAMP.size)[0]
    yield "ready"
    started = time.monotonic_ns()
    total = int(rate * seconds)
    for number in range(total):
        due = started + number * 1_000_000_000 // rate
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        link.sendall(wire.publish(aim.topic, STAMP.pack(time.monotonic_ns()) + rest))
    return Published(total, started, time.monotonic_ns())


def take(address: tuple[str, int], start: int, end: int, size: int, seconds: float) -> Stages:
    """Read a range over Flight, again and again, for so long and until so much was taken."""
    from pyarrow import flight

    client = flight.connect(f"grpc://{address[0]}:{address[1]}")
    ticket = flight.Ticket(json.dumps({"start": start, "end": end}).encode())
    yield "ready"
    rows = taken = 0
    started = time.monotonic_ns()
    stop = started + int(seconds * 1e9)
    while taken < size or time.monotonic_ns() < stop:
        for chunk in client.do_get(ticket):
            rows += len(chunk.data)
            values = chunk.data.column("value")
            taken += values.nbytes - 4 * (len(values) + 1)  # without its offsets
            if taken >= size and time.monotonic_ns() >= stop:
                break
    return Taken(rows, taken, started, time.monotonic_ns())
