"""Names of tables in definitions, in every way that a definition can read them."""

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.errors import HeadwaterError
from headwater.pipeline.definitions.graph import load
from headwater.pipeline.definitions.names import Evaluated, Names
from headwater.pipeline.tables.store import TableStore

PYTHON = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.table(schema="n BIGINT, text STRING")
def numbers():
    return SparkSession.active().readStream.format("rate").load()

@dp.temporary_view
def large():
    return spark.readStream.table("numbers").where("n > 9")

@dp.table
def both():
    names = spark.table("numbers").select("n", "text").distinct()
    return spark.readStream.table("local.numbers").select("n").join(names, "n")

@dp.materialized_view
def summary():
    return spark.read.table("numbers").groupBy("text").count()

@dp.table
def from_view():
    return spark.readStream.table("large")

@dp.materialized_view
def elsewhere():
    return SparkSession.getActiveSession().table("of_the_catalog")

@dp.materialized_view
def circle():
    return spark.table("circle")

@dp.table
def of_replaced_rows():
    return spark.readStream.table("summary")
"""
SQL = """
CREATE STREAMING TABLE copy AS SELECT n FROM STREAM numbers;
CREATE STREAMING TABLE named AS SELECT numbers.n FROM STREAM(numbers) JOIN summary USING (text);
CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM numbers;
"""


@pytest.fixture
def names(tmp_path: Path, spark: SparkSession) -> Names:
    files = [tmp_path / "a.py", tmp_path / "b.sql"]
    for file, text in zip(files, (PYTHON, SQL), strict=True):
        file.write_text(text)
    store = TableStore(spark, tmp_path / "tables")
    return Names(spark, load(tmp_path, files, spark), store)


def evaluated(names: Names, name: str) -> Evaluated:
    node = names.find(name)
    assert node is not None
    return names.evaluate(node.flows[0].func)


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("name", "streaming", "inputs", "columns"),
    [
        ("both", True, {"numbers"}, ["n", "text"]),
        ("summary", False, {"numbers"}, ["text", "count"]),
        ("from_view", True, {"numbers"}, ["n", "text"]),
        ("copy", True, {"numbers"}, ["n"]),
        ("named", True, {"numbers", "summary"}, ["n"]),
        ("total", False, {"numbers"}, ["n"]),
    ],
)
def test_a_name_is_what_the_definition_asks_for(
    names: Names, name: str, streaming: bool, inputs: set[str], columns: list[str]
) -> None:
    """No table exists yet: they are empty, with the columns of their definitions."""
    found = evaluated(names, name)
    assert (found.frame.isStreaming, set(found.inputs)) == (streaming, inputs)
    assert found.frame.columns == columns


@pytest.mark.timeout(400)
def test_other_names_are_sparks_in_any_thread(names: Names, spark: SparkSession) -> None:
    spark.range(3).createOrReplaceTempView("of_the_catalog")
    found: list[Evaluated] = []
    thread = threading.Thread(target=lambda: found.append(evaluated(names, "elsewhere")))
    thread.start()
    thread.join()
    assert [(each.frame.count(), each.inputs) for each in found] == [(3, frozenset())]


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("circle", "the definitions go round in a circle: circle → circle"),
        ("of_replaced_rows", "rows of summary are replaced, so it cannot be read as a stream"),
    ],
)
def test_a_name_that_cannot_be_read_is_a_sentence(names: Names, name: str, sentence: str) -> None:
    with pytest.raises(HeadwaterError, match=sentence):
        evaluated(names, name)
