"""The verdict over records: every rule, every poison, and the quick way against the definition."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from headwater.pipeline.contracts.checks import Record, Verdict, key_of, verdict, verdict_of
from headwater.pipeline.contracts.evolution import Evolution, EvolvedColumn
from headwater.pipeline.contracts.fits import Fits
from headwater.pipeline.contracts.judge import RECORD, Judge, Judgement
from headwater.pipeline.contracts.model import Contract
from headwater.pipeline.contracts.reading import parse

ARRIVAL = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

#: What Arrow can read, and the other types.
FLAT = """
topics: flat/.*
key: [id, shop]
event_time: at
max_bytes: 64KiB
fields:
  id: {type: long, required: true, min: 0, max: 1000000}
  shop: {type: string, pattern: '[a-z]+(-\\d)?', min_length: 2}
  price: {type: double, min: -5.5, max: 1e9}
  paid: boolean
  at: timestamp
  seen: {type: timestamp, unit: ms}
  day: {type: date, min: 2020-01-01}
  cost: {type: 'decimal(6,2)', max: 9999.5}
  color: {type: string, one_of: [red, green, blue]}
  "odd name-1": {type: string, max_length: 5}
"""
NESTED = """
  tags: {type: array<string>, max_length: 3}
  grid: {type: array<array<long>>}
  place:
    type: struct
    fields:
      lat: {type: double, required: true, min: -90, max: 90}
      name: string
      code: {type: string, pattern: '[A-Z]+', max_length: 3}
  costs: {type: 'array<decimal(6,2)>', min_length: 1}
  moments: {type: array<timestamp>}
  stamps: {type: array<timestamp>, unit: ms}
  lines:
    type: array<struct>
    fields:
      sku: {type: string, required: true}
      count: {type: long, min: 1}
"""
EVERYTHING = FLAT.replace("flat/", "all/").rstrip() + NESTED
FROZEN = """
topics: [frozen]
unknown: freeze
fields: {a: long, s: {type: struct, fields: {x: long}}}
"""
ROWS = "topics: [rows]\nunknown: discard_row\nfields: {a: long}"
VALUES = "topics: [values]\nunknown: discard_value\nfields: {a: long}"


def contract(text: str, name: str) -> Contract:
    return parse(text, Path(f"{name}.yml"))


CONTRACTS = (
    contract(EVERYTHING, "everything"),
    contract(FROZEN, "frozen"),
    contract(ROWS, "rows"),
    contract(VALUES, "values"),
    contract(FLAT, "flat"),
)


def record(value: bytes, topic: str = "all/x", offset: int = 0) -> Record:
    return Record(topic, value, ARRIVAL, offset)


def records_of(records: list[Record]) -> Any:
    columns = {
        "offset": range(len(records)),
        "topic": [each.topic for each in records],
        "value": [each.value for each in records],
        "timestamp": [each.timestamp for each in records],
        "protocol": ["bpsp"] * len(records),
        "publisher": ["bob"] * len(records),
        "headers": [[("h", "1")]] * len(records),
    }
    arrays = [pa.array(list(columns[f.name]), f.type) for f in RECORD]
    return pa.table(arrays, schema=RECORD)


def judged(records: list[Record], *evolved: EvolvedColumn, learning: bool = False) -> Judgement:
    evolutions = {each.name: Evolution(each, Path("/nowhere")) for each in CONTRACTS}
    evolutions["flat"].columns = evolved
    return Judge(CONTRACTS, evolutions, learning)(records_of(records))


def places(found: Judgement) -> dict[int, tuple[str, dict[str, Any]]]:
    """Where each record is, by its offset, with its row."""
    every: dict[int, tuple[str, dict[str, Any]]] = {}
    for parts, place in ((found.quarantine, "quarantine"), (found.late, "late")):
        for row in (row for part in parts for row in part.to_pylist()):
            assert every.setdefault(row["offset"], (place, row)) == (place, row)
    for name, rows in found.silver.items():
        for row in rows.to_pylist():
            assert every.setdefault(row["_offset"], ("silver", row)) == ("silver", row)
            row["contract"] = name
    return every


def agree(records: list[Record], *evolved: EvolvedColumn) -> list[Verdict]:
    """Compare the quick way with the definition, record by record."""
    expected = [verdict(CONTRACTS, each) for each in records]
    found = places(judged(records, *evolved))
    assert sorted(found) == list(range(len(records)))
    for number, (one, want) in enumerate(zip(records, expected, strict=True)):
        place, row = found[number]
        told = (one.value[:300], want, row)
        assert (place, row["contract"]) == (want.place, want.contract), told
        if place == "quarantine":
            assert (row["rule"], row["reason"]) == (want.rule, want.reason), told
        if place == "silver":
            assert {name: _plain(row[name]) for name in want.row} == _plain(want.row), told
            assert row["_event_time"] == want.event_time, told
    return expected


def _plain(value: Any) -> Any:
    """Rows that can be compared."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return round(value.timestamp() * 1e6)
    return value


