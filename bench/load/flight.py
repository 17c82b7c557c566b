"""A reader of the log over Arrow Flight, next to others who are measured."""

import json
import time

from bench.crew import Stages
from bench.spark.load import Taken


def read(address: tuple[str, int], end: int, seconds: float, bytes_per_second: int = 0) -> Stages:
    """Read the log up to an offset, again and again, at a given pace or as fast as it comes."""
    from pyarrow import flight

    client = flight.connect(f"grpc://{address[0]}:{address[1]}")
    ticket = flight.Ticket(json.dumps({"start": 0, "end": end}).encode())
    yield "ready"
    rows = taken = 0
    started = time.monotonic_ns()
    stop = started + int(seconds * 1e9)
    while time.monotonic_ns() < stop:
        for chunk in client.do_get(ticket):
            rows += len(chunk.data)
            taken += chunk.data.column("value").nbytes
            due = started + taken * 1_000_000_000 // bytes_per_second if bytes_per_second else 0
            time.sleep(max(0, min(due, stop) - time.monotonic_ns()) / 1e9)
            if time.monotonic_ns() >= stop:
                break
    return Taken(rows, taken, started, time.monotonic_ns())
