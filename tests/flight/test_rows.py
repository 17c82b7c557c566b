"""Rows as they come from the network: nothing in them is true before it was checked."""

import struct
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import Refusal
from headwater.flight.rows import Checker

OFFSETS = struct.Struct("<3i")


def damaged(column: str, offset: int) -> Any:
    """Two rows, of which the first ends where its column says, which may be anywhere."""
    rows = {"topic": ["aaaa", "bbbb"], "value": [b"cccc", b"dddd"]}
    batch = pa.RecordBatch.from_pydict(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    raw = sink.getvalue().to_pybytes()
    usual = OFFSETS.pack(0, 4, 8)
    at = raw.find(usual) if column == "topic" else raw.rfind(usual)
    raw = raw[:at] + OFFSETS.pack(0, offset, 8) + raw[at + OFFSETS.size :]
    return pa.ipc.open_stream(raw).read_next_batch()


@pytest.mark.parametrize("column", ["topic", "value"])
@pytest.mark.parametrize("offset", [100_000, 50_000_000, -4])
def test_a_value_cannot_reach_beyond_its_buffer(column: str, offset: int) -> None:
    with pytest.raises(Refusal, match="the rows are damaged"):
        list(Checker(16 << 20, 1024, 64 << 20).check(damaged(column, offset)))


def test_rows_in_order_are_taken() -> None:
    (checked,) = Checker(16 << 20, 1024, 64 << 20).check(damaged("value", 4))
    assert checked.column(1).to_pylist() == [b"cccc", b"dddd"]


def named(*names: str | bytes) -> Any:
    arrays = [pa.array([b"x"]) if name == "value" else pa.array(["x"]) for name in names]
    fields = [pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def test_columns_that_nobody_asked_for_may_have_any_name() -> None:
    batch = named("topic", b"\xd7\xff", "value", b"\xd7\xff")
    (checked,) = Checker(16 << 20, 1024, 64 << 20).check(batch)
    assert checked.schema.names == ["topic", "value", "headers"]


def test_a_column_that_is_there_twice_is_refused() -> None:
    with pytest.raises(Refusal, match="2 columns with the name topic"):
        list(Checker(16 << 20, 1024, 64 << 20).check(named("topic", "topic", "value")))


def test_a_column_that_is_missing_is_refused() -> None:
    with pytest.raises(Refusal, match="the column value is missing"):
        list(Checker(16 << 20, 1024, 64 << 20).check(named("topic", b"valu\xff")))