def given(**fields: Any) -> bytes:
    return json.dumps({"id": 1, **fields}).encode()


#: What a value is, and the rule it breaks; None if it fits.
EXAMPLES: list[tuple[bytes, str | None]] = [
    (given(), None),
    (given(id=-0), None),
    (given(shop="north-1", price=12, paid=True, day="2024-02-29", cost=12.5, color="red"), None),
    (b' {"id" : 1 } \n', None),
    (given(price=0.1, cost="12.50"), None),
    (b'{"id":1,"cost":100.0,"price":1e3}', None),
    (given(at="2026-03-01T12:00:00.123456789+01:00"), None),
    (given(at="2026-03-01 11:59:00Z"), None),
    (given(at="2026-03-01T12:00:00"), None),
    (given(seen=1772366400123), None),
    (b'{"id":1,"seen":1772366400123.5}', None),
    (given(tags=["a", None], grid=[[1, 2], []], place={"lat": 1, "more": [1]}), None),
    (given(lines=[{"sku": "a", "count": 2}, {"sku": "b"}]), None),
    (given(new=1, other={"deep": [1]}), None),
    (given(**{"odd name-1": "abc"}), None),
    (json.dumps({"id": 1, "tags": ["[" * 100]}).encode(), None),
    # not to be read
    (b"", "json"),
    (b"hello", "json"),
    (b"\xff\xfe", "utf8"),
    (b'{"id":1,"shop":"\xed\xa0\x80"}', "utf8"),
    (b'{"id":1,"shop":"\\ud800"}', "json"),
    (b'{"id":1,"x":["\\ud800"]}', "json"),
    (b"\xef\xbb\xbf{}", "json"),
    (b'{"id":1}{"id":2}', "json"),
    (b'{"id":1},{"id":2}', "json"),
    (b'{"id":1}],[', "json"),
    (b'{"id":1} x', "json"),
    (b'{"id":1,"id":2}', "json"),
    (b'{"id":NaN}', "json"),
    (b'{"id":Infinity}', "json"),
    (b'{"id":01}', "json"),
    (b'{"id":1.}', "json"),
    (b"{'id':1}", "json"),
    (b'{"id":' + b"9" * 2000 + b"}", "json"),
    (b"[" * 30000, "json"),
    (b"[" * 64 + b"]" * 64, "object"),
    (b"[" * 65 + b"]" * 65, "json"),
    (b'{"a":' * 1000 + b"1" + b"}" * 1000, "json"),
    (b'{"id":1,"x":' + b"[" * 63 + b"]" * 63 + b"}", None),
    (b'{"id":1,"x":[' + b"{}," * 200 + b"{}]}", None),
    (b'{"id":1,"x":"' + b"a" * 65536 + b'"}', "size"),
    (b"[1]", "object"),
    (b"null", "object"),
    (b"12", "object"),
    (b'"text"', "object"),
    # fields
    (b"{}", "required"),
    (b'{"id":null}', "required"),
    (b'{"id":"12"}', "type"),
    (b'{"id":12.0}', "type"),
    (b'{"id":1e1}', "type"),
    (b'{"id":true}', "type"),
    (b'{"id":9223372036854775808}', "type"),
    (b'{"id":{"a":[{"b":1}]}}', "type"),
    (given(shop=12), "type"),
    (given(price="12"), "type"),
    (given(price=True), "type"),
    (b'{"id":1,"price":1e999}', "type"),
    (given(paid="true"), "type"),
    (given(paid=1), "type"),
    (given(at="yesterday"), "type"),
    (given(at="2026-02-30T12:00:00Z"), "type"),
    (given(at="2026-03-01T25:00:00Z"), "type"),
    (given(at="2026"), "type"),
    (given(at=1772366400), "type"),
    (given(at="0001-01-01T00:00:00+05:00"), "type"),
    (given(seen="2026-03-01T12:00:00Z"), "type"),
    (given(seen=10**17), "type"),
    (given(day="2026-02-30"), "type"),
    (given(day="2026-2-3"), "type"),
    (given(day="2026-02-03\n"), "type"),
    (given(at="2026-03-01T12:00Z"), "type"),
    (given(cost="1."), "type"),
    (given(cost=1.234), "type"),
    (given(cost="abc"), "type"),
    (given(cost=12345), "type"),
    (b'{"id":1,"cost":1e2}', "type"),
    (given(tags="a"), "type"),
    (given(tags=["a", 1]), "type"),
    (given(grid=[[1], [1.5]]), "type"),
    (given(grid=[1]), "type"),
    (given(place=[]), "type"),
    (given(place={}), "required"),
    (given(place={"lat": None}), "required"),
    (given(place={"lat": "1"}), "type"),
    (given(place={"lat": 91}), "range"),
    (given(lines=[{"sku": "a"}, {"count": 1}]), "required"),
    (given(lines=[{"sku": "a", "count": 0}]), "range"),
    (given(lines=[None, {"sku": "a", "z": {"deep": [1]}}]), None),
    (b'{"id":1,"place":{"lat":1,"lat":2}}', "json"),
    (b'{"id":1,"place":{"lat":NaN}}', "json"),
    (b'{"id":1,"grid":[[1,01]]}', "json"),
    (b'{"id":1,"tags":["\\ud800"]}', "json"),
    (given(id=-1), "range"),
    (given(id=1000001), "range"),
    (given(price=-6), "range"),
    (given(day="2019-12-31"), "range"),
    (given(cost=9999.51), "range"),
    (given(shop="x"), "length"),
    (given(tags=["a"] * 4), "length"),
    (given(**{"odd name-1": "abcdef"}), "length"),
    (given(shop="North"), "pattern"),
    (given(shop="north\n"), "pattern"),
    (given(shop="north-\u0661"), "pattern"),
    (given(shop="x" * 5000 + "-"), "pattern"),
    (given(shop="x" * 5000 + "-1"), None),
    (given(color="pink"), "one_of"),
    (given(at="2026-03-01T12:05:01Z"), "future"),
]


