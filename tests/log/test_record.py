"""From batches to Arrow and back."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import LogError
from headwater.log import record
from headwater.log.record import FrameRows
from headwater.message import Batch, Run
from tests.log.helpers import everything, make_run, messages, place, runs

ALL = 1 << 60


def decode(batches: list[Batch], *, compressed: bool = False) -> FrameRows:
    message = record.encode(batches)
    if compressed:
        message = record.compress(record.read(message))
    return FrameRows(message, batches[0].offset, batches[-1].end - batches[0].offset)


@pytest.mark.property
@given(st.lists(runs(), min_size=1, max_size=8), st.integers(0, 2**62), st.booleans())
def test_what_was_encoded_comes_back(some: list[Run], base: int, compressed: bool) -> None:
    batches = place(some, base, 5)
    rows = decode(batches, compressed=compressed)
    back, following = rows.batches(base, rows.end, everything, ALL)
    assert messages(back) == messages(batches)
    assert [b.offset for b in back] == [b.offset for b in batches]
    assert following == rows.end == batches[-1].end
    assert rows.size == sum(run.size for run in some)


@pytest.mark.property
@given(
    st.lists(runs(st.sampled_from("abc")), min_size=1, max_size=8),
    st.sets(st.sampled_from("abc")),
    st.data(),
)
def test_a_part_is_what_lies_in_it_and_is_wanted(
    some: list[Run], wanted: set[str], data: st.DataObject
) -> None:
    batches = place(some, 100, 5)
    rows = decode(batches)
    first = data.draw(st.integers(100, rows.end))
    end = data.draw(st.integers(first, rows.end))
    limit = data.draw(st.integers(1, 1500))
    expected = [m for m in messages(batches) if first <= m.offset < end and m.topic in wanted]
    got, at = [], first
    while at < end:
        part, following = rows.batches(at, end, wanted.__contains__, limit)
        assert following > at
        got += messages(part)
        at = following
    assert got == expected
    assert at == end


@pytest.mark.property
@given(
    st.lists(runs(st.sampled_from("abc")), min_size=1, max_size=6),
    st.sets(st.sampled_from("abc")),
    st.data(),
)
def test_flat_rows_are_the_messages(some: list[Run], wanted: set[str], data: st.DataObject) -> None:
    batches = place(some, 100, 5)
    rows = decode(batches)
    first = data.draw(st.integers(100, rows.end))
    end = data.draw(st.integers(first, rows.end))
    flat = record.flatten(rows, first, end, wanted.__contains__)
    assert flat.schema.equals(record.FLAT_SCHEMA)
    columns = [column.to_pylist() for column in flat.columns]
    columns[1] = flat.column("timestamp").view(pa.int64()).to_pylist()
    columns[5] = [tuple(pairs) for pairs in columns[5]]
    expected = [m for m in messages(batches) if first <= m.offset < end and m.topic in wanted]
    assert list(zip(*columns, strict=True)) == expected


def test_many_and_large_payloads_are_converted_in_pieces() -> None:
    many = make_run("many", *[b"%d" % n for n in range(20_000)])
    large = make_run("large", *[bytes([n]) * (3 << 20) for n in range(4)])
    batches = place([many, large], 7, 5)
    rows = decode(batches)
    assert messages(rows.batches(7, rows.end, everything, ALL)[0]) == messages(batches)


def test_at_least_one_batch_however_small_the_limit() -> None:
    batches = place([make_run("a", b"x" * 100, b"y"), make_run("a", b"z")], 0, 5)
    got, following = decode(batches).batches(0, 3, everything, 1)
    assert (len(got), following) == (1, 2)


def test_rows_cut_into_pieces_are_all_there() -> None:
    batches = place([make_run(str(n), b"x" * 40) for n in range(10)], 0, 5)
    pieces = list(decode(batches).pieces(100))
    assert [len(table) for table, _ in pieces] == [2, 2, 2, 2, 2]
    assert [size for _, size in pieces] == [80] * 5
    table = pa.concat_batches([table for table, _ in pieces])
    assert record.count_topics(table) == {str(n): 1 for n in range(10)}


def test_first_at_finds_the_row_of_a_time() -> None:
    rows = decode(place([make_run("a", b"", b""), make_run("b", b"", b"")], 10, 500))
    assert [rows.first_at(time) for time in (0, 500, 501, 502)] == [10, 10, 12, 14]
    assert rows.times() == (500, 501)


def test_a_frame_without_rows_stands_for_lost_records() -> None:
    rows = FrameRows(record.encode_nothing(), 10, 5)
    assert rows.lost
    assert rows.times() is None
    assert rows.batches(10, 15, everything, ALL) == ([], 15)
    assert list(rows.pieces(100)) == []
    assert len(record.flatten(rows, 10, 15)) == 0


def test_batches_that_leave_a_gap_are_refused() -> None:
    gap = [Batch(0, 5, make_run("a", b"x")), Batch(7, 5, make_run("a", b"x"))]
    with pytest.raises(ValueError, match="2 payloads for 8 offsets"):
        record.encode(gap)


def test_a_message_of_another_number_of_records_is_refused() -> None:
    message = record.encode(place([make_run("a", b"x", b"y")], 0, 5))
    with pytest.raises(pa.ArrowInvalid, match="2 messages where 3 should be"):
        FrameRows(message, 0, 3)


def test_more_than_arrow_can_count_is_refused() -> None:
    run = make_run("a", b"x")
    run.size = record.MAX_PAYLOAD_BYTES + 1
    with pytest.raises(LogError, match="do not fit"):
        record.encode([Batch(0, 5, run)])


@pytest.mark.property
@given(
    st.lists(st.binary(max_size=5), max_size=8),
    st.slices(8),
    st.integers(0, 3),
)
def test_cells_are_a_sequence_of_payloads(payloads: list[bytes], cut: slice, skipped: int) -> None:
    array = pa.array([b"before"] * skipped + payloads, pa.binary()).slice(skipped)
    cells = record.Cells(array)
    assert list(cells) == payloads
    assert len(cells) == len(payloads)
    assert cells.total_bytes == sum(map(len, payloads))
    assert list(cells[cut]) == payloads[cut]
    assert [cells[index] for index in range(len(payloads))] == payloads
    assert cells == payloads


@pytest.mark.property
@given(st.lists(st.lists(st.binary(max_size=5), min_size=1, max_size=5), min_size=1, max_size=5))
def test_cells_are_stored_like_any_payloads(lists: list[list[bytes]]) -> None:
    def batches(pack: Callable[[list[bytes]], Sequence[bytes]]) -> list[Batch]:
        made, offset = [], 7
        for payloads in lists:
            batch = Batch(offset, 1, Run("a", pack(payloads), protocol="flight"))
            made.append(batch)
            offset = batch.end
        return made

    plain = record.encode(batches(lambda payloads: payloads))
    packed = record.encode(batches(lambda payloads: record.Cells(pa.array(payloads, pa.binary()))))
    assert record.read(packed).equals(record.read(plain))


def test_many_small_batches_are_made_in_pieces() -> None:
    batches, at = [], 0
    for number in range(record.MOST_BATCHES + 10):
        batches.append(Batch(at, 1, Run(f"t/{number}", [b""], protocol="p")))
        at = batches[-1].end
    rows = decode(batches)
    first, following = rows.batches(0, rows.end, everything, ALL)
    assert following == len(first) == record.MOST_BATCHES
    rest, following = rows.batches(following, rows.end, everything, ALL)
    assert following == rows.end
    assert messages([*first, *rest]) == messages(batches)


def test_a_search_in_a_frame_ends_when_it_is_late() -> None:
    batches = [Batch(number, 1, Run(f"t/{number}", [b""], protocol="p")) for number in range(1000)]
    rows = decode(batches)
    found, following = rows.batches(0, rows.end, lambda topic: False, ALL, lambda: True)
    assert not found and 0 < following < rows.end
