"""The rows of a replay: records of the log, or rows of a table, in their order.

Every row has a position that never changes: its offset, or in a table without offsets its number in
the version of the table that is replayed. So a range of positions always has the same rows.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from headwater.errors import HeadwaterError
from headwater.filters import RegexFilter
from headwater.flight.requests import HEADERS, READ_SCHEMA
from headwater.pipeline.repair import conditions
from headwater.pipeline.tables.stored import StoredTable, dataset_of, files_of
from headwater.spark.flight_client import FlightClient, RecordSelection

LOG = "log"
#: About so much of the log, or of the files of a table, is in memory at a time.
WINDOW_BYTES = 8 * 1024 * 1024
_LOOK_AHEAD = 1_000_000
_OFFSETS = ("offset", "_offset")
_TOPICS = ("topic", "_topic")
_TIMES = ("timestamp", "_timestamp")

#: The columns of a window. `time` is in microseconds since 1970.
ROWS = pa.schema(
    [
        ("position", pa.int64()),
        ("topic", pa.string()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("time", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class RowWindow:
    """The rows with positions before `end` that come next."""

    end: int
    rows: Any


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """Which rows to replay, fixed when a replay is started."""

    source: str  # "log", or the name of a table
    start: int
    end: int  # behind the last position
    version: int | None = None  # of the table
    topic: str | None = None  # a PCRE pattern
    where: str | None = None
    since: int | None = None  # of a table: microseconds since 1970
    until: int | None = None


class RowSource(Protocol):
    def windows(self, start: int) -> Iterator[RowWindow]:
        """All rows from a position on, in their order."""


def rows_of(order: ReplayOrder, tables: Path, broker: FlightClient) -> RowSource:
    if order.source == LOG:
        return LogRows(order, broker)
    path = tables / order.source
    delta = _delta(path, order.version)
    columns = ReplayColumns.of(pa.schema(delta.schema()))
    kind = OffsetRows if columns.offset else NumberedRows
    return kind(order, delta, path, columns)


def _delta(path: Path, version: int | None) -> DeltaTable:
    StoredTable(path).delta()  # or an error that says what is missing
    return DeltaTable(str(path), version=version)


class LogRows:
    def __init__(self, order: ReplayOrder, broker: FlightClient) -> None:
        self._order, self._broker = order, broker
        self._selection = RecordSelection(pattern=order.topic, headers=True)
        self._condition = conditions.parse(order.where, READ_SCHEMA) if order.where else None

    def windows(self, start: int) -> Iterator[RowWindow]:
        while start < self._order.end:
            ahead = min(start + _LOOK_AHEAD, self._order.end)
            end = self._broker.split(start, ahead, WINDOW_BYTES)[0][1]
            batches = list(self._broker.read(self._selection, start, end))
            yield RowWindow(end, self._rows(pa.Table.from_batches(batches, READ_SCHEMA)))
            start = end

    def _rows(self, found: Any) -> Any:
        if self._condition is not None:
            found = found.filter(self._condition)
        names = ("offset", "topic", "value", "headers")
        times = found["timestamp"].cast(pa.int64())
        return pa.table([*(found[name] for name in names), times], schema=ROWS)


@dataclass(frozen=True, slots=True)
class ReplayColumns:
    """The columns of a table that a replay uses. None: there is no such column."""

    names: Sequence[str]
    offset: str | None
    topic: str | None
    time: str | None
    whole: bool  # rows have the whole record, not typed fields

    @classmethod
    def of(cls, schema: Any) -> "ReplayColumns":
        stamps = [each.name for each in schema if pa.types.is_timestamp(each.type)]
        return cls(
            schema.names,
            _first(_OFFSETS, schema.names),
            _first(_TOPICS, schema.names),
            _first((*_TIMES, *stamps), schema.names),
            "value" in schema.names and pa.types.is_binary(schema.field("value").type),
        )


def _first(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


class TableRows:
    """The rows of a table, with or without offsets."""

    def __init__(
        self, order: ReplayOrder, delta: DeltaTable, path: Path, columns: ReplayColumns
    ) -> None:
        self._order, self._columns, self._delta = order, columns, delta
        self._dataset: Any = dataset_of(delta, path)
        self._matches = RegexFilter.parse(order.topic).matches if order.topic else None
        self._condition = self._combined()

    def _combined(self) -> Any:
        """All conditions as one expression; None: every row."""
        order, wanted = self._order, []
        if order.where:
            wanted.append(conditions.parse(order.where, self._dataset.schema))
        for moment, compare in ((order.since, pc.greater_equal), (order.until, pc.less)):
            if moment is not None:
                wanted.append(compare(pc.field(self._time()), self._moment(moment)))
        combined = None
        for each in wanted:
            combined = each if combined is None else combined & each
        return combined

    def _time(self) -> str:
        if self._columns.time is None:
            raise HeadwaterError(f"the table {self._order.source} has no times to choose by")
        return self._columns.time

    def _moment(self, microseconds: int) -> Any:
        kind = self._dataset.schema.field(self._time()).type
        return pa.scalar(microseconds, pa.int64()).cast(pa.timestamp("us", "UTC")).cast(kind)

    def _rows(self, found: Any, positions: Any) -> Any:
        columns = self._columns
        topics = found[columns.topic] if columns.topic else pa.nulls(len(found), pa.string())
        values = found["value"] if columns.whole else _as_json(found)
        known = columns.whole and "headers" in columns.names
        headers = found["headers"] if known else pa.nulls(len(found), HEADERS)
        times = pa.nulls(len(found), pa.int64())
        if columns.time:
            times = found[columns.time].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        made = [positions, topics, values, headers, times]
        casts = [pa.chunked_array(_chunks(c), f.type) for c, f in zip(made, ROWS, strict=True)]
        return self._of_topics(pa.table(casts, schema=ROWS))

    def _of_topics(self, rows: Any) -> Any:
        if self._matches is None:
            return rows
        names = [name for name in pc.unique(rows["topic"]).to_pylist() if name is not None]
        wanted = [name for name in names if self._matches(name)]
        return rows.filter(pc.is_in(rows["topic"], pa.array(wanted, pa.string())))


class OffsetRows(TableRows):
    """Of a table whose rows come from the log, by offset."""

    def windows(self, start: int) -> Iterator[RowWindow]:
        name = self._columns.offset
        step = self._step()
        while start < self._order.end:
            end = min(start + step, self._order.end)
            wanted = (pc.field(name) >= start) & (pc.field(name) < end)
            if self._condition is not None:
                wanted = wanted & self._condition
            found = self._dataset.to_table(filter=wanted).sort_by(name)
            yield RowWindow(end, self._rows(found, found[name]))
            start = end

    def _step(self) -> int:
        """How many offsets have about as many bytes as a window should have."""
        size = sum(each.bytes for each in files_of(self._delta, Path()))
        span = self._order.end - self._order.start
        return max(min(span * WINDOW_BYTES // max(size, 1), _LOOK_AHEAD), 1)


class NumberedRows(TableRows):
    """Of a table that is only known by its rows: a small one, such as those of gold."""

    def windows(self, start: int) -> Iterator[RowWindow]:
        found = self._dataset.to_table(filter=self._condition)
        plain = [each.name for each in found.schema if not pa.types.is_nested(each.type)]
        time = [self._columns.time] if self._columns.time else []
        # Everything is sorted by, so that the order is the same each time.
        found = found.sort_by([(name, "ascending") for name in dict.fromkeys([*time, *plain])])
        positions = pa.array(np.arange(len(found), dtype=np.int64))
        yield RowWindow(self._order.end, self._rows(found, positions).slice(start))


def _chunks(column: Any) -> Any:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _as_json(found: Any) -> Any:
    """Rows as JSON objects, without the columns that the pipeline added."""
    names = [name for name in found.column_names if not name.startswith("_") and name != "date"]
    rows = found.select(names).to_pylist()
    return pa.array([json.dumps(row, default=_json_value).encode() for row in rows], pa.binary())


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return float(value) if isinstance(value, Decimal) else str(value)