@pytest.mark.parametrize("topic", ["all/x", "flat/x"])
def test_every_rule_and_every_poison(topic: str) -> None:
    nested = {b'"tags"', b'"grid"', b'"place"', b'"lines"', b'"costs"'}
    examples = [
        (value, rule)
        for value, rule in EXAMPLES
        if topic == "all/x" or rule is None or not any(name in value for name in nested)
    ]
    records = [record(value, topic) for value, _ in examples]
    for (value, rule), found in zip(examples, agree(records), strict=True):
        assert found.rule == rule, (value[:200], found)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_one_odd_record_among_many_others(number: int) -> None:
    """Whatever it is, it does not change what becomes of its neighbours."""
    value, _ = EXAMPLES[number]
    good = [record(b'{"id":%d,"shop":"north"}' % each, "flat/x") for each in range(100)]
    found = agree([*good[:50], record(value, "flat/x"), *good[50:]])
    assert sum(each.place == "silver" for each in found) >= 100


def test_late_and_future_are_decided_by_arrival() -> None:
    seconds = {-601: "late", -600: "silver", 0: "silver", 300: "silver", 301: "quarantine"}
    times = [(ARRIVAL + timedelta(seconds=each)).isoformat() for each in seconds]
    for topic in ("all/x", "flat/x"):
        found = agree([record(given(at=each), topic) for each in times])
        assert [each.place for each in found] == list(seconds.values())


def test_undeclared_fields() -> None:
    cases = [
        ("frozen", b'{"a":1}', None),
        ("frozen", b'{"a":1,"b":2}', "unknown"),
        ("frozen", b'{"s":{"x":1,"y":null}}', "unknown"),
        ("rows", b'{"b":2}', "discard_row"),
        ("values", b'{"a":1,"b":2}', None),
        ("values", b'{"a":1,"b":NaN}', "json"),
        ("values", b'{"a":1,"b":[1,{"c":2,"c":3}]}', "json"),
        ("values", b'{"a":1,"b":2,"b":3}', "json"),
        ("all/x", b'{"id":1,"b":2}', None),
        ("elsewhere", b'{"a":1}', "contract"),
    ]
    records = [record(value, topic) for topic, value, _ in cases]
    assert [each.rule for each in agree(records)] == [rule for *_, rule in cases]
    assert judged(records, learning=True).new_fields == {"everything": {("b", "long")}}
    found = judged(records)
    assert found.silver["everything"].column("_rest").to_pylist() == [[("b", "2")]]
    assert found.silver["values"].column_names[0] == "a"


