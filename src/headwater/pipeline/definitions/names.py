"""Names of tables in definitions: what `spark.table("bronze")` means inside a project.

A name of the project is its table on disk, in batch or as a stream; any other name is Spark's
business. A table that does not exist yet is empty, with the columns that its definition has. While
a definition is evaluated, these understand the project's names (spark_names.py says how):

    spark.table, spark.read.table          the rows of now
    spark.readStream.table                 the rows as they are added
    spark.sql("… FROM bronze")             as spark.table
    spark.sql("… FROM STREAM bronze")      as spark.readStream.table

What a definition reads is noted: it says when a view is out of date, and what comes before what.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headwater.errors import HeadwaterError
from headwater.pipeline.definitions.graph import Graph, Node, OutputKind, unqualified
from headwater.pipeline.definitions.spark_names import resolving
from headwater.pipeline.tables.store import TableStore
from headwater.spark import jvm


@dataclass(frozen=True, slots=True)
class Evaluated:
    """What a definition has returned, and the names it has read."""

    frame: DataFrame
    inputs: frozenset[str]


class Names:
    """The tables of a graph as data frames. Threads take turns."""

    def __init__(self, spark: SparkSession, graph: Graph, store: TableStore) -> None:
        self._spark, self._graph, self._store = spark, graph, store
        self._lock = threading.RLock()
        self._reads: list[set[str]] = []
        self._schemas: dict[str, StructType] = {}
        self._open: list[str] = []  # the definitions that are being evaluated, for circles
        self._stream_reader: Callable[[], Any] | None = None

    def evaluate(self, function: Callable[[], DataFrame]) -> Evaluated:
        with self._lock, resolving(self):
            # A thread has no session of its own, and definitions ask for the active one.
            jvm.activate(self._spark)
            self._reads.append(set())
            try:
                frame = function()
                if not isinstance(frame, DataFrame):
                    raise HeadwaterError(f"it returns {type(frame).__name__}, not a DataFrame")
                return Evaluated(frame, frozenset(self._reads[-1]))
            finally:
                self._reads.pop()

    @contextmanager
    def reading_streams_with(self, reader: Callable[[], Any]) -> Iterator[None]:
        """Definitions get what `reader` makes in the place of `spark.readStream`."""
        with self._lock:
            self._stream_reader = reader
            try:
                yield
            finally:
                self._stream_reader = None

    def find(self, name: str) -> Node | None:
        """The node of that name, which may be qualified or quoted."""
        return self._graph.nodes.get(unqualified(name))

    def batch(self, node: Node) -> DataFrame:
        with self._lock:
            if node.kind is OutputKind.TEMPORARY:
                return self._view(node)
            self._note(node.name)
            return self._store.batch(node.name, self.schema(node))

    def stream(self, node: Node) -> DataFrame:
        with self._lock:
            if node.kind is OutputKind.TEMPORARY:
                return self._view(node)
            if node.kind is OutputKind.VIEW or node.keys:
                raise HeadwaterError(
                    f"rows of {node.name} are replaced, so it cannot be read as a stream: read it "
                    "in batch, in a materialized view"
                )
            self._note(node.name)
            return self._store.stream(node.name, self.schema(node))

    def schema(self, node: Node) -> StructType:
        """The columns of a table: those on disk, and those that its definition has now."""
        with self._lock:
            if node.name not in self._schemas:
                self._schemas[node.name] = self._declared(node)
            known = self._store.schema(node.name)
            declared = self._schemas[node.name]
            if known is None:
                return declared
            more = [field for field in declared if field.name not in known.names]
            return StructType([*known.fields, *more])

    def _note(self, *names: str) -> None:
        if self._reads:
            self._reads[-1].update(names)

    def _view(self, node: Node) -> DataFrame:
        """A temporary view reads on behalf of who reads it."""
        found = self._evaluated(node)
        self._note(*found.inputs)
        return found.frame

    def _declared(self, node: Node) -> StructType:
        if isinstance(node.schema, StructType):
            return node.schema
        if isinstance(node.schema, str):
            return self._spark.createDataFrame([], node.schema).schema
        if not node.flows:
            raise HeadwaterError(f"the table {node.name} has no flow, and no schema")
        return self._evaluated(node).frame.schema

    def _evaluated(self, node: Node) -> Evaluated:
        if node.name in self._open:
            circle = " → ".join([*self._open[self._open.index(node.name) :], node.name])
            raise HeadwaterError(f"the definitions go round in a circle: {circle}")
        self._open.append(node.name)
        try:
            return self.evaluate(node.flows[0].func)
        finally:
            self._open.pop()

    # What Spark's readers ask

    def batch_table(self, name: str) -> DataFrame | None:
        node = self.find(name)
        return None if node is None else self.batch(node)

    def stream_table(self, name: str) -> DataFrame | None:
        node = self.find(name)
        return None if node is None else self.stream(node)

    def stream_reader(self) -> Any | None:
        return None if self._stream_reader is None else self._stream_reader()

    def prepare(self, statement: str) -> str:
        for name, node in self._graph.nodes.items():
            if node.kind is OutputKind.SINK or not re.search(rf"\b{re.escape(name)}\b", statement):
                continue
            quoted = rf"(?:[\w.`]+\.)?`?{re.escape(name)}`?"
            streamed = re.compile(rf"\bSTREAM(?:\s*\(\s*{quoted}\s*\)|\s+{quoted})", re.IGNORECASE)
            statement, count = streamed.subn(f"__stream_{name} AS {name}", statement)
            if count:
                self.stream(node).createOrReplaceTempView(f"__stream_{name}")
            if re.search(rf"(?<!__stream_)(?<!AS )\b{re.escape(name)}\b", statement):
                self.batch(node).createOrReplaceTempView(name)
        return statement
