"""Rows that a client wrote, on their way to the log: checked, and put together to runs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headwater import arrow_compute as pc
from headwater import topics
from headwater.actions import PUBLISH
from headwater.errors import Code, Refusal
from headwater.flight.requests import HEADERS, WRITE_SCHEMA
from headwater.log.record import Cells
from headwater.message import Headers, Run
from headwater.rights import Rights

PROTOCOL = "flight"
RUN_BYTES = 512 * 1024
# What a run takes besides its payloads, measured with a million of them: its objects, and their
# places in the rows of the writer, of the newest messages and of those who push them.
RUN_MEMORY = 640
PIECE_ROWS = 16_384
# Payloads up to this size become Python's where topics change with almost every row: an array of
# Arrow's for each would take more memory.
SMALL_BYTES = 512
FEW_ROWS = 4
# Of so many topics a write remembers that they can be topics.
MOST_KNOWN = 100_000
_TEXTS = frozenset((pa.string(), pa.large_string()))


class Checker:
    """Refuses rows that cannot be messages, by their position."""

    def __init__(
        self, message_bytes: int, topic_bytes: int, batch_bytes: int, rights: Rights | None = None
    ) -> None:
        """Without rights, all topics are allowed."""
        self._rights = rights
        self._message_bytes = message_bytes
        self._topic_bytes = topic_bytes
        # One message always fits into a record batch.
        self._batch_bytes = max(batch_bytes, 2 * message_bytes)
        self._known: set[str] = set()  # what can be a topic
        self._rows = 0

    def check(self, batch: Any) -> Iterator[Any]:
        """The rows in the order of WRITE_SCHEMA, in batches that are not too long: what is made of
        one of them in Python keeps others from running."""
        _check_buffers(batch)  # before anything looks into them
        self._check_size(batch.nbytes)
        for first in range(0, len(batch), PIECE_ROWS):
            yield self._checked(batch.slice(first, PIECE_ROWS))

    def _checked(self, batch: Any) -> Any:
        columns = []
        for name in ("topic", "value"):
            column = _column(batch, name)
            if column is None:
                raise Refusal(Code.MALFORMED, f"the column {name} is missing")
            columns.append(self._cast(column, WRITE_SCHEMA.field(name).type, name))
        headers = _column(batch, "headers")
        if headers is None:
            columns.append(pa.nulls(len(batch), HEADERS))
        else:
            columns.append(self._cast(headers, HEADERS, "headers"))
        for name, column in zip(("topic", "value"), columns, strict=False):
            if column.null_count:
                self._refuse(pc.index(column.is_null(), True), f"{name} is null")
        sizes = pc.binary_length(columns[1])
        if len(batch) and pc.max(sizes).as_py() > self._message_bytes:
            row = pc.index(pc.greater(sizes, self._message_bytes), True)
            why = f"value is over the limit of {self._message_bytes} bytes"
            self._refuse(row, why, limit="message_bytes")
        for topic in pc.unique(columns[0]).to_pylist():
            self._check_topic(topic, columns[0])
        self._rows += len(batch)
        return pa.RecordBatch.from_arrays(columns, schema=WRITE_SCHEMA)

    def _check_size(self, size: int) -> None:
        if size > self._batch_bytes:
            raise Refusal(
                Code.TOO_LARGE,
                f"a record batch of {size} bytes is over the limit of {self._batch_bytes} "
                "(flight.record_batch_bytes); send smaller ones",
                limit="flight.record_batch_bytes",
            )

    def _cast(self, column: Any, kind: Any, name: str) -> Any:
        if column.type == kind:
            return column
        try:
            self._check_size(_size_as_rows(column))
            return column.cast(kind)
        except pa.ArrowException:
            raise Refusal(
                Code.MALFORMED,
                f"the column {name} has the type {str(column.type)[:100]}, not {kind}",
            ) from None

    def _check_topic(self, topic: str, column: Any) -> None:
        if topic not in self._known:
            try:
                topics.check(topic, self._topic_bytes)
            except Refusal as error:
                self._refuse(pc.index(column, topic), str(error))
            if len(self._known) < MOST_KNOWN:
                self._known.add(topic)
        # These may change while a client sends its rows.
        if self._rights is not None and not self._rights.publish.may(topic):
            raise self._rights.refusal(PUBLISH, topic)

    def _refuse(self, row: Any, why: str, limit: str = "") -> None:
        raise Refusal(Code.MALFORMED, f"row {self._rows + row.as_py()}: {why}", limit=limit)


def _column(batch: Any, name: str) -> Any:
    """None if there is none of that name. Others may have names that are no text."""
    places = batch.schema.get_all_field_indices(name)
    if len(places) > 1:
        raise Refusal(Code.MALFORMED, f"there are {len(places)} columns with the name {name}")
    return batch.column(places[0]) if places else None


def _check_buffers(batch: Any) -> None:
    """Arrow takes the offsets in a batch from the network as they are. One that leads out of its
    buffer would make a message of the broker's memory, or end the process."""
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise Refusal(Code.MALFORMED, f"the rows are damaged: {error}") from None


def _size_as_rows(column: Any) -> int:
    """How many bytes a column has when every row has its value: where many rows share one, a column
    of a few kilobytes can be terabytes. Raises ArrowException if nobody can tell."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(column.dictionary)
        return int(pc.sum(lengths.take(column.indices)).as_py() or 0)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        # A view has 16 bytes; the first four are its length.
        views = memoryview(column.buffers()[1]).cast("i")[::4]
        return sum(views[column.offset : column.offset + len(column)])
    plain = (
        *(pa.types.is_null(kind), pa.types.is_primitive(kind)),
        *(pa.types.is_string(kind), pa.types.is_large_string(kind)),
        *(pa.types.is_binary(kind), pa.types.is_large_binary(kind)),
        pa.types.is_fixed_size_binary(kind),
        pa.types.is_map(kind) and {kind.key_type, kind.item_type} <= _TEXTS,
    )
    if not any(plain):
        raise pa.ArrowInvalid(f"{kind} cannot be cast")
    return int(column.nbytes)


def runs_of(batches: Iterable[Any], publisher: str, skip: int = 0) -> Iterator[Run]:
    """The rows as runs, without the first `skip` rows."""
    shared: dict[str, str] = {}
    for batch in batches:
        if skip >= len(batch):
            skip -= len(batch)
            continue
        batch, skip = batch.slice(skip), 0
        for topic, payloads, headers in _stretches_of(batch):
            topic = shared.setdefault(topic, topic)
            yield Run(topic, payloads, protocol=PROTOCOL, publisher=publisher, headers=headers)


def memory_of(run: Run) -> int:
    """About what a run takes on its way to the log, where what Arrow has of it is in a file."""
    payloads = 0 if isinstance(run.payloads, Cells) else run.size + 48 * len(run)
    return RUN_MEMORY + payloads


def _stretches_of(batch: Any) -> Iterator[tuple[str, Sequence[bytes], Headers]]:
    stretches = list(_stretches(batch))
    values = Cells(batch.column(1))
    few = len(stretches) * FEW_ROWS > len(batch)
    if few and values.total_bytes <= SMALL_BYTES * len(batch):
        payloads = list(values)
        for first, stop, topic, headers in stretches:
            yield topic, payloads[first:stop], headers
        return
    for first, stop, topic, headers in stretches:
        for cells in _pieces(Cells(batch.column(1).slice(first, stop - first))):
            yield topic, cells, headers


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
