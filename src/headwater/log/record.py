"""What is stored of a message: the Arrow schema, and the way from batches to Arrow and back.

A row is a run: what the payloads of one batch share is stored once, and the payloads are one list
value. Offsets are not stored; they follow from the offset of the first row and the lengths of the
lists. Nothing here touches a file.

    timestamp    when the run came: microseconds, UTC, never smaller than in the row before
    topic
    protocol     as in `Run`
    publisher
    headers      names and values, in the order they came in
    payloads     one value per message

Rules:
- An Arrow call that converts Python objects keeps the interpreter lock, so long lists are
  converted in pieces. What copies, compresses or decompresses lets other threads run.
- Payloads become Python objects only for rows that are wanted.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, groupby, repeat
from struct import pack
from typing import Any, overload

import pyarrow as pa

from headwater import arrow_compute as pc
from headwater.errors import LogError
from headwater.log import small
from headwater.message import Batch, Headers, Packed, Run

SCHEMA = pa.schema(
    [
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("publisher", pa.string(), nullable=False),
        pa.field("headers", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("payloads", pa.list_(pa.field("item", pa.binary(), False)), nullable=False),
    ]
)
TIMESTAMP, TOPIC, PROTOCOL, PUBLISHER, HEADERS, PAYLOADS = range(6)

#: One row per message, for everyone who is not a broker (Parquet, Spark).
FLAT_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        *(SCHEMA.field(column) for column in range(PAYLOADS)),
        pa.field("value", pa.binary(), nullable=False),
    ]
)

# Arrow's list and binary arrays count with 32 bits, and not all of them are ours.
MAX_PAYLOAD_BYTES = 2**31 - 2**20

# A piece of this size is converted in about half a millisecond.
_PIECE_MESSAGES = 8_192
_PIECE_BYTES = 4 << 20
_PIECE_ROWS = 4_096

#: So many batches of a frame are made at once: making them keeps the interpreter lock for about a
#: microsecond each, and they take memory, however little is in them.
MOST_BATCHES = 2_048
# So many topics are looked at between two looks at the clock.
_TOPICS_AT_ONCE = 64

# On JSON messages zstd needs half the space of LZ4. It decompresses 0.7 GB/s instead of 1.5, which
# is still several times what a broker delivers. Higher levels were slower and no smaller.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)

_TYPES = [field.type for field in SCHEMA]
_MAP = _TYPES[HEADERS]
_NO_ENTRIES = pa.array([], pa.struct([_MAP.key_field, _MAP.item_field]))


_TEMPLATE = small.template(
    pa.RecordBatch.from_pylist(
        [
            {
                "timestamp": 1,
                "topic": "-",
                "protocol": "-",
                "publisher": "-",
                "headers": [("-", "-")],
                "payloads": [b"-"],
            }
        ],
        schema=SCHEMA,
    )
)


class Cells(Packed):
    """Payloads in a binary array of Arrow."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def total_bytes(self) -> int:
        if not len(self.array):
            return 0
        ends = memoryview(self.array.buffers()[1]).cast("i")
        first = self.array.offset
        return int(ends[first + len(self.array)] - ends[first])

    def __len__(self) -> int:
        return len(self.array)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.array.to_pylist())

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, int):
            payload: bytes = self.array[range(len(self))[index]].as_py()
            return payload
        start, stop, stride = index.indices(len(self))
        if stride != 1:
            return list(self)[index]
        return Cells(self.array.slice(start, max(stop - start, 0)))


def encode(batches: Sequence[Batch]) -> Any:
    """The batches, which follow each other, as one Arrow IPC message (a pyarrow.Buffer)."""
    count = batches[-1].end - batches[0].offset
    if (message := small.encode(_TEMPLATE, batches, count)) is not None:
        return message
    runs = [batch.run for batch in batches]
    columns = [
        _timestamps([batch.timestamp for batch in batches]),
        _strings([run.topic for run in runs]),
        _strings([run.protocol for run in runs]),
        _strings([run.publisher for run in runs]),
        _headers([run.headers for run in runs]),
        _payloads([run.payloads for run in runs], count, sum([run.size for run in runs])),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA).serialize()


def encode_nothing() -> Any:
    """The message of a frame whose records are lost: it has no rows."""
    return pa.RecordBatch.from_pylist([], schema=SCHEMA).serialize()


