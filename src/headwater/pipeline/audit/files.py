"""Reads the files of tables: batch by batch, and only those that may have offsets of a range."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from headwater.pipeline.audit import checksum
from headwater.pipeline.tables.parquet import footer_bounds, with_usual_types
from headwater.pipeline.tables.spark_parquet import SparkParquetTable
from headwater.pipeline.tables.stored import StoredTable, TableFile

_READ_ROWS = 32_768


def file_batches(file: TableFile, columns: Sequence[str] = checksum.COLUMNS) -> Iterator[Any]:
    with pq.ParquetFile(file.path) as source:
        for batch in source.iter_batches(_READ_ROWS, columns=list(columns), use_threads=False):
            yield with_usual_types(batch)


def overlapping(
    files: Sequence[TableFile], start: int, end: int, name: str = "offset"
) -> list[TableFile]:
    """The files that may have offsets of a range."""
    found = []
    for each in files:
        low, high = offset_bounds(each, name)
        if (low is None or low < end) and (high is None or high >= start):
            found.append(each)
    return found


def offset_bounds(file: TableFile, name: str = "offset") -> tuple[int | None, int | None]:
    """The smallest and the largest offset of a file. Delta's log may not have them: compaction
    writes bounds of the first 32 columns only."""
    low, high = file.stats["min"].get(name), file.stats["max"].get(name)
    if low is not None and high is not None:
        return int(low), int(high)
    return footer_bounds(file.path, name) if file.path.exists() else (None, None)


def open_table(path: Path) -> StoredTable | SparkParquetTable:
    """The table in a directory, however it was written."""
    files = SparkParquetTable(path)
    if files.exists:
        return files
    table = StoredTable(path)
    table.delta()  # or an error that says that it is missing
    return table
