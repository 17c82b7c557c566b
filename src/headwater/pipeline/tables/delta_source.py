"""A table as a stream: the rows that were added to it.

A position says which file comes next:

    {"index": 3, "snapshot": true, "version": 7}    file 3 of all the files of version 7
    {"index": 0, "snapshot": false, "version": 8}   file 0 of those that version 8 has added

A stream begins with all files of the version that is there, the oldest records first, and goes on
with the files that later versions add. A version that only rearranges rows, or deletes old ones,
adds none. A table whose rows are replaced cannot be a stream: reading it raises an error.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headwater.errors import HeadwaterError
from headwater.pipeline.project.paths import OFFSETS
from headwater.pipeline.tables.stored import TableFile, files_of
from headwater.spark.arrow_schemas import arrow_schema

NAME = "headwater_table"
#: The most rows in a micro-batch, unless one file has more.
MOST_ROWS = 2_000_000
# A task is worth starting for so many rows.
_TASK_ROWS = 250_000
_READ_ROWS = 65_536
#: Operations that move or delete rows, but add none.
_REARRANGED = {"OPTIMIZE", "DELETE", "VACUUM START", "VACUUM END"}

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True, order=True)
class TablePosition:
    version: int
    index: int
    snapshot: bool

    @classmethod
    def of(cls, offset: Offset) -> "TablePosition":
        return cls(offset["version"], offset["index"], offset["snapshot"])

    def offset(self) -> Offset:
        return {"index": self.index, "snapshot": self.snapshot, "version": self.version}


#: Nothing was read yet, and it is not known which version will be the first.
_BEGINNING = TablePosition(-1, 0, True)


@dataclass
class TableFiles(InputPartition):
    """The files that one task reads."""

    files: list[TableFile]


class TableSource(DataSource):
    """Options: `path`, and `maxRowsPerTrigger`. The schema has to be given."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> "TableReader":
        most = int(self.options.get("maxRowsPerTrigger", MOST_ROWS))
        return TableReader(Path(self.options["path"]), schema, most)


class TableReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, path: Path, schema: StructType, most_rows: int = MOST_ROWS) -> None:
        self._path, self._schema, self._most_rows = path, schema, most_rows
        self._target: float = math.inf  # the last version, with Trigger.AvailableNow

    def initialOffset(self) -> Offset:
        return _BEGINNING.offset()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._version()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._most_rows)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        version = min(self._version(), self._target)
        most = math.inf if isinstance(limit, ReadAllAvailable) else self._most_rows
        return self._after(TablePosition.of(start), int(version), most).offset()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        files = list(self._between(TablePosition.of(start), TablePosition.of(end)))
        return [TableFiles(part) for part in _parts(files)] if files else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of some files, as record batches. Runs in a task."""
        if isinstance(partition, TableFiles):
            wanted = arrow_schema(self._schema)
            for file in partition.files:
                yield from _rows_of(file, wanted)

    def pending(self, start: Offset) -> int:
        """The number of rows behind a position."""
        rows, at = 0, TablePosition.of(start)
        while (end := self._after(at, self._version(), math.inf)) != at:
            rows += sum(file.rows for file in self._between(at, end))
            at = end
        return rows

    # Inside

    def _version(self) -> int:
        """The newest version; -1 if the table does not exist yet."""
        log = (self._path / "_delta_log").glob("*.json")
        return max((int(each.stem) for each in log if each.stem.isdigit()), default=-1)

    def _after(self, at: TablePosition, version: int, most: float) -> TablePosition:
        """The end of the micro-batch that begins at `at`."""
        if version < 0:
            return at
        if at == _BEGINNING:
            at = TablePosition(version, 0, True)
            return _within(self._snapshot(version), at, most) or _BEGINNING
        if at.snapshot:
            within = _within(self._snapshot(at.version)[at.index :], at, most)
            if within is not None:
                return within
            at = TablePosition(at.version + 1, 0, False)
        return self._after_commits(at, version, most)

    def _after_commits(self, at: TablePosition, version: int, most: float) -> TablePosition:
        end, rows = at, 0
        for number in range(at.version, version + 1):
            added = commit_files(self._path, number)
            skipped = at.index if number == at.version else 0
            for index, file in enumerate(added[skipped:], skipped):
                rows += file.rows
                last = index + 1 == len(added)
                end = (
                    TablePosition(number + 1, 0, False)
                    if last
                    else TablePosition(number, index + 1, False)
                )
                if rows >= most:
                    return end
        return end

    def _between(self, start: TablePosition, end: TablePosition) -> Iterator[TableFile]:
        if end == _BEGINNING:  # the first micro-batch of a stream may well be empty
            return
        if end.snapshot:
            first = 0 if start == _BEGINNING else start.index
            yield from self._snapshot(end.version)[first : end.index]
            return
        if start.snapshot:  # all of it was read, or it would not have ended behind it
            start = TablePosition(start.version + 1, 0, False)
        for number in range(start.version, end.version + 1):
            if number == end.version and not end.index:
                return
            added = commit_files(self._path, number)
            first = start.index if number == start.version else 0
            yield from added[first : end.index if number == end.version else None]

    def _snapshot(self, version: int) -> list[TableFile]:
        """All files of a version, those with the oldest records first."""
        return snapshot_files(self._path, version)


@lru_cache(maxsize=8)
def snapshot_files(path: Path, version: int) -> list[TableFile]:
    return sorted(files_of(DeltaTable(str(path), version=version), path), key=_age)


@lru_cache(maxsize=4096)
def commit_files(path: Path, version: int) -> list[TableFile]:
    """The files with new rows that a version has added."""
    try:
        text = (path / "_delta_log" / f"{version:020}.json").read_text()
    except FileNotFoundError:
        raise HeadwaterError(
            f"version {version} of the table {path.name} is no longer known: this stream was "
            "stopped for too long. Rebuild its table with `headwater pipeline run --full-refresh`"
        ) from None
    actions = [json.loads(line) for line in text.splitlines()]
    info: dict[str, Any] = next(
        (each["commitInfo"] for each in actions if "commitInfo" in each), {}
    )
    if info.get("operation") in _REARRANGED:
        return []
    new = [each["add"] for each in actions if each.get("add", {}).get("dataChange")]
    if any(each.get("remove", {}).get("dataChange") for each in actions):
        raise HeadwaterError(
            f"rows of the table {path.name} are replaced, so it cannot be read as a stream: "
            "read it in batch, in a materialized view"
        )
    return sorted((_added(path, each) for each in new), key=_age)


def _added(path: Path, action: dict[str, Any]) -> TableFile:
    stats = json.loads(action.get("stats") or "{}")
    bounds = {"min": stats.get("minValues", {}), "max": stats.get("maxValues", {})}
    partition = action.get("partitionValues") or {}
    rows = stats.get("numRecords", 0)
    return TableFile(path / unquote(action["path"]), rows, partition, bounds, action["size"])


def _age(file: TableFile) -> tuple[float, str]:
    """Sorts files by the oldest record in them, as far as that is known."""
    low = file.stats["min"]
    for name in OFFSETS:
        if low.get(name) is not None:
            return float(low[name]), ""
    first = next((low[name] for name in ("timestamp", "_timestamp") if low.get(name)), "")
    text = first.isoformat() if isinstance(first, datetime) else str(first)
    return math.inf, f"{text} {file.path.name}"


def _within(files: Sequence[TableFile], at: TablePosition, most: float) -> TablePosition | None:
    """Behind the next files of a snapshot; None if there are none left."""
    rows, count = 0, 0
    for file in files:
        count, rows = count + 1, rows + file.rows
        if rows >= most:
            break
    return TablePosition(at.version, at.index + count, True) if count else None


def _parts(files: Sequence[TableFile]) -> Iterator[list[TableFile]]:
    """Files for tasks: as many as there are cores to use, in order."""
    total = sum(file.rows for file in files)
    share = max(_TASK_ROWS, math.ceil(total / max(os.cpu_count() or 1, 1)))
    part: list[TableFile] = []
    rows = 0
    for file in files:
        part.append(file)
        rows += file.rows
        if rows >= share:
            yield part
            part, rows = [], 0
    if part:
        yield part


def _rows_of(file: TableFile, wanted: Any) -> Iterator[Any]:
    try:
        source = pq.ParquetFile(file.path)
    except FileNotFoundError:
        raise HeadwaterError(
            f"{file.path} is deleted: this stream was stopped for longer than old files are kept. "
            "Rebuild its table with `headwater pipeline run --full-refresh`"
        ) from None
    with source:
        there = [field.name for field in source.schema_arrow if field.name in wanted.names]
        for batch in source.iter_batches(_READ_ROWS, columns=there):
            yield _fitted(batch, file, wanted)


def _fitted(batch: Any, file: TableFile, wanted: Any) -> Any:
    """The columns that are wanted, in their order and of their types."""
    columns = []
    for field in wanted:
        if field.name in batch.schema.names:
            columns.append(batch.column(field.name).cast(field.type))
        else:
            value = pa.scalar(file.partition.get(field.name))
            filled = pa.repeat(value.cast(field.type), batch.num_rows)
            columns.append(filled)
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
