"""A plain Flight client for tests."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headwater.flight.requests import WRITE_SCHEMA

#: A bound for what hangs: a call can be a read that goes on beside what a test does meanwhile.
CALL_SECONDS = 100


class Client:
    def __init__(self, port: int, token: str | None = None) -> None:
        self._client = flight.connect(f"grpc://127.0.0.1:{port}")
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self._options = flight.FlightCallOptions(headers=headers, timeout=CALL_SECONDS)

    def act(self, name: str, **arguments: Any) -> Any:
        action = flight.Action(name, json.dumps(arguments).encode())
        (result,) = self._client.do_action(action, self._options)
        return json.loads(result.body.to_pybytes())

    def read(self, **request: Any) -> Any:
        ticket = flight.Ticket(json.dumps(request).encode())
        return self._client.do_get(ticket, self._options).read_all()

    def chunks(self, **request: Any) -> Iterator[Any]:
        ticket = flight.Ticket(json.dumps(request).encode())
        for chunk in self._client.do_get(ticket, self._options):
            yield chunk.data

    def put(self, rows: Any, **command: Any) -> Any:
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        writer, reader = self._client.do_put(descriptor, rows.schema, self._options)
        with writer:
            writer.write_table(rows) if isinstance(rows, pa.Table) else writer.write_batch(rows)
            writer.done_writing()
            answer = reader.read()
        return None if answer is None else json.loads(answer.to_pybytes())

    @contextmanager
    def writing(self, schema: Any, **command: Any) -> Iterator[Callable[[Any], None]]:
        """Batch by batch; what the broker says to it is raised at the end."""
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        writer, reader = self._client.do_put(descriptor, schema, self._options)
        with writer:
            yield writer.write_batch
            writer.done_writing()
            reader.read()

    def close(self) -> None:
        self._client.close()


def rows(*values: tuple[str, bytes]) -> Any:
    topics, payloads = zip(*values, strict=True) if values else ((), ())
    columns = [list(topics), list(payloads), [None] * len(values)]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, WRITE_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=WRITE_SCHEMA)
