"""The verdict over records: every rule, every poison, and Spark against the definition."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline.contracts.checks import Record, Verdict, key_of, verdict
from headwater.pipeline.contracts.expressions import classified
from headwater.pipeline.contracts.model import Contract
from headwater.pipeline.contracts.reading import parse

pytestmark = pytest.mark.xdist_group("spark")

ARRIVAL = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

EVERYTHING = """
topics: all/.*
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
  tags: {type: array<string>, max_length: 3}
  grid: {type: array<array<long>>}
  "odd name-1": {type: string, max_length: 5}
  place:
    type: struct
    fields:
      lat: {type: double, required: true, min: -90, max: 90}
      name: string
  lines:
    type: array<struct>
    fields:
      sku: {type: string, required: true}
      count: {type: long, min: 1}
"""
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
)


def record(value: bytes, topic: str = "all/x", offset: int = 0) -> Record:
    return Record(topic, value, ARRIVAL, offset)


def judged(spark: SparkSession, records: list[Record]) -> list[Any]:
    """What Spark says, in one job, in the same order."""
    rows = [
        (n, each.topic, bytearray(each.value), each.timestamp, "bpsp", "bob", {"h": "1"})
        for n, each in enumerate(records)
    ]
    columns = (
        "offset long, topic string, value binary, timestamp timestamp, protocol string, "
        "publisher string, headers map<string,string>"
    )
    frame = spark.createDataFrame(rows, columns)
    return classified(frame, CONTRACTS).orderBy("offset").collect()


def agree(spark: SparkSession, records: list[Record]) -> list[Verdict]:
    """Compare Spark with the definition, record by record."""
    expected = [verdict(CONTRACTS, each) for each in records]
    for one, want, got in zip(records, expected, judged(spark, records), strict=True):
        broken = got["_broken"]
        rule = None if broken is None else broken["rule"]
        reason: str = "" if broken is None else broken["reason"]
        told = (one.value[:300], want, got["_broken"])
        decided = (got["_verdict"], got["contract"], rule)
        assert decided == (want.place, want.contract, want.rule), told
        if want.reason is not None:
            assert reason.split(" is ")[0] == want.reason.split(" is ")[0], told
        if want.place == "silver" and want.contract == "everything":
            assert _plain(got["_row0"].asDict(recursive=True)) == _plain(want.row), told
            assert got["_key"].startswith("@") == (want.key is None), told
    return expected


def _plain(value: Any) -> Any:
    """Rows that can be compared: Spark gives times in local time, without saying so."""
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
    (given(id=-1), "range"),
    (given(id=1000001), "range"),
    (given(price=-6), "range"),
    (given(day="2019-12-31"), "range"),
    (given(cost=9999.51), "range"),
    (given(shop="x"), "length"),
    (given(shop="x" * 1025), "length"),
    (given(tags=["a"] * 4), "length"),
    (given(**{"odd name-1": "abcdef"}), "length"),
    (given(shop="North"), "pattern"),
    (given(shop="north\n"), "pattern"),
    (given(shop="north-\u0661"), "pattern"),
    (given(color="pink"), "one_of"),
    (given(at="2026-03-01T12:05:01Z"), "future"),
]


def test_every_rule_and_every_poison(spark: SparkSession) -> None:
    records = [record(value) for value, _ in EXAMPLES]
    for (value, rule), found in zip(EXAMPLES, agree(spark, records), strict=True):
        assert found.rule == rule, (value[:200], found)


def test_late_and_future_are_decided_by_arrival(spark: SparkSession) -> None:
    seconds = {-601: "late", -600: "silver", 0: "silver", 300: "silver", 301: "quarantine"}
    times = [(ARRIVAL + timedelta(seconds=each)).isoformat() for each in seconds]
    found = agree(spark, [record(given(at=each)) for each in times])
    assert [each.place for each in found] == list(seconds.values())


def test_undeclared_fields(spark: SparkSession) -> None:
    cases = [
        ("frozen", b'{"a":1}', None),
        ("frozen", b'{"a":1,"b":2}', "unknown"),
        ("frozen", b'{"s":{"x":1,"y":null}}', "unknown"),
        ("rows", b'{"b":2}', "discard_row"),
        ("values", b'{"a":1,"b":2}', None),
        ("all/x", b'{"id":1,"b":2}', None),
        ("elsewhere", b'{"a":1}', "contract"),
    ]
    records = [record(value, topic) for topic, value, _ in cases]
    assert [each.rule for each in agree(spark, records)] == [rule for *_, rule in cases]
    *_, evolved, _ = judged(spark, records)
    assert evolved["_extra"] == {"b": "2"}


def test_a_reason_names_field_value_and_expectation(spark: SparkSession) -> None:
    (got,) = judged(spark, [record(given(shop=12345))])
    assert got["_broken"]["reason"] == "shop is 12345; it has to be a text"
    (got,) = judged(spark, [record(given(lines=[{"sku": "a", "count": 0}]))])
    assert got["_broken"]["reason"] == "lines[0].count is 0; it has to be at least 1"
    (got,) = judged(spark, [record(given(shop="a" * 5000))])
    assert len(got["_broken"]["reason"]) < 200


def test_spark_agrees_with_the_definition_on_many_records(spark: SparkSession) -> None:
    chance = random.Random(5)
    records = [record(_any_record(chance)) for _ in range(3000)]
    records += [record(_damaged(chance, _any_record(chance))) for _ in range(1500)]
    found = agree(spark, records)
    assert {each.place for each in found} == {"silver", "quarantine", "late"}
    assert len({each.rule for each in found}) > 8


def _any_record(chance: random.Random) -> bytes:
    names = [each.name for each in CONTRACTS[0].fields] + ["new", "ID"]
    fields = {name: _any_value(chance, name) for name in chance.sample(names, chance.randint(0, 5))}
    if chance.random() < 0.9:
        fields["id"] = chance.randint(0, 1000)
    return json.dumps(fields, ensure_ascii=chance.random() < 0.5).encode()


def _any_value(chance: random.Random, name: str) -> Any:
    likely: dict[str, list[Any]] = {
        "shop": ["north", "south-2", "a", "Ünder"],
        "price": [1, 2.5, -5.5, 1e9, 1e10, 0.1, 123456789.123456789],
        "at": ["2026-03-01T12:00:00Z", "2026-03-01T11:00:00-01:00", "2020-01-01T00:00:00Z"],
        "seen": [1772366400000, 0, -1, 1.5, 10**15],
        "day": ["2024-02-29", "2023-02-29", "9999-12-31"],
        "cost": [1, 1.25, "9.99", 9999.5, -0.01, "00012.500", "1.", ".5", 1e2],
        "color": ["red", "blue", "Red"],
        "tags": [[], ["a"], ["a", "b", "c", "d"], [None], {"a": 1}],
        "grid": [[], [[1]], [[1, None]], [None], [[1.5]], [["1"]]],
        "place": [{"lat": 1.5}, {"lat": 100}, {"name": 1}, {"lat": 0, "name": "x"}, []],
        "lines": [[{"sku": "a"}], [{"sku": 1}], [{}], [None], [{"sku": "a", "count": 1, "z": 1}]],
    }
    anything: list[Any] = [
        None,
        True,
        0,
        1,
        -7,
        1.5,
        2**63,
        2**70,
        10**40,
        "",
        "x",
        "12",
        [],
        {},
        [1],
    ]
    return chance.choice(likely.get(name, []) * 3 + anything)


def _damaged(chance: random.Random, value: bytes) -> bytes:
    """With one byte more, less or other."""
    place = chance.randrange(len(value) + 1)
    new = bytes([chance.choice(b'{}[]",:\\\x00\xff0e.-x ')])
    return value[:place] + chance.choice([b"", new]) + value[place + chance.choice([0, 1]) :]


def test_keys_are_those_of_records_that_fit() -> None:
    (everything, *_) = CONTRACTS
    assert key_of(everything, given(shop="north")) == (1, "north")
    assert key_of(everything, given()) is None
    assert key_of(everything, b"{") is None