def test_fields_that_became_columns_are_read_like_declared_ones() -> None:
    evolved = (
        EvolvedColumn("n", "n", "long"),
        EvolvedColumn("x", "x", "double"),
        EvolvedColumn("b", "b", "boolean"),
        EvolvedColumn("s", "s", "string"),
    )
    values = [
        b'{"id":1,"n":7,"x":1.5,"b":true,"s":"t"}',
        b'{"id":2,"n":null,"x":3}',
        b'{"id":3,"n":1.5,"x":"no","b":0,"s":2.50}',
        b'{"id":4,"s":{"deep":[1.0,null]}}',
        b'{"id":5,"other":[1.50]}',
    ]
    records = [record(each, "flat/x") for each in values]
    found = judged(records, *evolved)
    rows = found.silver["flat"].select(["n", "x", "b", "s", "_rest"]).to_pylist()
    assert [tuple(each.values()) for each in rows] == [
        (7, 1.5, True, "t", None),
        (None, 3.0, None, None, None),
        (None, None, None, "2.50", [("n", "1.5"), ("x", '"no"'), ("b", "0")]),
        (None, None, None, '{"deep":[1.0,null]}', None),
        (None, None, None, None, [("other", "[1.50]")]),
    ]
    assert judged(records, *evolved, learning=True).new_fields == {"flat": {("other", "string")}}


def test_most_records_are_read_the_quick_way() -> None:
    """Otherwise all the rest would be right as well, but slow."""
    everything, *_, flat = CONTRACTS
    values = {
        "shop": "north",
        "price": 1.5,
        "paid": True,
        "at": "2026-03-01T12:00:00Z",
        "cost": 12.5,
        "color": "red",
    }
    nested = {
        "tags": ["a", None],
        "grid": [[1, 2], None, []],
        "place": {"lat": 1.5},
        "lines": [{"sku": "a", "count": 1}, None],
    }
    for which, value in ((flat, given(**values)), (everything, given(**values, **nested))):
        column = pa.array([value] * 100, pa.binary())
        assert Fits(which, ()).possible
        assert Fits(which, ()).candidates(column).true_count == 100
        assert Fits(which, ()).read(column)[1].true_count == 100


def test_long_records_are_read_the_quick_way_too() -> None:
    values = [given(shop="north" * 1000)] * 5000  # more than one chunk
    assert Fits(CONTRACTS[-1], ()).candidates(pa.array(values, pa.binary())).true_count == 5000
    assert len(judged([record(each, "flat/x") for each in values]).silver["flat"]) == 5000


@pytest.mark.parametrize(
    "number", [b"1" * 1000, b"1" * 1001, b"1." + b"0" * 999, b"1e" + b"0" * 999]
)
def test_a_number_may_have_a_thousand_digits(number: bytes) -> None:
    (found,) = agree([record(b'{"a":1,"b":%s}' % number, "values")])
    assert found.place == ("silver" if len(number) == 1000 else "quarantine")


def test_no_text_takes_a_pattern_long() -> None:
    """Python's own would not come to an end with this one."""
    slow = contract("topics: [slow]\nfields: {a: {type: string, pattern: '(a+)+b'}}", "slow")
    value = json.dumps({"a": "a" * 100_000}).encode()
    found = verdict_of(slow, record(value, "slow"))
    assert (found.place, found.rule) == ("quarantine", "pattern")
    assert Fits(slow, ()).read(pa.array([value], pa.binary()))[1].to_pylist() == [False]


