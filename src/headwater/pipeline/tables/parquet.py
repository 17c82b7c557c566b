"""Staged Parquet files: written by tasks, not yet part of a table; and their lines in Delta's log.

A batch is written below a directory of its own, one directory level per partition column:

    <staged>/date=2026-01-31/topic_group=shop%2Fold/part-00000-….parquet

Names of directories are escaped (`%2F`). Only the footers are read here, not the data.
"""

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from headwater.pipeline.project.paths import OFFSETS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Spark's directory for rows whose partition column is null.
_NULL = "__HIVE_DEFAULT_PARTITION__"

#: A longer text is cut in a bound, as Delta allows.
MOST_TEXT = 64
_BEHIND_ALL = "\U0010ffff"

Bound = int | float | str | date | datetime | Decimal


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that is written, but not part of a table yet."""

    path: Path
    #: The directories between the table and the file, as they are on disk.
    folder: Path
    rows: int
    bytes: int
    partition: Mapping[str, str | None]
    low: Mapping[str, Bound]
    high: Mapping[str, Bound]
    nulls: Mapping[str, int]

    @property
    def first(self) -> int | None:
        """The smallest offset in it, where there is such a column."""
        return next((self.low[name] for name in OFFSETS if name in self.low), None)  # type: ignore[return-value]

    def action(self, name: str) -> AddAction:
        """The line of Delta's log for this file, which then has this name in its folder."""
        stats = {
            "numRecords": self.rows,
            "minValues": {column: _bound(value) for column, value in self.low.items()},
            "maxValues": {column: _bound(value, up=True) for column, value in self.high.items()},
            "nullCount": dict(self.nulls),
        }
        return AddAction(
            path=(self.folder / name).as_posix(),  # deltalake encodes it
            size=self.bytes,
            partition_values=self.partition,
            modification_time=int(time.time() * 1000),
            data_change=True,
            stats=json.dumps(stats),
        )


@dataclass(frozen=True, slots=True)
class Addition:
    """The files that a micro-batch adds to a table, and the columns that they have."""

    files: tuple[StagedFile, ...]
    schema: "StructType"


def staged_files(directory: Path) -> Iterator[StagedFile]:
    """The files below a directory that Spark has written. Those without rows are left out."""
    for path in sorted(directory.rglob("*.parquet")):
        file = read_staged_file(path, path.parent.relative_to(directory))
        if file.rows:
            yield file


def read_staged_file(path: Path, folder: Path) -> StagedFile:
    """A file as its footer describes it."""
    metadata = pq.read_metadata(path)
    low, high, nulls = _bounds(metadata)
    size, partition = path.stat().st_size, partition_of(folder)
    return StagedFile(path, folder, metadata.num_rows, size, partition, low, high, nulls)


#: deltalake writes these types when it merges, and pyarrow cannot compare them with anything.
_USUAL_TYPES = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}


def with_usual_types(batch: Any) -> Any:
    """A batch of a file, with texts and bytes of the usual types."""
    fields = [field.with_type(_USUAL_TYPES.get(field.type, field.type)) for field in batch.schema]
    return batch.cast(pa.schema(fields))


def partition_of(folder: Path) -> dict[str, str | None]:
    pairs = (part.split("=", 1) for part in folder.parts)
    return {unquote(name): None if value == _NULL else unquote(value) for name, value in pairs}


def _bounds(metadata: Any) -> tuple[dict[str, Bound], dict[str, Bound], dict[str, int]]:
    """The smallest and the largest value of each column that has an order worth knowing, and how
    many of its values are null."""
    low: dict[str, Bound] = {}
    high: dict[str, Bound] = {}
    nulls: dict[str, int] = {}
    for index, name in _ordered(metadata.schema.to_arrow_schema()).items():
        groups = [
            metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)
        ]
        known = [group.statistics for group in groups if group.statistics is not None]
        if len(known) < len(groups) or not all(each.has_null_count for each in known):
            continue
        nulls[name] = sum(each.null_count for each in known)
        bounded = [each for each in known if each.has_min_max]
        if bounded and len(bounded) == len(known):
            low[name] = min(each.min for each in bounded)
            high[name] = max(each.max for each in bounded)
    return low, high, nulls


def footer_bounds(path: Path, name: str) -> tuple[int | None, int | None]:
    """The smallest and the largest number of a column of a file, as far as its footer says it."""
    footer = pq.read_metadata(path)
    lows, highs = [], []
    for group in range(footer.num_row_groups):
        columns = (footer.row_group(group).column(place) for place in range(footer.num_columns))
        stats = next((each.statistics for each in columns if each.path_in_schema == name), None)
        if stats is None or not stats.has_min_max:
            return None, None
        lows.append(stats.min)
        highs.append(stats.max)
    return min(lows, default=None), max(highs, default=None)


def _ordered(schema: Any) -> dict[int, str]:
    """Columns that Delta keeps bounds of, by their index in the file: all of them, because readers
    take a bound that is missing for one that nothing fits."""
    found, index = {}, 0
    for field in schema:
        if any(test(field.type) for test in _HAVE_BOUNDS):
            found[index] = field.name
        index += _leaves(field.type)
    return found


_HAVE_BOUNDS = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_boolean,
)


def _leaves(kind: Any) -> int:
    """How many columns of the file a column of the table takes."""
    if pa.types.is_nested(kind):
        return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))
    return 1


def _bound(value: Bound, up: bool = False) -> int | float | str:
    """A bound as Delta has it. Times have milliseconds there, so an upper bound is rounded up."""
    if isinstance(value, str) and len(value) > MOST_TEXT:
        return value[:MOST_TEXT] + (_BEHIND_ALL if up else "")
    if isinstance(value, float) and not math.isfinite(value):  # JSON has no other numbers
        return sys.float_info.max if up else -sys.float_info.max
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        value += timedelta(microseconds=-value.microsecond % 1000 if up else 0)
        return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else value
