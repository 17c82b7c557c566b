"""A table as a stream: what is added to it, and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headwater.errors import HeadwaterError
from headwater.pipeline.care.retention import expire
from headwater.pipeline.care.upkeep import compact
from headwater.pipeline.tables.delta import Table
from headwater.pipeline.tables.delta_source import TableFiles, TableReader
from tests.pipeline.tables.test_delta import numbers

pytestmark = pytest.mark.timeout(300)


class Follower:
    """Reads a stream as Spark does, one micro-batch at a time."""

    def __init__(self, table: Table, schema: Any, most_rows: int = 1000) -> None:
        self.reader = TableReader(table.path, schema, most_rows)
        self.at = self.reader.initialOffset()
        self.limit = self.reader.getDefaultReadLimit()

    def batch(self) -> list[Any]:
        end = self.reader.latestOffset(self.at, self.limit)
        json.dumps(end)
        found = self.between(self.at, end)
        self.at = end
        return found

    def between(self, start: Any, end: Any) -> list[Any]:
        found = []
        for part in self.reader.partitions(start, end):
            assert isinstance(part, TableFiles)
            for batch in self.reader.read(part):
                assert batch.num_rows
                found += batch.to_pylist()
        return found


def offsets(rows: list[Any]) -> list[int]:
    return [row["offset"] for row in rows]


@pytest.mark.smoke
def test_rows_come_once_in_their_order(spark: SparkSession, table: Table) -> None:
    schema = numbers(spark, 0, 1, day="DATE'2026-01-31'", text="'a'").schema
    follower = Follower(table, schema)
    assert follower.batch() == []  # there is no table yet
    for batch, first in enumerate((10, 0, 20)):
        rows = numbers(spark, first, first + 10, day="DATE'2026-01-31'").coalesce(1)
        table.append(rows, "q", batch, ["day"])
    found = follower.batch()
    assert offsets(found) == list(range(30))  # the oldest records first
    assert found[0]["day"].isoformat() == "2026-01-31" and found[0]["text"] is None
    assert follower.batch() == []
    for batch, first in enumerate((30, 35)):
        rows = numbers(spark, first, first + 5, day="DATE'2026-02-01'", text="'b'").coalesce(1)
        table.append(rows, "r", batch, ["day"])
    assert follower.reader.pending(follower.at) == 10
    before = follower.at
    assert offsets(follower.batch()) == list(range(30, 40))
    assert offsets(follower.between(before, follower.at)) == list(range(30, 40))  # once more
    assert follower.reader.pending(follower.at) == 0


def test_batches_are_bounded(spark: SparkSession, table: Table) -> None:
    schema = numbers(spark, 0, 1).schema
    for batch in range(4):
        first = 10 * batch
        table.append(numbers(spark, first, first + 10).coalesce(1), "q", batch)
    follower = Follower(table, schema, most_rows=15)
    assert isinstance(follower.limit, ReadMaxRows)
    assert offsets(follower.batch()) == list(range(20))
    for batch in range(4, 7):
        first = 10 * batch
        table.append(numbers(spark, first, first + 10).coalesce(1), "q", batch)
    assert follower.reader.pending(follower.at) == 50
    assert offsets(follower.batch()) == list(range(20, 40))
    assert offsets(follower.batch()) == list(range(40, 60))
    follower.limit = ReadAllAvailable()
    assert offsets(follower.batch()) == list(range(60, 70))


def test_upkeep_adds_no_rows(spark: SparkSession, table: Table) -> None:
    schema = numbers(spark, 0, 1).schema
    follower = Follower(table, schema)

    def append(batch: int, day: str) -> None:
        first = 10 * batch
        rows = numbers(spark, first, first + 10, date=f"DATE'{day}'").coalesce(1)
        table.append(rows, "q", batch)

    append(0, "2020-01-01")
    assert len(follower.batch()) == 10
    append(1, "2099-01-01")
    append(2, "2099-01-01")
    before = follower.at
    compact(table)
    assert len(table.files()) == 1
    assert expire(table, "30d") == 10
    append(3, "2099-01-01")
    assert offsets(follower.batch()) == list(range(10, 40))
    assert offsets(follower.between(before, follower.at)) == list(range(10, 40))
    assert sorted(offsets(Follower(table, schema).batch())) == list(range(10, 40))


def test_replaced_rows_are_no_stream(spark: SparkSession, table: Table) -> None:
    table.upsert(numbers(spark, 0, 5), ["offset"], "q", 0)
    follower = Follower(table, numbers(spark, 0, 1).schema)
    assert len(follower.batch()) == 5
    table.upsert(numbers(spark, 3, 8), ["offset"], "q", 1)
    with pytest.raises(HeadwaterError, match="rows of the table numbers are replaced"):
        follower.batch()


def test_a_stream_that_was_away_too_long_says_so(spark: SparkSession, table: Table) -> None:
    table.append(numbers(spark, 0, 5), "q", 0)
    follower = Follower(table, numbers(spark, 0, 1).schema)
    follower.batch()
    table.append(numbers(spark, 5, 9), "q", 1)
    commit = table.path / "_delta_log" / f"{table.version:020}.json"
    table.append(numbers(spark, 9, 10), "q", 2)
    kept = commit.rename(Path(f"{commit}.away"))
    with pytest.raises(HeadwaterError, match=r"is no longer known: .*--full-refresh"):
        follower.reader.latestOffset(follower.at, follower.limit)
    kept.rename(commit)
    assert offsets(follower.batch()) == [5, 6, 7, 8, 9]
