"""Task files from the log to a Delta commit, without Spark's Java: write, collect, commit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from headwater.pipeline.bronze import PARTITION_COLUMNS, BronzeFiles, BronzeFileSource, direct
from headwater.pipeline.contracts.reading import parse
from headwater.pipeline.contracts.source import ContractFileSource, ContractTables
from headwater.pipeline.project.paths import STAGING
from headwater.pipeline.tables.delta import Table
from headwater.pipeline.taskfiles.collect import collect
from headwater.pipeline.taskfiles.declare import declared
from tests.e2e.process import BrokerProcess
from tests.flight.client import Client, rows

ORDERS = "topics: orders/.*\nkey: [id]\nfields: {id: {type: long, required: true}}"


class Batch:
    """A micro-batch: each `collect` runs its tasks, as that of a DataFrame does."""

    def __init__(self, reader: Any, start: int, end: int) -> None:
        self._reader, self._start, self._end = reader, {"offset": start}, {"offset": end}

    def collect(self) -> list[dict[str, Any]]:
        return [
            row
            for partition in self._reader.partitions(self._start, self._end)
            for batch in self._reader.read(partition)
            for row in batch.to_pylist()
        ]


class Log:
    def __init__(self, port: int) -> None:
        self.port = port
        self._client = Client(port)
        self._sequence = 0

    def append(self, *messages: tuple[str, bytes]) -> None:
        self._sequence += 1
        sequence = self._sequence
        self._client.put(rows(*messages), do="append", producer="tests", sequence=sequence)

    def batch(self, source: Any, start: int = 0, **options: str) -> Any:
        reading = {
            "servers": f"127.0.0.1:{self.port}",
            "subscribePattern": ".*",
            "includeHeaders": "true",
        }
        reader = source(reading | options).streamReader(StructType())
        return Batch(reader, start, self._client.act("log")["end"])

    def close(self) -> None:
        self._client.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with BrokerProcess(tmp_path / "data") as broker:
        made = Log(broker.ports["flight"])
        yield made
        made.close()


def staged(tables: Path) -> list[Path]:
    return [each for each in tables.rglob("*.parquet") if STAGING in each.parts]


def test_a_table_function_declares_its_files() -> None:
    def bronze() -> Any: ...

    assert declared(bronze) is None
    direct(bronze)
    files = declared(bronze)
    assert isinstance(files, BronzeFiles) and files.key == "bronze"


def test_files_of_tasks_are_committed_once(log: Log, tmp_path: Path) -> None:
    log.append(("shop/a", b"1"), ("shop/a", b"2"), ("other", b"3"))
    tables, files = tmp_path / "tables", BronzeFiles("bronze")
    table = Table(tables / "bronze")
    for attempt in range(2):
        batch = log.batch(BronzeFileSource, tables=str(tables), table="bronze")
        with files.collect(batch) as additions:
            assert len(staged(tables)) == 2  # one for each partition
            result = table.append_files(additions["bronze"], "query", 0, PARTITION_COLUMNS)
        assert (result.rows, result.first, result.last) == (3, 0, 2)
        assert result.repeated is (attempt == 1)
        assert not staged(tables)
    found = table.dataset().to_table(["offset", "topic_group", "value"]).sort_by("offset")
    assert found.column("value").to_pylist() == [b"1", b"2", b"3"]
    assert found.column("topic_group").to_pylist() == ["shop", "shop", "other"]


def test_files_that_are_not_committed_are_deleted(log: Log, tmp_path: Path) -> None:
    log.append(("a", b"1"))
    tables = tmp_path / "tables"
    batch = log.batch(BronzeFileSource, tables=str(tables), table="bronze")
    with pytest.raises(ValueError, match="no commit"), BronzeFiles("bronze").collect(batch):
        raise ValueError("no commit")
    assert not staged(tables)


def test_new_fields_are_reported_before_any_file(log: Log, tmp_path: Path) -> None:
    log.append(("orders/a", b'{"id": 1, "shop": "north"}'), ("orders/a", b'{"id": 2}'))
    contract, tables = parse(ORDERS, Path("orders.yml")), tmp_path / "tables"
    options = ContractTables.options([contract], tmp_path / "state")
    batch = log.batch(ContractFileSource, 0, tables=str(tables), **options)
    first = collect(batch)
    assert first.new_fields == [("silver_orders", '[["shop", "string"]]')] and not first.files
    ContractTables([contract], tmp_path / "state").learn(first.new_fields)
    second = collect(batch)
    (file,) = second.files["silver_orders"]
    assert not second.new_fields and file.file.rows == 2
    assert len(file.keys) == 2 * 16 and len(file.times) == 2 * 8
    left = file.without([True, False])
    assert left is not None and left.file.rows == 1
    assert left.without([True]) is None
    second.discard()
    assert not staged(tables)