def test_a_reason_names_field_value_and_expectation() -> None:
    def reason(value: bytes) -> str:
        (row,) = judged([record(value)]).quarantine[0].to_pylist()
        found: str = row["reason"]
        return found

    assert reason(given(shop=12345)) == "shop is 12345; it has to be a text"
    assert reason(given(price=-6.5)) == "price is -6.5; it has to be from -5.5 to 1000000000.0"
    nested = reason(given(lines=[{"sku": "a", "count": 0}]))
    assert nested == "lines[0].count is 0; it has to be at least 1"
    assert len(reason(given(shop="A" * 5000))) < 200


def _values(name: str) -> st.SearchStrategy[Any]:
    likely: dict[str, list[Any]] = {
        "shop": ["north", "south-2", "a", "Ünder"],
        "price": [1, 2.5, -5.5, 1e9, 1e10, 0.1, 123456789.123456789],
        "at": [
            "2026-03-01T12:00:00Z",
            "2026-03-01T11:00:00-01:00",
            "2020-01-01T00:00:00Z",
            "2026-03-01 12:00:00.5",
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-17:59",
            "2026-03-01T12:00:60Z",
            "2026-03-01T24:00:00Z",
            "2026-03-01T12:00:00.1234567Z",
        ],
        "seen": [1772366400000, 0, -1, 1.5, 10**15, 2**63 - 1],
        "day": ["2024-02-29", "2023-02-29", "9999-12-31", "0000-01-01", "0001-01-01"],
        "cost": [1, 1.25, "9.99", 9999.5, -0.01, "00012.500", "1.", ".5", 1e2, "+1", "1e2", 1e-7],
        "color": ["red", "blue", "Red"],
        "tags": [[], ["a"], ["a", "b", "c", "d"], [None], {"a": 1}],
        "grid": [[], [[1]], [[1, None]], [None], [[1.5]], [["1"]]],
        "place": [
            {"lat": 1.5},
            {"lat": 100},
            {"name": 1},
            {"lat": 0, "name": "x", "code": "AB"},
            {"lat": 0, "code": "ABCD"},
            {"lat": 0, "code": "a"},
            [],
        ],
        "costs": [[1, 1.25], ["9.99"], [], [None], ["1e2"], [1, 1e2], ["+1"], [0, ".5"], [12345]],
        "moments": [[], ["2026-03-01T12:00:00Z", None], ["0000-01-01T00:00:00Z"], ["x"], [1]],
        "stamps": [[0, None], [1.5], [2**63 - 1], ["2026-03-01T12:00:00Z"]],
        "lines": [[{"sku": "a"}], [{"sku": 1}], [{}], [None], [{"sku": "a", "count": 1, "z": 1}]],
    }
    anything: st.SearchStrategy[Any] = st.one_of(
        st.sampled_from([None, True, 0, 1, -7, 1.5, 2**63, 2**70, 10**40, "", "12", [], {}, [1]]),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
    )
    known = likely.get(name)
    if name == "new":  # long records are read in another way
        known = ["x" * 1000, "1" * 1000, 10**99, 10**1200]
    return anything if known is None else st.one_of(st.sampled_from(known), anything)


_NAMES = [*(each.name for each in CONTRACTS[0].fields), "new", "ID"]


@st.composite
def _documents(draw: st.DrawFn) -> bytes:
    """JSON that mostly fits, now and then with one byte more, less or other."""
    names = draw(st.lists(st.sampled_from(_NAMES), max_size=3, unique=True))
    fields = {"id": draw(st.integers(0, 1000)), **{name: draw(_values(name)) for name in names}}
    text = json.dumps(fields, ensure_ascii=draw(st.booleans()))
    value = text.encode(errors="surrogatepass")
    if draw(st.integers(0, 3)):
        return value
    place = draw(st.integers(0, len(value)))
    new = draw(st.sampled_from([b"", *(bytes([each]) for each in b'{}[]",:\\\x00\xff0e.-+x \n')]))
    return value[:place] + new + value[place + draw(st.integers(0, 1)) :]


@pytest.mark.property
@settings(max_examples=150, deadline=None)
@drawn(st.lists(st.tuples(st.sampled_from(["all/x", "flat/x"]), _documents()), max_size=40))
def test_the_quick_way_agrees_with_the_definition(documents: list[tuple[str, bytes]]) -> None:
    agree([record(value, topic) for topic, value in documents])


def test_keys_are_those_of_records_that_fit() -> None:
    (everything, *_) = CONTRACTS
    assert key_of(everything, given(shop="north")) == (1, "north")
    assert key_of(everything, given()) is None
    assert key_of(everything, b"{") is None
