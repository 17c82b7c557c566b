"""What is borrowed from Spark Declarative Pipelines. No Spark is started."""

from abc import abstractmethod
from dataclasses import make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.pipelines import spark_connect_pipeline

from headwater.errors import HeadwaterError
from headwater.pipeline.definitions import connect, declarative
from headwater.pipeline.definitions.declarative import (
    Flow,
    GraphElementRegistry,
    Sink,
    SourceCodeLocation,
)
from headwater.pipeline.definitions.graph import GraphRegistry, OutputKind, define, load

DEFINITIONS = """
from pyspark import pipelines as dp

@dp.table(table_properties={"headwater.keys": "a, b"}, partition_cols=["date"])
def rows(): ...

@dp.materialized_view
def summary(): ...

@dp.temporary_view
def recent(): ...

dp.create_sink("out", "headwater", {"topic": "copy"})

@dp.append_flow(target="out")
def copies(): ...
"""


def test_pyspark_is_as_we_know_it() -> None:
    declarative.check()
    connect.check()


def test_decorators_register_what_we_expect(tmp_path: Path) -> None:
    file = tmp_path / "definitions.py"
    file.write_text(DEFINITIONS)
    registry = GraphRegistry(spark=SimpleNamespace())  # type: ignore[arg-type]
    define(tmp_path, [file], registry, spark=SimpleNamespace())  # type: ignore[arg-type]
    nodes = registry.graph().nodes
    assert {name: node.kind for name, node in nodes.items()} == {
        "rows": OutputKind.TABLE,
        "summary": OutputKind.VIEW,
        "recent": OutputKind.TEMPORARY,
        "out": OutputKind.SINK,
    }
    assert (nodes["rows"].keys, nodes["rows"].partition_by) == (["a", "b"], ["date"])
    assert nodes["rows"].place == "definitions.py, line 4"
    sink = nodes["out"].output
    assert isinstance(sink, Sink) and sink.options == {"topic": "copy"}
    assert [flow.name for flow in nodes["out"].flows] == ["copies"]


def test_queries_in_sql_know_the_names_of_the_time_when_they_run(tmp_path: Path) -> None:
    """`spark.sql` is another one while a flow is evaluated."""
    file = tmp_path / "definitions.sql"
    file.write_text("CREATE STREAMING TABLE copy AS SELECT * FROM STREAM bronze;")
    spark: Any = SimpleNamespace(sql=lambda query: "the catalog's rows")
    node = load(tmp_path, [file], spark).nodes["copy"]
    spark.sql = lambda query: f"rows of {query}"
    assert node.flows[0].func() == "rows of SELECT * FROM STREAM bronze"  # type: ignore[comparison-overlap]
    assert node.place == "definitions.sql, line 1"


def test_a_method_that_is_gone_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(GraphElementRegistry, "register_flow")
    spark: Any = SimpleNamespace()
    with pytest.raises(
        HeadwaterError,
        match=r"GraphElementRegistry has no register_flow; install pyspark==4\.3\.0",
    ):
        define(tmp_path, [], GraphRegistry(spark), spark)


def test_a_method_that_is_new_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Registry(GraphElementRegistry):
        @abstractmethod
        def register_more(self) -> None: ...

    monkeypatch.setattr(declarative, "GraphElementRegistry", Registry)
    with pytest.raises(HeadwaterError, match="Registry needs a method register_more; install"):
        declarative.check()


def test_another_constructor_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    other = make_dataclass("Flow", ["name", "target"])
    known = {**declarative._PARAMETERS, other: declarative._PARAMETERS[Flow]}
    monkeypatch.setattr(declarative, "_PARAMETERS", known)
    with pytest.raises(HeadwaterError, match="Flow has no parameter spark_conf; install pyspark"):
        declarative.check()


def test_a_place_is_a_file_and_a_line() -> None:
    place = SourceCodeLocation(filename="a.sql", line_number=3)
    assert (place.filename, place.line_number) == ("a.sql", 3)


class TestConnect:
    def test_a_function_that_is_gone_is_a_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(spark_connect_pipeline, "start_run")
        with pytest.raises(HeadwaterError, match="has no start_run; install pyspark=="):
            connect.create_graph(SimpleNamespace(), None, None, {})  # type: ignore[arg-type]

    def test_another_signature_is_a_sentence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spark_connect_pipeline, "start_run", lambda spark, dry, **_: iter(()))
        with pytest.raises(HeadwaterError, match="no parameter dataflow_graph_id; install pyspark"):
            connect.check()

    def test_an_address_has_a_host_and_a_port(self) -> None:
        assert connect.endpoint("sc://localhost:15002") == ("localhost", 15002)
        assert connect.endpoint("sc://[::1]:99") == ("::1", 99)
