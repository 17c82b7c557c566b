"""The task's side: read a part of the log, make rows of it, write them, and name the files.

A task gives Spark one row for each file:

    table        the table that the rows belong to
    path         the file, below <tables>/<table>/_staging/<attempt>/
    keys         16 bytes for each row, by which repeats are found; null if the table has no key
    times        the arrival of each row, 8 bytes each; null if the table has no key
    new_fields   fields that have no column yet, as JSON. The task has written nothing then: the
                 driver adds the columns, and the micro-batch runs again
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from headwater.pipeline.project.paths import OFFSETS, STAGING
from headwater.spark.options import SourceOptions
from headwater.spark.source import StreamReader, schema

#: The columns above, as Spark and as Arrow write them.
FILE_COLUMNS = "table string, path string, keys binary, times binary, new_fields string"
_FILE_COLUMNS = pa.schema(
    [
        ("table", pa.string()),
        ("path", pa.string()),
        ("keys", pa.binary()),
        ("times", pa.binary()),
        ("new_fields", pa.string()),
    ]
)
#: The column of 16 bytes by which repeats are found. It is not written to the file.
DIGEST = "_digest"

# A file holds so much of the log, unless the task's part ends before.
_FILE_BYTES = 256 * 1024 * 1024
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Rows that a task has made for a table; or, without rows, the new fields it has found."""

    table: str
    rows: Any
    partition_by: tuple[str, ...]
    new_fields: str | None = None


MakeRows = Callable[[Any], Iterable[TaskRows]]


class FileReader(StreamReader):
    """Reads the log as a stream of files: each task writes the rows that `make_rows` returns."""

    def __init__(self, options: SourceOptions, tables: Path, make_rows: MakeRows) -> None:
        super().__init__(options, schema(options))
        self._tables, self._make_rows = tables, make_rows

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for records in gather(super().read(partition)):
            for rows in self._make_rows(records):
                for file in _write(rows, self._tables):
                    yield pa.RecordBatch.from_pylist([file], schema=_FILE_COLUMNS)


def gather(batches: Iterable[Any]) -> Iterator[Any]:
    """Record batches, joined to tables of the size of a file."""
    waiting: list[Any] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= _FILE_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def dates(stamps: Any) -> Any:
    """The days of timestamps, UTC."""
    days = pc.floor(pc.divide(pc.cast(stamps, pa.int64()).cast(pa.float64()), float(_DAY)))
    return days.cast(pa.int32()).cast(pa.date32())


def _write(rows: TaskRows, tables: Path) -> Iterator[dict[str, Any]]:
    """Write rows, and yield a row of FILE_COLUMNS for each file."""
    if rows.new_fields is not None:
        yield {"table": rows.table, "new_fields": rows.new_fields}
        return
    for part, path in write_files(rows, tables):
        yield {"table": rows.table, "path": str(path), **_keys(part)}


def write_files(rows: TaskRows, tables: Path) -> Iterator[tuple[Any, Path]]:
    """Write rows to a staging directory of their table, one file for each partition."""
    attempt = tables / rows.table / STAGING / uuid.uuid4().hex
    for part in _partitions(rows.rows, rows.partition_by):
        folder = attempt.joinpath(*_folders(part, rows.partition_by))
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "part.zstd.parquet"
        write_parquet(part.drop_columns([*rows.partition_by, *_digest_column(part)]), file)
        yield part, file


def _digest_column(rows: Any) -> list[str]:
    return [DIGEST] if DIGEST in rows.column_names else []


def _keys(rows: Any) -> dict[str, bytes]:
    if not _digest_column(rows):
        return {}
    times = rows.column("_timestamp").cast(pa.int64()).to_numpy()
    return {"keys": _digest_bytes(rows.column(DIGEST)), "times": times.tobytes()}


def _digest_bytes(digests: Any) -> bytes:
    """The bytes of a column of digests, one digest after the other."""
    size, parts = digests.type.byte_width, []
    for each in digests.chunks:
        content = each.buffers()[1]
        parts.append(content.slice(each.offset * size, len(each) * size).to_pybytes())
    return b"".join(parts)


def _partitions(rows: Any, partition_by: Sequence[str]) -> Iterator[Any]:
    """Rows by partition. Mostly there is one."""
    if not len(rows):
        return
    (name, *others) = partition_by
    values = pc.unique(rows.column(name))
    for value in values:
        part = rows if len(values) == 1 else rows.filter(pc.equal(rows.column(name), value))
        if others:
            yield from _partitions(part, others)
        else:
            yield part


def _folders(rows: Any, partition_by: Sequence[str]) -> list[str]:
    return [f"{name}={quote(str(rows.column(name)[0]), safe='')}" for name in partition_by]


def write_parquet(rows: Any, file: Path) -> None:
    # These columns rarely repeat a value, so building a dictionary of them is lost work.
    without_dictionary = {"value", *OFFSETS}
    pq.write_table(
        rows,
        file,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in rows.column_names if name not in without_dictionary],
        write_statistics=[name for name in rows.column_names if name != "value"],
    )
