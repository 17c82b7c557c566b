"""Silver, quarantine and late as a stream fills them: repeats, restarts, new columns."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from headwater.pipeline.contracts.reading import parse
from headwater.pipeline.contracts.source import LATE, PARTITION_COLUMNS, QUARANTINE
from headwater.pipeline.contracts.tables import ContractFiles
from headwater.pipeline.tables.delta import Table
from tests.pipeline.conftest import Stand

pytestmark = pytest.mark.timeout(300)

ORDERS = """
topics: orders/.*
key: [id]
event_time: at
fields:
  id: {type: long, required: true}
  price: {type: double, min: 0}
  at: timestamp
"""
CHAT = "topics: [chat]\nunknown: discard_value\nfields: {text: string}"


class Lake:
    """The tables of contracts, filled from a broker as a runner does it."""

    def __init__(self, stand: Stand, directory: Path, *contracts: str) -> None:
        self.stand, self.directory = stand, directory
        names = ("orders", "chat")
        self.contracts = [
            parse(text, Path(f"{name}.yml")) for name, text in zip(names, contracts, strict=False)
        ]
        self.fail_after: str | None = None
        stand.spark.conf.set("headwater.servers", stand.servers)
        self.restart()

    def restart(self) -> None:
        """Forget everything that is not on disk."""
        self.files = ContractFiles(self.contracts, self.directory / "state" / "contracts")

    def table(self, name: str) -> Table:
        return Table(self.directory / "tables" / name)

    def run(self) -> None:
        """Take what there is, and stop."""
        stream = self.files.stream(self.directory / "tables")
        place = str(self.directory / "checkpoint")
        writer: Any = stream.writeStream.option("checkpointLocation", place)
        query = writer.foreachBatch(self._write).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(90)
        finally:
            query.stop()

    def _write(self, batch: DataFrame, number: int) -> None:
        with self.files.collect(batch) as additions:
            for name, addition in additions.items():
                self.table(name).append_files(addition, "test", number, PARTITION_COLUMNS)
                if name == self.fail_after:
                    self.fail_after = None
                    raise RuntimeError("killed")

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        if not self.table(name).exists:
            return []
        table = self.table(name).dataset().to_table(list(columns))
        found = [tuple(each.values()) for each in table.to_pylist()]
        return sorted(found, key=repr)


def order(number: int, **more: Any) -> bytes:
    return json.dumps({"id": number, **more}).encode()


@pytest.mark.smoke
def test_each_record_is_in_one_table(stand: Stand, tmp_path: Path) -> None:
    lake = Lake(stand, tmp_path / "lake", ORDERS, CHAT)
    stand.append("orders/a", order(1, price=2.5), b"{", order(2, price=-1))
    stand.append("chat", b'{"text":"hello","mood":"good"}', b'{"text":1}')
    stand.append("other", b"no contract is for this")
    stand.append("orders/a", order(3, at="2020-01-01T00:00:00Z"))
    lake.run()
    assert lake.rows("silver_orders", "id", "price", "_topic") == [(1, 2.5, "orders/a")]
    assert lake.rows("silver_chat", "text") == [("hello",)]
    assert "mood" not in lake.table("silver_chat").arrow_schema.names
    broken = lake.rows(QUARANTINE, "contract", "rule", "value")
    assert [each[:2] for each in broken] == [
        ("chat", "type"),
        ("orders", "json"),
        ("orders", "range"),
    ]
    assert broken[1][2] == b"{"
    ((contract, behind),) = lake.rows(LATE, "contract", "late_by_seconds")
    assert contract == "orders" and behind > 1e8
    columns = lake.table(QUARANTINE).arrow_schema.names
    assert columns[:7] == [
        "offset",
        "topic",
        "value",
        "timestamp",
        "protocol",
        "publisher",
        "headers",
    ]


@pytest.mark.smoke
def test_repeats_are_left_out_across_batches_and_restarts(stand: Stand, tmp_path: Path) -> None:
    lake = Lake(stand, tmp_path / "lake", ORDERS, CHAT)
    stand.append("orders/a", order(1), order(1), b"{", b"{")
    stand.append("chat", b'{"text":"x"}', b'{"text":"x"}')  # without a key nothing is a repeat
    lake.run()
    lake.restart()
    stand.append("orders/a", order(2), order(1), b"{")
    lake.run()
    assert lake.rows("silver_orders", "id") == [(1,), (2,)]
    assert lake.rows("silver_chat", "text") == [("x",), ("x",)]
    assert len(lake.rows(QUARANTINE, "offset")) == 3


def test_new_fields_become_columns_and_a_repeated_batch_is_the_same(
    stand: Stand, tmp_path: Path
) -> None:
    lake = Lake(stand, tmp_path / "lake", ORDERS)
    stand.append("orders/a", order(1, size=1), order(2, size=2, tag="x", **{"odd name": True}))
    stand.append("orders/a", order(3, size=1.5, deep={"a": [1]}, _offset=9, none=None))
    lake.fail_after = "silver_orders"
    with pytest.raises(Exception, match="killed"):
        lake.run()
    lake.restart()
    lake.run()
    names = ("id", "size", "tag", "odd_name", "deep", "_rest")
    assert lake.rows("silver_orders", *names) == [
        (1, 1.0, None, None, None, None),
        (2, 2.0, "x", True, None, None),
        (3, 1.5, None, None, '{"a":[1]}', [("_offset", "9")]),
    ]
    stand.append("orders/a", order(4, size="large", later=7))
    lake.restart()
    lake.run()
    last = lake.rows("silver_orders", "id", "size", "later", "_rest")[-1]
    assert last == (4, None, 7, [("size", '"large"')])
    noted = json.loads((tmp_path / "lake/state/contracts/orders.json").read_text())
    assert {each["column"]: each["kind"] for each in noted["columns"]} == {
        "size": "double",
        "tag": "string",
        "odd_name": "boolean",
        "deep": "string",
        "later": "long",
    }


def test_poison_does_not_stop_the_stream(stand: Stand, tmp_path: Path) -> None:
    lake = Lake(stand, tmp_path / "lake", ORDERS)
    deep = b'{"id":' * 100_000
    stand.append("orders/a", b"", b"\xff", deep, b'{"id":"' + b"x" * (15 << 20) + b'"}')
    stand.append("orders/a", order(1))
    lake.run()
    assert lake.rows("silver_orders", "id") == [(1,)]
    assert [rule for (rule,) in lake.rows(QUARANTINE, "rule")] == ["json", "json", "size", "utf8"]
