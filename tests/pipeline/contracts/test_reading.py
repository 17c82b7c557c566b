"""Contracts from YAML: what is taken, and how each mistake is told."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from headwater.errors import ConfigError
from headwater.pipeline.contracts import contract_of, load
from headwater.pipeline.contracts.model import CONTRACT, FIELD, Unknown
from headwater.pipeline.contracts.reading import parse

FULL = """\
name: orders
version: 3
topics: shop/(orders|returns)/.*
format: json
doc: what was bought
key: [id]
event_time: at
lateness: 1h
future: 30s
dedupe_window: 2m
unknown: freeze
max_bytes: 4KiB
fields:
  id: {type: long, required: true, min: 1, doc: its number}
  at: {type: timestamp, unit: ms, min: 2020-01-01T00:00:00Z}
  day: {type: date, max: 2030-12-31}
  sum: {type: "decimal(8,2)", min: 0.01, max: 1000}
  kind: {type: string, one_of: ["on", "off"], max_length: 3}
  code: {type: string, pattern: '[A-Z]{2}\\d+', min_length: 3}
  date: {type: string, column: written_date}
  lines: {type: array<struct>, fields: {sku: string}}
"""


def read(text: str) -> None:
    parse(text, Path("orders.yml"))


def test_everything_that_a_contract_can_say() -> None:
    found = parse(FULL, Path("elsewhere.yml"))
    assert (found.name, found.version, found.key, found.event_time) == ("orders", 3, ("id",), "at")
    assert (found.lateness, found.future, found.dedupe_window) == (3600, 30, 120)
    assert (found.unknown, found.max_bytes) == (Unknown.FREEZE, 4096)
    assert found.topics.matches("shop/orders/1") and not found.topics.matches("a/shop/orders/1")
    assert found.field("at").minimum == datetime(2020, 1, 1, tzinfo=UTC)
    assert found.field("day").maximum == date(2030, 12, 31)
    assert found.field("sum").minimum == Decimal("0.01")
    assert found.field("kind").one_of == ("on", "off")
    assert found.field("date").column == "written_date"
    assert found.field("lines").fields[0].name == "sku"
    # Every key is used above, or in the table of keys for nothing.
    keys = {each.name for each in (*CONTRACT, *FIELD)}
    assert {each for each in keys if f"{each}:" not in FULL} == set()


def test_little_is_enough() -> None:
    found = parse("topics: [a, b]\nfields:\n  id: long", Path("things.yml"))
    assert (found.name, found.version, found.unknown) == ("things", 1, Unknown.EVOLVE)
    assert (found.lateness, found.future, found.dedupe_window) == (600, 300, 600)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "orders.yml is empty"),
        ("a: [", "line 1: this is not YAML"),
        ("- a", "line 1: write keys with values here"),
        ("topics: a", "line 1: the key fields is missing"),
        ("topics: a\nfield: {}", 'line 2: field: there is no such key; did you mean "fields"?'),
        ("topics: a\ntopics: b\nfields: {a: long}", "line 2: topics: this key is there twice"),
        ("topics: '('\nfields: {a: long}", "line 1: topics: bad pattern"),
        ("topics: a\nfields: {}", "line 2: fields: list at least one field"),
        ("topics: a\nfields: {a: int}", "fields.a: there is no type int; write string, long"),
        ("topics: a\nfields: {a: 'decimal(50,2)'}", "there is no type decimal(50,2)"),
        ("topics: a\nfields:\n  a: {required: true}", "line 3: fields.a: the key type is missing"),
        ("topics: a\nfields: {a: {type: long, min: x}}", "fields.a.min: write a whole number"),
        ("topics: a\nfields: {a: {type: string, min: 1}}", "a string has no min and max"),
        ("topics: a\nfields: {a: {type: long, min: 2, max: 1}}", "min is larger than max"),
        ("topics: a\nfields: {a: {type: long, pattern: x}}", "a long has no pattern"),
        ("topics: a\nfields: {a: {type: string, pattern: '('}}", "of RE2: missing ): ("),
        ("topics: a\nfields: {a: {type: string, pattern: 'a)(b'}}", "of RE2: unexpected )"),
        ("topics: a\nfields: {a: {type: string, pattern: '(?=a)'}}", "of RE2: invalid perl op"),
        ("topics: a\nfields: {a: {type: string, one_of: [yes]}}", "a text, in quotes"),
        ("topics: a\nfields: {a: {type: long, unit: s}}", "only a timestamp has a unit"),
        ("topics: a\nfields: {a: {type: struct}}", "a struct needs fields:"),
        ("topics: a\nfields: {a: {type: long, required: 1}}", "write true or false"),
        ("topics: a\nfields: {date: string}", "write column: my_date"),
        ("topics: a\nfields: {a b: long, a-b: long}", "the column a_b is taken by a b"),
        ("topics: a\nkey: [b]\nfields: {a: long}", "line 2: key: there is no field b"),
        ("topics: a\nkey: [a]\nfields: {a: double}", "a is double; a key is one of"),
        ("topics: a\nevent_time: a\nfields: {a: long}", "write type: timestamp there"),
        ("topics: a\nlateness: soon\nfields: {a: long}", "lateness: write a duration"),
        ("topics: a\nunknown: ignore\nfields: {a: long}", "write one of evolve, freeze"),
        ("topics: a\nmax_bytes: 1GiB\nfields: {a: long}", "max_bytes: write a size"),
        ("topics: a\nformat: avro\nfields: {a: long}", "write one of json, not avro"),
        ("topics: a\nname: a-b\nfields: {a: long}", "line 2: name: the name is a-b"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert said in str(caught.value) and str(caught.value).startswith("orders.yml")


def write(directory: Path, **topics: str) -> None:
    for name, pattern in topics.items():
        (directory / f"{name}.yml").write_text(f"topics: {pattern}\nfields: {{a: long}}\n")


@pytest.mark.parametrize(
    ("one", "other"), [("a/.*", "a/.*"), ("[a/b]", "a/.*"), ("[x, y]", "[y, z]")]
)
def test_a_topic_has_one_contract(tmp_path: Path, one: str, other: str) -> None:
    write(tmp_path, first=one, second=other)
    with pytest.raises(ConfigError, match=r"second\.yml: the topic .* is claimed by first\.yml"):
        load(tmp_path)


def test_where_it_cannot_be_seen_the_first_by_name_has_it(tmp_path: Path) -> None:
    write(tmp_path, b="a/.*", a=".*/b")
    found = load(tmp_path)
    assert [contract.name for contract in found] == ["a", "b"]
    chosen = [contract_of(found, topic) for topic in ("a/b", "a/c", "c")]
    assert [None if each is None else each.name for each in chosen] == ["a", "b", None]


def test_no_directory_no_contracts(tmp_path: Path) -> None:
    assert load(tmp_path / "none") == ()