def compress(rows: Any) -> Any:
    """A record batch as one compressed Arrow IPC message."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_COMPRESSED) as writer:
        writer.write_batch(rows)
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(sink.getvalue()))
    messages.read_next_message()  # the schema, which the reader knows
    return messages.read_next_message().serialize()


def read(message: Any) -> Any:
    """The record batch of a message. Raises pyarrow.ArrowException if it is none of ours."""
    return pa.ipc.read_record_batch(message, SCHEMA)


def _timestamps(values: Sequence[int]) -> Any:
    buffer = pa.py_buffer(pack(f"{len(values)}q", *values))
    return pa.Array.from_buffers(_TYPES[TIMESTAMP], len(values), [None, buffer], 0)


def _strings(values: Sequence[str]) -> Any:
    return _one_string(values[0]) if len(values) == 1 else pa.array(values, pa.string())


# A frame of one run is what a publisher pays for who sends one message at a time; its three
# strings are the ones of the frame before, and building them anew takes a third of the time.
@lru_cache(maxsize=1024)
def _one_string(value: str) -> Any:
    return pa.array([value], pa.string())


def _headers(values: Sequence[Headers]) -> Any:
    return pa.array(values, _MAP) if any(values) else _no_headers(len(values))


@lru_cache(maxsize=64)
def _no_headers(rows: int) -> Any:
    zeros = pa.py_buffer(bytes(4 * (rows + 1)))
    return pa.Array.from_buffers(_MAP, rows, [None, zeros], 0, children=[_NO_ENTRIES])


def _payloads(lists: Sequence[Sequence[bytes]], count: int, size: int) -> Any:
    if size > MAX_PAYLOAD_BYTES:
        raise LogError(f"{size} bytes of messages do not fit into one frame of the log")
    lengths = list(map(len, lists))
    if not count or sum(lengths) != count:
        raise ValueError(f"{sum(lengths)} payloads for {count} offsets")
    pieces = list(_binary(lists))
    values = pa.concat_arrays(pieces) if len(pieces) > 1 else pieces[0]
    ends = pack(f"{len(lists) + 1}i", *accumulate(lengths, initial=0))
    buffers = [None, pa.py_buffer(ends)]
    return pa.Array.from_buffers(_TYPES[PAYLOADS], len(lists), buffers, 0, children=[values])


def _binary(lists: Sequence[Sequence[bytes]]) -> Iterator[Any]:
    """All payloads in Arrow arrays."""
    # Not `isinstance(…, Packed)`: compiled, `Packed` takes every sequence for one of its own.
    for plain, group in groupby(lists, lambda payloads: isinstance(payloads, list | tuple)):
        if not plain:
            yield from map(_unpacked, group)
            continue
        flat = list(chain.from_iterable(group))
        size = sum(map(len, flat))
        step = min(_PIECE_MESSAGES, len(flat) * _PIECE_BYTES // (size + 1) + 1)
        for at in range(0, len(flat), step):
            yield pa.array(flat[at : at + step], pa.binary())


def _unpacked(payloads: Any) -> Any:
    return payloads.array if isinstance(payloads, Cells) else _untiled(payloads)


def _untiled(tiles: Any) -> Any:
    """Arrow leaves the headers out without touching the payloads one by one, and lets other
    threads run meanwhile."""
    if not tiles.size:
        return pa.array(list(tiles), pa.binary())
    buffers = [None, pa.py_buffer(tiles.data)]
    frames = pa.Array.from_buffers(pa.binary(tiles.step), len(tiles), buffers)
    return pc.binary_slice(frames, tiles.header, tiles.step).cast(pa.binary())


class FrameRows:
    """The runs of one frame, which become batches when they are asked for."""

    __slots__ = ("_sizes", "_starts", "_topics", "base", "end", "table")

    def __init__(self, message: Any, base: int, count: int) -> None:
        #: The record batch.
        self.table = read(message)
        self.base, self.end = base, base + count
        payloads = self.table.column(PAYLOADS)
        # One more than there are rows: the last one is where a further row would start.
        self._starts: list[int] = _objects(payloads.offsets)
        self._sizes = _bytes_before(payloads.values, self._starts)
        self._topics: list[str] = _objects(self.table.column(TOPIC))
        if self._topics and self._starts[-1] != count:
            raise pa.ArrowInvalid(f"{self._starts[-1]} messages where {count} should be")

    @property
    def size(self) -> int:
        """How many bytes of payload there are."""
        return self._sizes[-1]

    @property
    def lost(self) -> bool:
        """The records of this frame were lost; only their number is known."""
        return not self._topics

    def pieces(self, max_bytes: int) -> Iterator[tuple[Any, int]]:
        """The rows as record batches of at most `max_bytes` of payload, or of one row."""
        row, rows, sizes = 0, len(self._topics), self._sizes
        while row < rows:
            fitting = bisect_right(sizes, sizes[row] + max_bytes) - 1
            following = min(max(fitting, row + 1), rows)
            yield self.table.slice(row, following - row), sizes[following] - sizes[row]
            row = following

    def first_at(self, timestamp: int) -> int:
        """The offset of the first message with this timestamp or a later one, or `end`."""
        times = _objects(self.table.column(TIMESTAMP).view(pa.int64()))
        for start, at in zip(self._starts, times, strict=False):  # there is one more start
            if at >= timestamp:
                return self.base + start
        return self.end

    def times(self) -> tuple[int, int] | None:
        """The first and the last timestamp."""
        column = self.table.column(TIMESTAMP)
        if not len(column):
            return None
        return _integers(column.slice(0, 1))[0], _integers(column.slice(len(column) - 1))[0]

    def batches(
        self,
        offset: int,
        end: int,
        wanted: Callable[[str], bool],
        max_bytes: int,
        late: Callable[[], bool] = lambda: False,
    ) -> tuple[list[Batch], int]:
        """Batches from `offset` to `end` with wanted topics, and the offset to go on from.

        About `max_bytes` of payload and MOST_BATCHES at most, but at least one batch if there is
        any that is found before it is `late`.
        """
        rows, following = self._choose(offset, end, wanted, max_bytes, late)
        batches = self._build(rows) if rows else []
        if batches and batches[0].offset < offset:
            batches[0] = batches[0].since(offset)
        if batches and batches[-1].end > end:
            batches[-1] = batches[-1].part(batches[-1].offset, end)
        return batches, following

    def _choose(
        self,
        offset: int,
        end: int,
        wanted: Callable[[str], bool],
        max_bytes: int,
        late: Callable[[], bool],
    ) -> tuple[list[int], int]:
        starts, sizes = self._starts, self._sizes
        rows: list[int] = []
        first = bisect_right(starts, offset - self.base) - 1
        for row in range(first, len(self._topics)):
            full = max_bytes <= 0 or len(rows) >= MOST_BATCHES
            if full or self.base + starts[row] >= end:
                return rows, min(self.base + starts[row], end)
            if row > first and not (row - first) % _TOPICS_AT_ONCE and late():
                return rows, self.base + starts[row]
            if wanted(self._topics[row]):
                rows.append(row)
                max_bytes -= sizes[row + 1] - sizes[row]
        return rows, min(self.end, end)

    def _build(self, rows: list[int]) -> list[Batch]:
        first, count = rows[0], len(rows)
        together = rows[-1] - first + 1 == count
        table = self.table.slice(first, count) if together else self.table.take(rows)
        base, starts = self.base, self._starts
        times = _integers(table.column(TIMESTAMP))
        return [
            Batch(base + starts[row], timestamp, run)
            for row, timestamp, run in zip(rows, times, _runs(table), strict=True)
        ]


def count_topics(table: Any) -> Counter[str]:
    """How many messages of which topic a record batch holds."""
    counts: Counter[str] = Counter()
    lengths = pc.list_value_length(table.column(PAYLOADS)).to_pylist()
    for topic, length in zip(table.column(TOPIC).to_pylist(), lengths, strict=True):
        counts[topic] += length
    return counts


def first_timestamp(table: Any) -> int:
    return _integers(table.column(TIMESTAMP).slice(0, 1))[0]


def _bytes_before(values: Any, starts: list[int]) -> list[int]:
    """How many bytes of payload lie before each row."""
    if not len(values):
        return [0] * len(starts)
    ends = memoryview(values.buffers()[1]).cast("i")
    return [ends[start] for start in starts]


def _runs(table: Any) -> Iterator[Run]:
    columns = [
        table.column(column).to_pylist() for column in (TOPIC, PROTOCOL, PUBLISHER, PAYLOADS)
    ]
    headers = _header_tuples(table.column(HEADERS))
    for topic, protocol, publisher, payloads, pairs in zip(*columns, headers, strict=True):
        yield Run(topic, payloads, protocol=protocol, publisher=publisher, headers=pairs)


def _header_tuples(column: Any) -> Iterator[Headers]:
    # `values` is that of all rows, also of those that a slice leaves out.
    return map(tuple, column.to_pylist()) if len(column.values) else repeat((), len(column))


def _objects(column: Any) -> list[Any]:
    """The values of a column that may have very many."""
    if len(column) <= _PIECE_ROWS:
        return list(column.to_pylist())
    pieces = range(0, len(column), _PIECE_ROWS)
    return list(chain.from_iterable(column.slice(at, _PIECE_ROWS).to_pylist() for at in pieces))


def _integers(timestamps: Any) -> list[int]:
    values: list[int] = timestamps.view(pa.int64()).to_pylist()
    return values


def flatten(
    rows: FrameRows, offset: int, end: int, wanted: Callable[[str], bool] | None = None
) -> Any:
    """The messages from `offset` to `end` with wanted topics, as a record batch of FLAT_SCHEMA."""
    table = rows.table
    payloads = table.column(PAYLOADS)
    numbers = pa.ListArray.from_arrays(payloads.offsets, pa.arange(rows.base, rows.end))
    chosen = None if wanted is None else _chosen(table.column(TOPIC), wanted)
    if chosen is not None:  # whole runs, before they become rows
        table, numbers = table.filter(chosen), numbers.filter(chosen)
        payloads = table.column(PAYLOADS)
    parents = pc.list_parent_indices(payloads)
    columns = [numbers.flatten(), *(table.column(c).take(parents) for c in range(PAYLOADS))]
    flat = pa.RecordBatch.from_arrays([*columns, payloads.flatten()], schema=FLAT_SCHEMA)
    if offset <= rows.base and end >= rows.end:
        return flat
    numbers = flat.column(0)
    return flat.filter(pc.and_(pc.greater_equal(numbers, offset), pc.less(numbers, end)))


def _chosen(topics: Any, wanted: Callable[[str], bool]) -> Any | None:
    """Which runs have a wanted topic, the filter being asked once per topic. None: all of them."""
    names = pc.unique(topics).to_pylist()
    found = [name for name in names if wanted(name)]
    return None if len(found) == len(names) else pc.is_in(topics, pa.array(found, pa.string()))
