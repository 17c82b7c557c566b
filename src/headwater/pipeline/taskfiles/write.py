"""Rows that are written where they are read.

A task reads a part of the log, makes rows of it with Arrow, writes them as Parquet files into the
staging directory of their table, and gives Spark one row for each file:

    table     whose rows these are
    path      the file, below <tables>/<table>/_staging/<attempt>/
    keys      16 bytes for each row, by which repeats are found; null if the table has no key
    times     arrival of each row, 8 bytes each; null likewise
    news      fields that have no column yet, as JSON; then nothing was written, and it has to be
              done again when they have one

The driver commits the files of a micro-batch, all or none (pieces.py, delta.py). Files of a task
that was repeated are not among them, and are removed by upkeep.

What is here runs in tasks, each in a process that imports it: it imports no more than it needs.
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
from headwater.spark.options import Source
from headwater.spark.source import StreamReader, schema

PIECES = "table string, path string, keys binary, times binary, news string"
#: The column of 16 bytes by which repeats are found. It is not written.
DIGEST = "_digest"

_PIECES = pa.schema(
    [
        ("table", pa.string()),
        ("path", pa.string()),
        ("keys", pa.binary()),
        ("times", pa.binary()),
        ("news", pa.string()),
    ]
)
# So much of the log becomes one file, unless it ends before.
_FILE_BYTES = 256 * 1024 * 1024
_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows for a table, made by a task; or news instead."""

    table: str
    rows: Any
    partition_by: tuple[str, ...]
    news: str | None = None


Make = Callable[[Any], Iterable[Rows]]


class FileReader(StreamReader):
    """A stream of the log that is a stream of files."""

    def __init__(self, options: Source, tables: Path, make: Make) -> None:
        super().__init__(options, schema(options))
        self._tables, self._make = tables, make

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for records in gathered(super().read(partition)):
            for made in self._make(records):
                yield from _pieces(made, self._tables)


def gathered(batches: Iterable[Any]) -> Iterator[Any]:
    """Record batches as tables of a good size."""
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


def _pieces(made: Rows, tables: Path) -> Iterator[Any]:
    """Write rows, and tell of the files."""
    if made.news is not None:
        news = {"table": made.table, "news": made.news}
        yield pa.RecordBatch.from_pylist([news], schema=_PIECES)
        return
    for rows, path in written(made, tables):
        told: dict[str, Any] = {"table": made.table, "path": str(path), **_keys(rows)}
        yield pa.RecordBatch.from_pylist([told], schema=_PIECES)


def written(made: Rows, tables: Path) -> Iterator[tuple[Any, Path]]:
    """Write rows to the staging directory of their table, each partition to a file."""
    place = tables / made.table / STAGING / uuid.uuid4().hex
    for rows in _parted(made.rows, made.partition_by):
        folder = place.joinpath(*_folders(rows, made.partition_by))
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "part.zstd.parquet"
        write(rows.drop_columns([*made.partition_by, *_own(rows)]), file)
        yield rows, file


def _own(rows: Any) -> list[str]:
    return [DIGEST] if DIGEST in rows.column_names else []


def _keys(rows: Any) -> dict[str, bytes]:
    if not _own(rows):
        return {}
    times = rows.column("_timestamp").cast(pa.int64()).to_numpy()
    return {"keys": packed(rows.column(DIGEST)), "times": times.tobytes()}


def packed(digests: Any) -> bytes:
    """The bytes of a column of digests, one after the other."""
    size, parts = digests.type.byte_width, []
    for each in digests.chunks:
        content = each.buffers()[1]
        parts.append(content.slice(each.offset * size, len(each) * size).to_pybytes())
    return b"".join(parts)


def _parted(rows: Any, partition_by: Sequence[str]) -> Iterator[Any]:
    """Rows by partition. Mostly there is one."""
    if not len(rows):
        return
    (name, *others) = partition_by
    values = pc.unique(rows.column(name))
    for value in values:
        part = rows if len(values) == 1 else rows.filter(pc.equal(rows.column(name), value))
        if others:
            yield from _parted(part, others)
        else:
            yield part


def _folders(rows: Any, partition_by: Sequence[str]) -> list[str]:
    return [f"{name}={quote(str(rows.column(name)[0]), safe='')}" for name in partition_by]


def write(rows: Any, file: Path) -> None:
    plain = {"value", *OFFSETS}  # these rarely repeat, so a dictionary of them is lost work
    pq.write_table(
        rows,
        file,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in rows.column_names if name not in plain],
        write_statistics=[name for name in rows.column_names if name != "value"],
    )
