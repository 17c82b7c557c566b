"""Tables on disk: written once, whatever happens; read by everyone."""

import json
import shutil
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from headwater.errors import HeadwaterError
from headwater.pipeline.project.paths import STAGING
from headwater.pipeline.tables.delta import Table

pytestmark = pytest.mark.timeout(300)


def numbers(spark: SparkSession, first: int, stop: int, **columns: str) -> DataFrame:
    frame = spark.range(first, stop).withColumnRenamed("id", "offset")
    for name, expression in columns.items():
        frame = frame.withColumn(name, expr(expression))
    return frame


def offsets(table: Table) -> list[int]:
    found: list[int] = table.dataset().to_table().column("offset").to_pylist()
    return sorted(found)


@pytest.mark.smoke
def test_a_batch_is_written_once(spark: SparkSession, table: Table) -> None:
    assert not table.exists
    written = table.append(numbers(spark, 0, 10), "q", 0)
    assert (written.rows, written.first, written.last, written.repeated) == (10, 0, 9, False)
    again = table.append(numbers(spark, 0, 10), "q", 0)
    assert (again.rows, again.first, again.last, again.repeated) == (10, 0, 9, True)
    table.append(numbers(spark, 10, 20), "q", 1)
    table.append(numbers(spark, 20, 30), "another", 0)
    assert offsets(table) == list(range(30))
    assert (table.last_batch("q"), table.last_batch("another")) == (1, 0)
    assert table.frame(spark).count() == 30


def test_a_batch_without_offsets_has_none_of_an_earlier_one(
    spark: SparkSession, table: Table
) -> None:
    table.append(numbers(spark, 0, 10, colour="'red'"), "q", 0)
    for repeated in (False, True):
        written = table.append(spark.sql("SELECT 'blue' AS colour"), "q", 1)
        assert written.repeated is repeated
        assert (written.rows, written.first, written.last) == (1, None, None)


def test_an_empty_batch_only_makes_the_table(spark: SparkSession, table: Table) -> None:
    assert table.append(numbers(spark, 0, 0), "q", 0).rows == 0
    assert table.exists and table.frame(spark).count() == 0  # there to be looked at
    table.append(numbers(spark, 0, 1), "q", 1)
    version = table.version
    assert table.append(numbers(spark, 0, 0), "q", 2).files == 0
    assert table.version == version


def test_partitions_may_have_any_name(spark: SparkSession, table: Table) -> None:
    names = ["plain", "a/b", "a b", "a%2Fb", "a=b:c", "ü", None, "x'y\"z", "[a]{b}*?"]
    rows = [(number, name, date(2026, 1, 31)) for number, name in enumerate(names)]
    frame = spark.createDataFrame(rows, "offset long, topic_group string, date date")
    table.append(frame, "q", 0, ["date", "topic_group"])
    assert table.partition_columns == ["date", "topic_group"]
    expected = dict(enumerate(names))
    assert {row.offset: row.topic_group for row in table.frame(spark).collect()} == expected
    for read in (by_pyarrow, by_polars, by_duckdb):
        found = read(table)
        assert {row["offset"]: row["topic_group"] for row in found} == expected
        assert {row["date"] for row in found} == {date(2026, 1, 31)}


def by_pyarrow(table: Table) -> Any:
    return DeltaTable(str(table.path)).to_pyarrow_table().to_pylist()


def by_polars(table: Table) -> Any:
    return polars.scan_delta(str(table.path)).collect().to_dicts()


def by_duckdb(table: Table) -> Any:
    """Its own extension for Delta would have to be downloaded."""
    with duckdb.connect() as connection:
        connection.register("numbers", table.dataset())
        return connection.sql("SELECT * FROM numbers").to_arrow_table().to_pylist()


def test_nested_columns_come_back(spark: SparkSession, table: Table) -> None:
    frame = spark.sql(
        """SELECT 1L AS offset, map('a', 'b') AS headers, array(1, 2) AS list,
                  named_struct('x', 1.5D, 'y', array('z')) AS struct, X'00FF' AS value,
                  TIMESTAMP '2026-01-31 12:00:00.123456' AS timestamp, DECIMAL('1.50') AS price"""
    )
    table.append(frame, "q", 0)
    assert table.frame(spark).collect() == frame.collect()
    (row,) = by_pyarrow(table)
    assert row["timestamp"] == datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    assert (row["headers"], row["struct"]) == ([("a", "b")], {"x": 1.5, "y": ["z"]})


def test_columns_may_come_later(spark: SparkSession, table: Table) -> None:
    table.append(numbers(spark, 0, 2), "q", 0)
    table.append(numbers(spark, 2, 4, colour="'red'"), "q", 1)
    table.append(numbers(spark, 4, 6), "q", 2)
    assert table.arrow_schema.names == ["offset", "colour"]
    found = {row.offset: row.colour for row in table.frame(spark).collect()}
    assert found == {0: None, 1: None, 2: "red", 3: "red", 4: None, 5: None}
    assert len(by_polars(table)) == 6


def test_a_column_does_not_change_its_type(spark: SparkSession, table: Table) -> None:
    table.append(numbers(spark, 0, 2, colour="'red'"), "q", 0)
    with pytest.raises(HeadwaterError, match=r"colour .* is string, but new rows have int"):
        table.append(numbers(spark, 2, 4, colour="1"), "q", 1)
    assert offsets(table) == [0, 1]


