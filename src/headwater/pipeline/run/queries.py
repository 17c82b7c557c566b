"""Streaming queries: one per flow, or one for several tables whose files the tasks write.

A query is started, watched and started again. Its micro-batches are written to its tables exactly
once, by the id that Spark keeps in the checkpoint and the number of the batch; after each table a
row goes to the audit table, exactly once as well.
"""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.pipeline import publish
from headwater.pipeline.definitions.declarative import Flow, Sink
from headwater.pipeline.definitions.graph import (
    Graph,
    Node,
    OutputKind,
    call_definition,
    describe_error,
)
from headwater.pipeline.definitions.names import Names
from headwater.pipeline.project.paths import AUDIT
from headwater.pipeline.run.state import PipelineState, now
from headwater.pipeline.tables.delta import CommitResult, Table
from headwater.pipeline.tables.store import TableStore
from headwater.pipeline.taskfiles.declare import TaskFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

DEFAULT_TRIGGER = "1 second"
#: A table that has every record of the log: an offset that it lacks was lost to retention.
COMPLETE = "headwater.complete"
#: Rows are also messages, below this topic.
PUBLISH = "headwater.publish"

_AUDIT = pa.schema(
    [
        pa.field("query", pa.string()),
        pa.field("table", pa.string()),
        pa.field("batch", pa.int64()),
        pa.field("first", pa.int64()),
        pa.field("last", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("written_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Plan:
    """A query that has to run: its flow, and the tables that it fills."""

    name: str
    nodes: tuple[Node, ...]
    flow: Flow
    task_files: TaskFiles | None = None

    @property
    def tables(self) -> list[str]:
        return [node.name for node in self.nodes]

    def property(self, name: str, default: str) -> str:
        return next((n.properties[name] for n in self.nodes if name in n.properties), default)


def plans(graph: Graph, by_tasks: bool = True) -> list[Plan]:
    """The streaming queries of a graph. `by_tasks`: tasks write files where a table declares it."""
    found: dict[str, Plan] = {}
    for node in graph.of(OutputKind.TABLE, OutputKind.SINK):
        if by_tasks and node.task_files is not None:
            key = node.task_files.key
            others = found[key].nodes if key in found else ()
            found[key] = Plan(key, (*others, node), node.flows[0], node.task_files)
            continue
        for flow in node.flows:
            name = flow.name if flow.name == node.name else f"{node.name}.{flow.name}"
            found[name] = Plan(name, (node,), flow)
    return list(found.values())


class Query:
    """A plan that runs."""

    def __init__(
        self, plan: Plan, names: Names, store: TableStore, checkpoints: Path, state: PipelineState
    ) -> None:
        self.plan = plan
        self._names, self._store, self._state = names, store, state
        self.checkpoint = checkpoints / re.sub(r"[^\w.-]", "_", plan.name)
        self.inputs: frozenset[str] = frozenset()
        self.running: StreamingQuery | None = None
        self.batches = 0  # written since it was started
        self._frame: DataFrame | None = None  # evaluated, but not started yet
        self._error: BaseException | None = None
        self._next: dict[str, int] = {}
        # Its own: a table keeps the version it has read, and threads cannot share it.
        self._tables = {name: store.table(name) for name in (*plan.tables, AUDIT)}

    def start(self, once: bool) -> None:
        self._error, self.batches = None, 0
        frame, self._frame = self._frame or self.evaluate(), None
        every = {"processingTime": self.plan.property("headwater.trigger", DEFAULT_TRIGGER)}
        writer: Any = frame.writeStream.queryName(self.plan.name)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(**({"availableNow": True} if once else every))
        with _configured(self._store.spark, self.plan.flow.spark_conf):
            self.running = self._into(writer).start()
        self._state.set(self.plan.tables, state="running")

    def plan_ahead(self) -> None:
        """Evaluate the stream to know its inputs; `start` then need not do it again."""
        self._frame = self.evaluate()

    def evaluate(self) -> "DataFrame":
        """The stream of the query; sets its inputs."""
        flow, files = self.plan.flow, self.plan.task_files
        function = flow.func if files is None else partial(files.stream, self._store.directory)
        file = flow.source_code_location.filename
        found = call_definition(Path(file).name, lambda: self._names.evaluate(function))
        self.inputs = found.inputs
        frame: DataFrame = found.frame
        if not frame.isStreaming:
            raise HeadwaterError(
                f"{self.plan.nodes[0].place}: {self.plan.name} has to be a stream: read with "
                "spark.readStream, or make it a materialized view"
            )
        return frame

    def _into(self, writer: Any) -> Any:
        (node, *_) = self.plan.nodes
        if isinstance(node.output, Sink):
            return writer.format(node.output.format).options(**node.output.options)
        if self._store.ours:
            mode = "update" if any(each.keys for each in self.plan.nodes) else "append"
            return writer.outputMode(mode).foreachBatch(self.write_batch)
        if node.keys:
            raise HeadwaterError(
                f"the table {node.name} has keys, which need headwater.format to be delta-rs"
            )
        place = str(self._store.path(node.name))
        return (
            writer.format(self._store.format).partitionBy(*node.partition_by).option("path", place)
        )

    # Micro-batches

    def write_batch(self, batch: "DataFrame", number: int) -> None:
        """Spark calls this for each micro-batch, and again for one that was not finished."""
        try:
            identity = query_id(self.checkpoint)
            (node, *_) = self.plan.nodes
            if self.plan.task_files is not None:
                self._commit_files(self.plan.task_files, batch, identity, number)
            elif PUBLISH in node.properties:
                self._write_and_publish(node, batch, identity, number)
            else:
                self._write_table(node, batch, identity, number)
            self.batches += 1
        except BaseException as error:
            self._error = error  # Spark makes many lines of it
            raise

    def _commit_files(
        self, files: TaskFiles, batch: "DataFrame", identity: str, number: int
    ) -> None:
        with files.collect(batch) as additions:
            for node in self.plan.nodes:
                addition = additions[node.name]
                table = self._tables[node.name]
                result = table.append_files(addition, identity, number, node.partition_by)
                self._note(node, identity, number, result)

    def _write_and_publish(
        self, node: Node, batch: "DataFrame", identity: str, number: int
    ) -> None:
        """Write the rows and publish them, without computing them twice."""
        kept = batch.persist()
        try:
            self._write_table(node, kept, identity, number)
            prefix = node.properties[PUBLISH]
            publish.rows(kept, prefix, f"{identity}/{node.name}", number)
        finally:
            kept.unpersist()

    def _write_table(self, node: Node, rows: "DataFrame", identity: str, number: int) -> None:
        table = self._tables[node.name]
        if node.keys:
            result = table.upsert(rows, node.keys, identity, number)
        else:
            result = table.append(rows, identity, number, node.partition_by)
        self._note(node, identity, number, result)

    def _note(self, node: Node, identity: str, number: int, result: CommitResult) -> None:
        self._audit(node, identity, number, result)
        self._state.wrote(node.name, number, result)

    def _audit(self, node: Node, identity: str, number: int, result: CommitResult) -> None:
        if not result.rows:
            return
        rows = [(result.first, result.last, result.rows), *self._gap(node, result)]
        audit(self._tables[AUDIT], identity, node.name, number, rows)

    def _gap(self, node: Node, result: CommitResult) -> list[tuple[int, int, int]]:
        """The offsets that were gone before they could be read: a row of the audit without rows."""
        if COMPLETE not in node.properties or result.first is None or result.last is None:
            return []
        if node.name not in self._next:
            self._next[node.name] = next_offset(self._tables[AUDIT], node.name)
        expected = self._next[node.name]
        self._next[node.name] = result.last + 1
        if not 0 <= expected < result.first:
            return []
        gap = f"the offsets {expected} to {result.first - 1} were dropped by the log's retention"
        logger.warning("%s: %s before they were read", node.name, gap)
        self._state.set([node.name], gap=gap)
        return [(expected, result.first - 1, 0)]

    # Watching

    @property
    def active(self) -> bool:
        return self.running is not None and self.running.isActive

    def failure(self) -> str | None:
        """Why it has ended; None if it has not failed."""
        if self.running is None or self.running.isActive:
            return None
        error = self.running.exception()
        if error is None:
            return None
        return describe_error(self._error) if self._error is not None else first_line(str(error))

    def end_offsets(self) -> list[dict[str, Any]]:
        """The offsets that its sources were read to."""
        progress: Any = None if self.running is None else self.running.lastProgress
        if progress is None:
            return []
        found = [source["endOffset"] for source in progress["sources"]]
        parsed = [json.loads(each) if isinstance(each, str) else each for each in found if each]
        return [each for each in parsed if isinstance(each, dict)]

    def stop(self) -> None:
        if self.running is not None:
            self.running.stop()


def query_id(checkpoint: Path) -> str:
    """Spark's id of a query, which a restart does not change."""
    identity: str = json.loads((checkpoint / "metadata").read_text().splitlines()[-1])["id"]
    return identity


def audit(
    table: Table,
    identity: str,
    name: str,
    number: int,
    rows: Sequence[tuple[int | None, int | None, int]],
) -> None:
    """Note which offsets a batch has brought into a table."""
    written_at = now()
    values = [(identity, name, number, *row, written_at) for row in rows]
    noted = pa.Table.from_pylist([dict(zip(_AUDIT.names, each, strict=True)) for each in values])
    table.append_arrow(noted.cast(_AUDIT), f"{identity}/{name}", number)


def next_offset(audit_table: Table, name: str) -> int:
    """Behind the last offset that was noted for a table; -1 if there is none."""
    import pyarrow.compute as pc

    if not audit_table.exists:
        return -1
    rows = audit_table.rows(["table", "last"], lambda rows: pc.equal(rows["table"], name))
    last = pc.max(rows.column("last")).as_py()
    return -1 if last is None else int(last) + 1


_ERROR = re.compile(r"[\w.]+(Error|Exception|Refusal|Disconnected): ")
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\].*?(?:terminated with exception: |$)", re.DOTALL)


def first_line(text: str) -> str:
    """The line that names the cause, of the many lines of an error of Spark."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [
        line for line in lines if re.match(r"[\w.]+(Error|Exception|Refusal|Disconnected): ", line)
    ]
    if "Traceback" in text and errors:
        kind, _, said = errors[-1].partition(": ")
        return said if kind.startswith("headwater.") else f"{kind.rpartition('.')[2]}: {said}"
    return _STREAM_FAILED.sub("", lines[0] if lines else text) or text[:200]


class _configured:
    """Settings of Spark that hold while a query is started, which keeps them."""

    def __init__(self, spark: Any, settings: dict[str, str]) -> None:
        self._spark, self._settings = spark, settings
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        for name, value in self._settings.items():
            self._before[name] = self._spark.conf.get(name, None)
            self._spark.conf.set(name, value)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            self._spark.conf.unset(name) if value is None else self._spark.conf.set(name, value)
