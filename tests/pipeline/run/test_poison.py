"""Records that are broken in every way do not stop a pipeline: a whole new project, as it is."""

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.e2e.process import BrokerProcess
from tests.flight.client import Client, rows
from tests.pipeline.test_commands import headwater

pytestmark = pytest.mark.spark_process

LARGEST = 16 * 1024 * 1024
DEEP = 100_000
TOPIC = "shop/orders/web"
#: As large as the broker takes them, and as deep as they may be.
LARGE = """
topics: large/.*
max_bytes: 16MiB
unknown: discard_value
fields:
  id: {type: string, required: true}
"""


def order(**changes: Any) -> bytes:
    """An order that the project's own contract takes, but for the changes."""
    made = {"order_id": "o", "placed_at": datetime.now(UTC).isoformat(), "amount": 1, **changes}
    return json.dumps(made).encode()


def written(field: str, value: bytes) -> bytes:
    """An order with a value that is written as it is, whether that is JSON or not."""
    return order(**{field: "HERE"}).replace(b'"HERE"', value)


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def padded(size: int) -> bytes:
    """JSON of so many bytes."""
    empty = b'{"id": "x", "more": ""}'
    return empty.replace(b'""', b'"%s"' % (b"x" * (size - len(empty))))


#: What each of them breaks; "silver" is for those that only look dangerous.
POISON: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"no JSON", "json"),
    "half of it": (order()[:-1], "json"),
    "two of them": (order() + order(), "json"),
    "empty": (b"", "json"),
    "only NUL": (bytes(1000), "json"),
    "NUL in a text": (written("order_id", b'"a\x00b"'), "json"),
    "NUL, escaped": (order(order_id="a\x00b"), "silver"),
    "a key twice": (b'{"order_id": "a", "order_id": "b"}', "json"),
    "a key twice, inside": (written("more", b'{"a": 1, "a": 2}'), "json"),
    "lone surrogate": (written("order_id", b'"\\ud800"'), "json"),
    "lone surrogate in a name": (b'{"\\udfff": 1}', "json"),
    "surrogate as bytes": (written("order_id", b'"\xed\xa0\x80"'), "utf8"),
    "invalid UTF-8": (written("order_id", b'"\xff"'), "utf8"),
    "UTF-16": (order().decode().encode("utf-16"), "utf8"),
    "random bytes": (random.Random(1).randbytes(100_000), "utf8"),
    "deep arrays": (b"[" * DEEP + b"]" * DEEP, "json"),
    "deep objects": (nested(DEEP), "json"),
    "deep in a field": (written("more", nested(DEEP)), "json"),
    "deep without an end": (b"[" * DEEP, "json"),
    "a number without an end": (written("amount", b"1" * 100_000), "json"),
    "a large exponent": (written("amount", b"1e999999999"), "type"),
    "a small exponent": (written("amount", b"1e-999999999"), "type"),
    "a number that is none": (written("amount", b"NaN"), "json"),
    "too many digits": (written("amount", b"123456789012345678901234567890"), "type"),
    "a flag": (order(amount=True), "type"),
    "an object": (order(order_id={"a": 1}), "type"),
    "no time": (order(placed_at="yesterday"), "type"),
    "a time out of all bounds": (order(placed_at="99999-01-01T00:00:00Z"), "type"),
    "next century": (order(placed_at="2199-01-01T00:00:00Z"), "future"),
    "null": (order(amount=None), "required"),
    "an array": (b"[]", "object"),
    "a text": (b'"a"', "object"),
    "nothing": (b"null", "object"),
    "a long text": (order(order_id="x" * 100_000), "length"),
    "a text that costs patterns time": (order(currency="A" * 1000), "pattern"),
    "more than the contract takes": (padded(LARGEST), "size"),
    "bytes, as many as there may be": (random.Random(2).randbytes(LARGEST), "size"),
    "strange names": (
        order(**{"": 1, "a b": 2, "`c`": 3, "_offset": 4, "DATE": 5, "Order_ID": 6, "ü": 7}),
        "silver",
    ),
    "very many fields": (order(order_id="m", **{f"f{n}": n for n in range(5000)}), "silver"),
    "a field of another kind each time": (order(order_id="p", note=[1]), "silver"),
    "and another": (order(order_id="q", note={"a": None}), "silver"),
}


class Source:
    """A broker that has all of them."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.servers = f"127.0.0.1:{broker.ports['flight']}"
        self._client = Client(broker.ports["flight"])
        self.sent: list[tuple[str, bytes]] = []

    def append(self, topic: str, value: bytes) -> int:
        number = len(self.sent)
        self._client.put(rows((topic, value)), do="append", producer="poison", sequence=number)
        self.sent.append((topic, value))
        return number


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield Source(broker)


def table(project: Path, name: str, *columns: str) -> list[dict[str, Any]]:
    found = DeltaTable(str(project / "storage" / "tables" / name))
    rows: list[dict[str, Any]] = found.to_pyarrow_table(columns=list(columns) or None).to_pylist()
    return rows


@pytest.mark.timeout(1200)
def test_nothing_stops_a_pipeline(tmp_path: Path, source: Source) -> None:
    expected = {source.append(TOPIC, value): rule for value, rule in POISON.values()}
    names = dict(enumerate(POISON))
    large = source.append("large/a", padded(LARGEST))
    for _ in range(3):  # and it goes on behind them
        expected[source.append(TOPIC, order(order_id=str(len(source.sent))))] = "silver"
    assert headwater("init", "mine", cwd=tmp_path).returncode == 0
    project = tmp_path / "mine"
    (project / "contracts" / "large.yml").write_text(LARGE)
    example = project / "contracts" / "example.yml"  # other tests may have taken long
    example.write_text(example.read_text().replace("lateness: 10m", "lateness: 1d"))
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "headwater",
            "pipeline",
            "run",
            "--once",
            "--servers",
            source.servers,
        ],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr
    state = json.loads(ran.stdout.splitlines()[-1])
    assert {each["name"]: each["error"] for each in state["tables"] if each["error"]} == {}
    assert {each["state"] for each in state["tables"]} == {"done"}

    bronze = {row["offset"]: (row["topic"], row["value"]) for row in table(project, "bronze")}
    assert all(bronze[number] == each for number, each in enumerate(source.sent))
    places = {row["_offset"]: "silver" for row in table(project, "silver_orders", "_offset")}
    for row in table(project, "quarantine"):
        assert row["reason"] and row["value"] == source.sent[row["offset"]][1]
        assert row["offset"] not in places
        places[row["offset"]] = row["rule"]
    wrong = {
        names.get(offset, offset): (places.get(offset), rule)
        for offset, rule in expected.items()
        if places.get(offset) != rule
    }
    assert wrong == {}
    assert [row["_offset"] for row in table(project, "silver_large", "_offset")] == [large]
    audited = headwater("audit", "--servers", source.servers, cwd=project)
    assert audited.stdout.splitlines()[-1] == "gaps 0, duplicates 0", audited.stdout
