"""Arrow messages of many small runs, put together by hand.

pyarrow needs some thirty calls for a record batch, each of which may hand the interpreter lock to
another thread, and a Python object for each value. Where a group is small that is most of the work.
The metadata of all record batches of one schema have the same layout, in which only numbers differ:
so they are taken from one that pyarrow has made, and the numbers are filled in.

    message : FFFFFFFF, length of the metadata u32, metadata (a flatbuffer), body
    metadata: …, rows, (rows, nulls) per array, (position, length) per buffer, …, body length
    body    : the buffers of the columns, each padded to 8 bytes

https://arrow.apache.org/docs/format/Columnar.html describes the order of arrays and buffers.
"""

from collections.abc import Sequence, Sized
from struct import Struct, pack, pack_into
from typing import Any, NamedTuple

from headwater.message import Batch

# Groups of runs that weigh more are encoded by pyarrow.
SMALL_WEIGHT = 256 * 1024

_U16, _I32, _U32, _I64 = Struct("<H"), Struct("<i"), Struct("<I"), Struct("<q")


class Template(NamedTuple):
    """A message's metadata, and where the numbers in it are."""

    data: bytes  # from the marker on, up to the body
    rows: int
    nodes: int
    buffers: int
    body_bytes: int


def template(example: Any) -> Template:
    """Of all record batches that have the schema of this one, which has at least one row."""
    message = example.serialize().to_pybytes()
    (length,) = _U32.unpack_from(message, 4)
    flat = _Flatbuffer(message[: 8 + length])
    root = flat.follow(8)
    body_bytes = flat.field(root, 3)
    batch = flat.follow(flat.field(root, 2))
    nodes, buffers = (flat.follow(flat.field(batch, number)) for number in (1, 2))
    return Template(
        flat.data,
        flat.field(batch, 0),
        nodes + 4,
        buffers + 4,
        body_bytes,
    )


class _Flatbuffer:
    """As much of a reader as it takes to find fields in tables."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def u32(self, at: int) -> int:
        return int(_U32.unpack_from(self.data, at)[0])

    def follow(self, at: int) -> int:
        """What the reference at a position points to."""
        return at + self.u32(at)

    def field(self, table: int, number: int) -> int:
        """Where a field of a table is."""
        vtable = table - int(_I32.unpack_from(self.data, table)[0])
        if 4 + 2 * number >= _U16.unpack_from(self.data, vtable)[0]:
            raise ValueError(f"the message has no field {number}")
        (place,) = _U16.unpack_from(self.data, vtable + 4 + 2 * number)
        if not place:
            raise ValueError(f"the message has no field {number}")
        return table + int(place)


def encode(made: Template, batches: Sequence[Batch], count: int) -> bytes | None:
    """So many messages as one Arrow message with the columns of `record.SCHEMA`. None if they are
    too much. All columns are gathered in one pass: compiled, to go through the batches takes longer
    than to do something with each."""
    timestamps: list[int] = []
    topics: list[str] = []
    protocols: list[str] = []
    publishers: list[str] = []
    pairs: list[tuple[str, str]] = []
    header_ends, payload_ends = [0], [0]
    payloads: list[bytes] = []
    weight = 0
    for batch in batches:
        run = batch.run
        weight += run.weight
        if weight > SMALL_WEIGHT or type(run.payloads) is not list:
            return None
        timestamps.append(batch.timestamp)
        topics.append(run.topic)
        protocols.append(run.protocol)
        publishers.append(run.publisher)
        if run.headers:
            pairs += run.headers
        header_ends.append(len(pairs))
        payloads += run.payloads
        payload_ends.append(len(payloads))
    if not count or len(payloads) != count:
        raise ValueError(f"{len(payloads)} payloads for {count} offsets")
    rows = len(timestamps)
    nodes = [rows] * 5 + [len(pairs)] * 3 + [rows, count]
    buffers = (
        *integers(timestamps),
        *strings(topics),
        *strings(protocols),
        *strings(publishers),
        *(b"", numbers(header_ends), b""),
        *strings([name for name, _ in pairs]),
        *strings([value for _, value in pairs]),
        *(b"", numbers(payload_ends)),
        *binary(payloads),
    )
    return message(made, nodes, buffers)


def message(made: Template, nodes: Sequence[int], buffers: Sequence[bytes]) -> bytes:
    """A message: the length of every array, of which the first is the number of rows, and all
    buffers, in Arrow's order."""
    metadata = bytearray(made.data)
    _I64.pack_into(metadata, made.rows, nodes[0])
    lengths: list[int] = []
    for length in nodes:
        lengths += (length, 0)  # none of the values is null
    pack_into(f"<{len(lengths)}q", metadata, made.nodes, *lengths)
    parts: list[bytes | bytearray] = [metadata]
    places: list[int] = []
    at = 0
    for buffer in buffers:
        length = len(buffer)
        places += (at, length)
        if length:
            parts.append(buffer)
            at += length
            if padding := -length % 8:
                parts.append(bytes(padding))
                at += padding
    pack_into(f"<{len(places)}q", metadata, made.buffers, *places)
    _I64.pack_into(metadata, made.body_bytes, at)
    return b"".join(parts)


def integers(values: Sequence[int]) -> tuple[bytes, bytes]:
    """The buffers of an array of 64-bit integers."""
    return b"", pack(f"<{len(values)}q", *values)


def numbers(values: Sequence[int]) -> bytes:
    """Integers of 32 bits: where values end, and the first begins."""
    return pack(f"<{len(values)}i", *values)


def ends(values: Sequence[Sized]) -> bytes:
    """Where each of the values ends, and the first begins."""
    at, found = 0, [0]
    for value in values:
        at += len(value)
        found.append(at)
    return numbers(found)


def strings(values: Sequence[str]) -> tuple[bytes, bytes, bytes]:
    """The buffers of an array of strings."""
    text = "".join(values)
    if text.isascii():
        return b"", ends(values), text.encode()
    return binary([value.encode() for value in values])


def binary(values: Sequence[bytes]) -> tuple[bytes, bytes, bytes]:
    """The buffers of an array of bytes."""
    return b"", ends(values), b"".join(values)
