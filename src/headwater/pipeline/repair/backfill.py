"""Backfill: a range of the log, read again into a table that lacks some of it.

The definition of the table is run once more, in batch and over the range only. Rows whose offset
the table has already are left out, so it can be repeated without harm: one that was killed before
its row was in the audit table gets that row from the next one. A definition that keeps state from
record to record cannot be run on a part of the log; such a table is rebuilt instead.
"""

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headwater.errors import ConfigError, HeadwaterError
from headwater.pipeline.care.retention import kept_from
from headwater.pipeline.contracts.source import NAME as CONTRACTS
from headwater.pipeline.definitions.graph import Node, OutputKind
from headwater.pipeline.definitions.names import Names
from headwater.pipeline.project import intents
from headwater.pipeline.project.paths import AUDIT, OFFSETS
from headwater.pipeline.project.project import Project
from headwater.pipeline.publish import broker_of
from headwater.pipeline.run.queries import audit
from headwater.pipeline.run.runner import only_runner, open_project
from headwater.pipeline.tables.delta import Table
from headwater.spark.flight_client import FlightClient

#: What reads the log.
_SOURCES = ("headwater", CONTRACTS)
#: Options of a stream that mean nothing in batch, or that the range takes the place of.
_STREAMING = {
    "startingoffsets",
    "startingtimestamp",
    "maxoffsetspertrigger",
    "maxbytespertrigger",
    "minoffsetspertrigger",
    "maxtriggerdelay",
}


@dataclass(frozen=True, slots=True)
class BackfillResult:
    start: int
    end: int
    rows: int


def backfill(
    project: Project, spark: SparkSession, name: str, start: str | None, end: str | None
) -> BackfillResult:
    """Fill a table. `start` and `end` are offsets or times; without them, all of the log."""
    with only_runner(project):
        graph, names, store = open_project(spark, project)
        node = graph.nodes.get(name)
        if node is None or node.kind is not OutputKind.TABLE or not store.ours:
            raise HeadwaterError(f"{name} is no table of this project that can be filled")
        broker = broker_of(spark)
        log = broker.log()
        # What retention has deleted stays away, unless someone asks for it.
        oldest = max(log.start, kept_from(store.table(name)))
        low = oldest if start is None else max(log.start, _offset(start, broker))
        high = log.end if end is None else min(log.end, _offset(end, broker))
        if low >= high:
            raise HeadwaterError(f"there is nothing to read: the log has {log.start} to {log.end}")
        rows = _rows(node, names, spark, low, high)
        filling = _Filling(store.table(name), store.table(AUDIT), project.state)
        return BackfillResult(low, high, filling.add(node, rows))


def _offset(written: str, broker: FlightClient) -> int:
    if written.isdigit():
        return int(written)
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise ConfigError(
            f'"{written}" is neither an offset such as 42 nor a time such as 2026-01-31T12:00'
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return broker.offset_at(int(moment.timestamp() * 1000))


class _Filling:
    """Adds rows to a table and a row about them to the audit table, once, whoever is killed."""

    def __init__(self, table: Table, audits: Table, state: Path) -> None:
        self._table, self._audits = table, audits
        self._begun = state / f"backfill-{table.name}.json"

    def add(self, node: Node, rows: DataFrame) -> int:
        """Add those rows whose offset the table lacks; returns how many."""
        column = next((name for name in OFFSETS if name in rows.columns), None)
        if column is None or node.keys:
            raise HeadwaterError(
                f"rows of {node.name} do not say which record they came from: rebuild it with "
                f"`headwater pipeline run --full-refresh {node.name}`"
            )
        self._audit()
        if self._table.exists:
            there = self._table.frame(rows.sparkSession).select(column)
            rows = rows.join(there, column, "left_anti")
        query = f"backfill-{uuid.uuid4()}"
        intents.write(self._begun, {"query": query})
        written = self._table.append(rows.select(*rows.columns), query, 0, node.partition_by)
        self._audit()
        return written.rows

    def _audit(self) -> None:
        """Note what the backfill that was begun has brought into the table."""
        if not self._begun.exists():
            return
        query = json.loads(self._begun.read_text())["query"]
        written = self._table.committed(query, 0)
        if written.rows:
            noted = [(written.first, written.last, written.rows)]
            audit(self._audits, query, self._table.name, 0, noted)
        self._begun.unlink()


def _rows(node: Node, names: Names, spark: SparkSession, start: int, end: int) -> DataFrame:
    """What the definition makes of the records of a range."""
    try:
        with names.reading_streams_with(lambda: _RangeReader(spark, names, start, end)):
            frame = names.evaluate(node.flows[0].func).frame
        frame.schema  # noqa: B018  (analysed only now)
    except AnalysisException as error:
        raise HeadwaterError(
            f"{node.name} cannot be computed from a part of the log "
            f"({str(error).splitlines()[0][:120]}): rebuild it with "
            f"`headwater pipeline run --full-refresh {node.name}`"
        ) from None
    return frame


class _RangeReader:
    """Takes the place of `spark.readStream`, and reads a range in batch."""

    def __init__(self, spark: SparkSession, names: Names, start: int, end: int) -> None:
        self._reader: Any = spark.read
        self._names, self._start, self._end = names, start, end
        self._ours = False

    def format(self, source: str) -> "_RangeReader":
        self._ours = source in _SOURCES
        self._reader = self._reader.format(source)
        return self

    def option(self, key: str, value: Any) -> "_RangeReader":
        if key.lower() not in _STREAMING:
            self._reader = self._reader.option(key, value)
        return self

    def options(self, **options: Any) -> "_RangeReader":
        for key, value in options.items():
            self.option(key, value)
        return self

    def schema(self, schema: Any) -> "_RangeReader":
        self._reader = self._reader.schema(schema)
        return self

    def load(self, *path: str) -> DataFrame:
        if not self._ours:
            raise HeadwaterError("only definitions that read the log or a table can be run again")
        self._reader = self._reader.option("startingOffsets", str(self._start))
        found: DataFrame = self._reader.option("endingOffsets", str(self._end)).load(*path)
        return found

    def table(self, name: str) -> DataFrame:
        node = self._names.find(name)
        if node is None:
            found: DataFrame = self._reader.table(name)
            return found
        rows = self._names.batch(node)
        column = next((each for each in OFFSETS if each in rows.columns), None)
        if column is None:
            raise HeadwaterError(f"rows of {name} do not say which record they came from")
        return rows.where(f"`{column}` >= {self._start} AND `{column}` < {self._end}")
