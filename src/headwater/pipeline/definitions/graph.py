"""Definitions become a graph: tables, views and sinks, and the flows that fill them.

The files are those of Spark Declarative Pipelines (`from pyspark import pipelines as dp`). Spark's
own runner sends what they define to a server; here the same decorators fill a `GraphRegistry`.
"""

import importlib.util
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.pipeline.definitions import declarative
from headwater.pipeline.definitions.declarative import (
    AutoCdcFlow,
    Flow,
    GraphElementRegistry,
    MaterializedView,
    Output,
    Sink,
    StreamingTable,
    TableOutput,
    TemporaryView,
    graph_element_registration_context,
)
from headwater.pipeline.definitions.sql import statements
from headwater.pipeline.taskfiles.declare import TaskFiles, declared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class OutputKind(Enum):
    TABLE = "table"
    VIEW = "view"
    TEMPORARY = "temporary view"
    SINK = "sink"


_KINDS = {
    StreamingTable: OutputKind.TABLE,
    MaterializedView: OutputKind.VIEW,
    TemporaryView: OutputKind.TEMPORARY,
    Sink: OutputKind.SINK,
}


def kind_of(output: Output) -> OutputKind:
    return _KINDS[type(output)]


@dataclass(frozen=True, slots=True)
class Node:
    """A table, view or sink, and what fills it."""

    name: str
    kind: OutputKind
    output: Output
    flows: list[Flow] = field(default_factory=list)

    @property
    def properties(self) -> Mapping[str, str]:
        return self.output.table_properties if isinstance(self.output, TableOutput) else {}

    @property
    def partition_by(self) -> list[str]:
        return list(getattr(self.output, "partition_cols", None) or ())

    @property
    def schema(self) -> "StructType | str | None":
        return self.output.schema if isinstance(self.output, TableOutput) else None

    @property
    def keys(self) -> list[str]:
        written = self.properties.get("headwater.keys", "")
        return [key.strip() for key in written.split(",") if key.strip()]

    @property
    def task_files(self) -> TaskFiles | None:
        return declared(self.flows[0].func) if len(self.flows) == 1 else None

    @property
    def place(self) -> str:
        """Where it is defined."""
        where = self.output.source_code_location
        return f"{Path(where.filename).name}, line {where.line_number}"


@dataclass(frozen=True, slots=True)
class Graph:
    nodes: dict[str, Node]

    def of(self, *kinds: OutputKind) -> list[Node]:
        return [node for node in self.nodes.values() if node.kind in kinds]

    def check(self) -> None:
        for node in self.nodes.values():
            if not node.flows and node.kind is not OutputKind.SINK:
                raise HeadwaterError(f"{node.place}: nothing flows into the table {node.name}")


class GraphRegistry(GraphElementRegistry):
    """Collects what the decorators of `pyspark.pipelines` register."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._nodes: dict[str, Node] = {}
        self._flows: list[Flow] = []

    def register_output(self, output: Output) -> None:
        name = unqualified(output.name)
        if name in self._nodes:
            raise HeadwaterError(f"{name} is defined twice, first in {self._nodes[name].place}")
        self._nodes[name] = Node(name, kind_of(output), output)

    def register_flow(self, flow: Flow) -> None:
        self._flows.append(flow)

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise HeadwaterError(
            f"create_auto_cdc_flow (into {flow.target}) works with Spark's own runner only; here, "
            "give the table the property headwater.keys"
        )

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        for statement in statements(sql_text, file_path):
            self.register_output(statement.output)
            self.register_flow(statement.flow(partial(_run_query, self._spark, statement.query)))

    def graph(self) -> Graph:
        for flow in self._flows:
            target = self._nodes.get(unqualified(flow.target))
            if target is None:
                raise HeadwaterError(
                    f"the flow {flow.name} goes to {flow.target}, which is not defined"
                )
            if any(each.name == flow.name for each in target.flows):
                raise HeadwaterError(f"two flows into {target.name} are called {flow.name}")
            target.flows.append(flow)
        graph = Graph(self._nodes)
        graph.check()
        return graph


def load(root: Path, files: Sequence[Path], spark: "SparkSession") -> Graph:
    """The graph that definition files make."""
    registry = GraphRegistry(spark)
    define(root, files, registry, spark)
    return registry.graph()


def define(
    root: Path, files: Sequence[Path], registry: GraphElementRegistry, spark: "SparkSession"
) -> None:
    """Run definition files, which register what they define."""
    declarative.check()
    with _inside(root), graph_element_registration_context(registry):
        for file in files:
            with _located(file.relative_to(root)):
                _load(file, root, registry, spark)


def _load(file: Path, root: Path, registry: GraphElementRegistry, spark: "SparkSession") -> None:
    if file.suffix == ".sql":
        registry.register_sql(file.read_text(), file.relative_to(root))
        return
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    vars(module)["spark"] = spark  # as Spark's own runner does
    spec.loader.exec_module(module)


def _run_query(spark: "SparkSession", query: str) -> "DataFrame":
    """`spark.sql` is looked up only now: it knows the project's names while a flow is evaluated."""
    return spark.sql(query)


@contextmanager
def _inside(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _located(file: Path) -> Iterator[None]:
    """Errors of a definition file, as one sentence with the line."""
    try:
        yield
    except SyntaxError as error:
        raise HeadwaterError(f"{file}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        raise HeadwaterError(f"{_place(file, error)}: {describe_error(error)}") from error


def call_definition(file: str, function: Callable[[], Any]) -> Any:
    """Call what a definition file has defined; errors name the file and the line."""
    with _located(Path(file)):
        return function()


def _place(file: Path, error: Exception) -> str:
    lines = [
        each.lineno
        for each in traceback.extract_tb(error.__traceback__)
        if Path(each.filename).name == file.name
    ]
    return f"{file}, line {lines[-1]}" if lines else str(file)


def describe_error(error: BaseException) -> str:
    """The first line of what an error says, with its kind unless it is one of ours."""
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else ""
    return first if isinstance(error, HeadwaterError) else f"{type(error).__name__}: {first}"


def unqualified(name: str) -> str:
    """A name without its catalog and schema."""
    return name.replace("`", "").rpartition(".")[2]
