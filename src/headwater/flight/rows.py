"""Rows that a client wrote, on their way to the log: checked, and put together to runs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headwater import arrow_compute as pc
from headwater import topics
from headwater.errors import Code, Refusal
from headwater.flight.requests import HEADERS, WRITE_SCHEMA
from headwater.log.record import Cells
from headwater.message import Headers, Run

PROTOCOL = "flight"
RUN_BYTES = 512 * 1024


class Checker:
    """Refuses rows that cannot be messages, by their position."""

    def __init__(self, message_bytes: int, topic_bytes: int) -> None:
        self._message_bytes = message_bytes
        self._topic_bytes = topic_bytes
        self._known: set[str] = set()
        self._rows = 0

    def check(self, batch: Any) -> Any:
        """The batch in the order of WRITE_SCHEMA."""
        _check_buffers(batch)
        columns = []
        for name in ("topic", "value"):
            if name not in batch.schema.names:
                raise Refusal(Code.MALFORMED, f"the column {name} is missing")
            columns.append(_cast(batch.column(name), WRITE_SCHEMA.field(name).type, name))
        if "headers" in batch.schema.names:
            columns.append(_cast(batch.column("headers"), HEADERS, "headers"))
        else:
            columns.append(pa.nulls(len(batch), HEADERS))
        for name, column in zip(("topic", "value"), columns, strict=False):
            if column.null_count:
                self._refuse(pc.index(column.is_null(), True), f"{name} is null")
        sizes = pc.binary_length(columns[1])
        if len(batch) and pc.max(sizes).as_py() > self._message_bytes:
            row = pc.index(pc.greater(sizes, self._message_bytes), True)
            self._refuse(row, f"value is over the limit of {self._message_bytes} bytes")
        for topic in pc.unique(columns[0]).to_pylist():
            self._check_topic(topic, columns[0])
        self._rows += len(batch)
        return pa.RecordBatch.from_arrays(columns, schema=WRITE_SCHEMA)

    def _check_topic(self, topic: str, column: Any) -> None:
        if topic in self._known:
            return
        try:
            topics.check(topic, self._topic_bytes)
        except Refusal as error:
            self._refuse(pc.index(column, topic), str(error))
        if len(self._known) < 100_000:
            self._known.add(topic)

    def _refuse(self, row: Any, why: str) -> None:
        raise Refusal(Code.MALFORMED, f"row {self._rows + row.as_py()}: {why}")


def _check_buffers(batch: Any) -> None:
    """Arrow takes the offsets in a batch from the network as they are. One that leads out of its
    buffer would make a message of the broker's memory, or end the process."""
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise Refusal(Code.MALFORMED, f"the rows are damaged: {error}") from None


def _cast(column: Any, kind: Any, name: str) -> Any:
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException:
        raise Refusal(
            Code.MALFORMED, f"the column {name} has the type {column.type}, not {kind}"
        ) from None


def runs_of(batches: Iterable[Any], publisher: str, skip: int = 0) -> Iterator[Run]:
    """The rows as runs, without the first `skip` rows."""
    for batch in batches:
        if skip >= len(batch):
            skip -= len(batch)
            continue
        batch, skip = batch.slice(skip), 0
        for first, stop, topic, headers in _stretches(batch):
            for cells in _pieces(Cells(batch.column(1).slice(first, stop - first))):
                yield Run(topic, cells, protocol=PROTOCOL, publisher=publisher, headers=headers)


def _pieces(cells: Cells) -> Iterator[Sequence[bytes]]:
    """A subscriber gets a run in one piece, so it should not be too large."""
    step = max(len(cells) * RUN_BYTES // (cells.total_bytes + 1), 1)
    return (cells[at : at + step] for at in range(0, len(cells), step))


def _stretches(batch: Any) -> Iterator[tuple[int, int, str, Headers]]:
    """Neighbours with the same topic and headers: (first row, row behind the last, …)."""
    encoded = pc.run_end_encode(batch.column(0))
    ends, names = encoded.run_ends.to_pylist(), encoded.values.to_pylist()
    all_headers = batch.column(2)
    plain = all_headers.null_count == len(batch)
    first = 0
    for end, topic in zip(ends, names, strict=True):
        if plain:
            yield first, end, topic, ()
        else:
            yield from _by_headers(first, all_headers.slice(first, end - first), topic)
        first = end


def _by_headers(first: int, column: Any, topic: str) -> Iterator[tuple[int, int, str, Headers]]:
    values = [tuple(pairs or ()) for pairs in column.to_pylist()]
    start = 0
    for row in range(1, len(values) + 1):
        if row == len(values) or values[row] != values[start]:
            yield first + start, first + row, topic, values[start]
            start = row