def test_files_know_their_bounds(spark: SparkSession, table: Table) -> None:
    moment = "timestamp_micros(1000000 + offset)"
    frame = numbers(
        spark, 5, 9, headers="map('a', 'b')", timestamp=moment, date="DATE '2026-01-31'"
    )
    table.append(frame.coalesce(1), "q", 0, ["date"])
    (file,) = table.files()
    assert (file.rows, file.partition) == (4, {"date": date(2026, 1, 31)})
    assert (file.stats["min"]["offset"], file.stats["max"]["offset"]) == (5, 8)
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert file.stats["min"]["timestamp"] == second
    assert file.stats["max"]["timestamp"] == second + timedelta(milliseconds=1)
    # Readers leave out files by these bounds: a row must not be lost between them.
    with duckdb.connect() as connection:
        connection.register("numbers", table.dataset())
        after = "SELECT \"offset\" FROM numbers WHERE timestamp > '1970-01-01 00:00:01.000007Z'"
        assert connection.sql(after).fetchall() == [(8,)]


@pytest.mark.smoke
def test_upsert_replaces_rows_with_the_same_keys(spark: SparkSession, table: Table) -> None:
    def batch(*rows: tuple[str | None, int]) -> DataFrame:
        return spark.createDataFrame(list(rows), "key string, count long").coalesce(1)

    table.upsert(batch(("a", 1), ("b", 1), (None, 1)), ["key"], "q", 0)
    written = table.upsert(batch(("b", 2), ("c", 2), (None, 2), ("c", 3)), ["key"], "q", 1)
    assert (written.rows, written.repeated) == (3, False)
    again = table.upsert(batch(("a", 9)), ["key"], "q", 1)
    assert (again.rows, again.repeated) == (3, True)
    found = {row.key: row["count"] for row in table.frame(spark).collect()}
    assert found == {"a": 1, "b": 2, "c": 3, None: 2}


def test_upsert_takes_new_columns(spark: SparkSession, table: Table) -> None:
    table.upsert(numbers(spark, 0, 2), ["offset"], "q", 0)
    table.upsert(numbers(spark, 1, 3, colour="'red'"), ["offset"], "q", 1)
    found = {row.offset: row.colour for row in table.frame(spark).collect()}
    assert found == {0: None, 1: "red", 2: "red"}


def test_overwrite_replaces_all_at_once(spark: SparkSession, table: Table) -> None:
    table.overwrite(numbers(spark, 0, 5))
    table.overwrite(numbers(spark, 5, 7, colour="'red'"))
    assert offsets(table) == [5, 6]
    assert table.arrow_schema.names == ["offset", "colour"]
    table.overwrite(numbers(spark, 5, 7))
    assert table.arrow_schema.names == ["offset"]
    table.overwrite(numbers(spark, 0, 0))
    assert table.frame(spark).count() == 0


def _dies(*_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", ["_move", "_commit"])
def test_what_was_not_committed_is_not_there(
    spark: SparkSession, table: Table, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(numbers(spark, 0, 5), "q", 0)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        patch.setattr(Table, step, _dies)
        with pytest.raises(KeyboardInterrupt):
            table.append(numbers(spark, 5, 9), "q", 1)
    assert offsets(table) == [0, 1, 2, 3, 4]
    assert any((table.path / STAGING).iterdir())
    table.append(numbers(spark, 5, 9), "q", 1)
    assert offsets(table) == list(range(9))
    assert len(by_polars(table)) == 9


def test_many_queries_write_one_table(spark: SparkSession, table: Table) -> None:
    def write(query: int) -> None:
        mine = Table(table.path)
        for batch in range(3):
            first = 100 * query + 10 * batch
            mine.append(numbers(spark, first, first + 10), f"q{query}", batch)

    table.append(numbers(spark, 0, 1), "first", 0)
    threads = [threading.Thread(target=write, args=(query,)) for query in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [0] + [100 * query + number for query in (1, 2, 3) for number in range(30)]
    assert offsets(table) == expected


def test_the_log_names_files_as_delta_wants(spark: SparkSession, table: Table) -> None:
    table.append(numbers(spark, 0, 1, group="'a/b'"), "q", 0, ["group"])
    lines = (table.path / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    (add,) = [json.loads(line)["add"] for line in lines if "add" in json.loads(line)]
    assert add["path"].startswith("group=a%252Fb/")  # Spark's name of the directory, encoded
    assert add["partitionValues"] == {"group": "a/b"}


def test_no_table_is_one_sentence(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(HeadwaterError, match="there is no table orders in "):
        Table(tmp_path / "orders").frame(spark)


def test_readers_that_skip_files_by_their_bounds_find_everything(
    spark: SparkSession, tmp_path: Path
) -> None:
    """deltalake takes a bound that is missing for one that nothing fits."""
    rows = spark.sql(
        """SELECT id AS offset, concat('t/', id % 3) AS topic,
           encode(CAST(id AS STRING), 'utf-8') AS value,
           id * 1.5D AS price, CAST(id AS DECIMAL(12,2)) AS amount, id % 2 = 0 AS even,
           IF(id % 7 = 0, double('nan'), 1D * id) AS odd, repeat('ü', CAST(id AS INT)) AS long,
           timestamp_seconds(id) AS at, CAST(NULL AS STRING) AS empty FROM range(100)"""
    )
    table = Table(tmp_path / "t")
    table.append(rows, "q", 0)
    field, found = pyarrow.dataset.field, table.dataset()
    for condition, count in (
        (field("topic") == "t/1", 33),
        (field("price") > 100, 33),
        (field("even") == True, 50),  # noqa: E712
        (field("odd") > 50, 42),
        (field("long") > "ü" * 97, 2),
        (field("offset") < 10, 10),
        (field("empty").is_null(), 100),
        (field("at") > pa.scalar(50_000_000, pa.timestamp("us", "UTC")), 49),
    ):
        assert found.count_rows(filter=condition) == count, condition
