"""The log against bronze: counts and checksums by range of offsets.

The records of the log (over Flight) and the rows of bronze (from its files) are added up by one
function, see checksum.py. Each is read once, in any order, with a few batches in memory. A range
that differs is looked at offset by offset.

These are no errors:

- Retention has deleted the beginning of the log: that part is only in bronze, where each offset has
  to be once.
- The log had dropped records before they could be read: bronze has noted that.
- Records are newer than the last batch of bronze: that is lag.
- Old rows of bronze were deleted, because the table has a retention of its own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from headwater.errors import HeadwaterError, Refusal
from headwater.pipeline.audit import checksum
from headwater.pipeline.audit.batches import AuditedBatch, AuditedBatches
from headwater.pipeline.audit.files import file_batches, offset_bounds, overlapping
from headwater.pipeline.audit.model import AuditOutcome, Difference, Progress, stretches
from headwater.pipeline.care.retention import kept_from
from headwater.pipeline.tables.spark_parquet import SparkParquetTable
from headwater.pipeline.tables.stored import StoredTable, TableFile
from headwater.spark.flight_client import FlightClient, RecordSelection

RANGE = 100_000
#: So many ranges that differ are compared offset by offset; of the others only counts are reported.
EXAMINED = 50
_TASK_OFFSETS = 500_000
_THREADS = 4


@dataclass(frozen=True, slots=True)
class AuditBounds:
    """The offsets to compare, the first one in the log, and the ranges that bronze never got."""

    start: int
    end: int
    kept: int
    lost: Sequence[AuditedBatch] = ()

    def edges(self) -> Any:
        inner = range(self.start - self.start % RANGE + RANGE, self.end, RANGE)
        kept = [self.kept] if self.start < self.kept < self.end else []
        return np.array(sorted({self.start, *inner, *kept, self.end}), np.int64)

    def expected(self, low: int, high: int) -> Any:
        """The offsets of a range that bronze has to have."""
        every = np.arange(low, high, dtype=np.int64)
        for each in self.lost:
            if each.first < high and each.last >= low:
                every = every[(every < each.first) | (every > each.last)]
        return every


def bounds_of(
    broker: FlightClient, bronze: StoredTable | SparkParquetTable, batches: AuditedBatches
) -> tuple[AuditBounds, list[str]]:
    """The offsets to compare, and remarks about the others."""
    files, remarks = bronze.files(), []
    log = broker.log()  # afterwards: a pipeline that runs may write what came in between
    bounds = [offset_bounds(each) for each in files]
    lows = [low for low, _ in bounds if low is not None]
    highs = [high for _, high in bounds if high is not None]
    known = [] if batches.first is None else [batches.first]
    start = min([*lows, *known, *([log.start] if lows else [])], default=log.end)
    if (kept := kept_from(bronze) if isinstance(bronze, StoredTable) else 0) > start:
        start = kept
        remarks.append(f"rows of bronze before the offset {start} were deleted by its retention")
    end = max([*(high + 1 for high in highs), batches.end or 0, start])
    if end > log.end:
        raise HeadwaterError(
            f"bronze has records up to {end - 1}, but the log ends at {log.end}: this is not the "
            "log that it was made from"
        )
    if start < log.start:
        gone = min(log.start, end) - start
        remarks.append(f"retention has taken {gone} records from the log: they are only in bronze")
    if end < log.end:
        remarks.append(f"{log.end - end} records are newer than the last batch of bronze")
    return AuditBounds(start, end, log.start, batches.lost), remarks


def compare(
    broker: FlightClient,
    bronze: StoredTable | SparkParquetTable,
    bounds: AuditBounds,
    progress: Progress = lambda rows: None,
) -> AuditOutcome:
    files = bronze.files()
    remarks = [f"the file {each.path.name} is gone" for each in files if not each.path.exists()]
    files = [each for each in files if each.path.exists()]
    in_log, in_table = _sums(broker, files, bounds, progress)
    differing = [
        (int(low), int(high), place)
        for place, (low, high) in enumerate(pairwise(bounds.edges()))
        if not _same(in_log, in_table, place, int(low), int(high), bounds)
    ]
    differences: list[Difference] = []
    for low, high, _ in differing[:EXAMINED]:
        differences += examine(broker, files, low, high, bounds)
    for low, high, place in differing[EXAMINED:]:
        differences += _roughly(bounds.expected(low, high), int(in_table.counts[place]), low, high)
    return AuditOutcome("log and bronze", int(in_table.counts.sum()), differences, remarks)


class Sums:
    """Counts and checksums by range."""

    def __init__(self, edges: Any) -> None:
        self._edges = edges
        self.counts = np.zeros(len(edges) - 1, np.int64)
        self.offsets = np.zeros(len(edges) - 1, np.uint64)
        self.records = np.zeros(len(edges) - 1, np.uint64)

    def add(self, offsets: Any, records: Any) -> None:
        places = np.searchsorted(self._edges, offsets, "right") - 1
        for place in np.unique(places):
            if 0 <= place < len(self.counts):
                here, one = places == place, slice(place, place + 1)
                self.counts[one] += np.count_nonzero(here)
                # Sums of arrays go round at 2⁶⁴ as they should; those of numbers would warn.
                self.offsets[one] += checksum.mixed(offsets[here]).sum()
                self.records[one] += records[here].sum()

    def merge(self, other: "Sums") -> None:
        self.counts += other.counts
        self.offsets += other.offsets
        self.records += other.records


def _sums(
    broker: FlightClient, files: Sequence[TableFile], bounds: AuditBounds, progress: Progress
) -> tuple[Sums, Sums]:
    """Of both sides, read at the same time."""
    edges = bounds.edges()
    begin = min(max(bounds.start, bounds.kept), bounds.end)
    cuts = [*range(begin, bounds.end, _TASK_OFFSETS), bounds.end]
    in_log, in_table = Sums(edges), Sums(edges)
    with ThreadPoolExecutor(_THREADS, "audit") as pool:
        log_tasks = [
            pool.submit(_added, edges, partial(log_batches, broker, low, high), progress)
            for low, high in pairwise(cuts)
        ]
        table_tasks = [
            pool.submit(_added, edges, partial(file_batches, each), progress)
            for each in overlapping(files, bounds.start, bounds.end)
        ]
        try:
            for sums, tasks in ((in_log, log_tasks), (in_table, table_tasks)):
                for task in tasks:
                    sums.merge(task.result())
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return in_log, in_table


def _added(edges: Any, batches: Callable[[], Iterable[Any]], progress: Progress) -> Sums:
    sums = Sums(edges)
    for batch in batches():
        sums.add(checksum.offsets_of(batch), checksum.of_records(batch))
        progress(len(batch))
    return sums


def log_batches(broker: FlightClient, start: int, end: int) -> Iterator[Any]:
    try:
        yield from broker.read(RecordSelection(headers=True), start, end)
    except Refusal as error:
        raise HeadwaterError(f"the log has changed meanwhile; try again: {error}") from None


def _same(log: Sums, table: Sums, place: int, low: int, high: int, bounds: AuditBounds) -> bool:
    """Whether a range is in the table as it should be."""
    expected = bounds.expected(low, high)
    every = checksum.mixed(expected).sum()
    complete = table.counts[place] == len(expected) and table.offsets[place] == every
    if high <= bounds.kept:
        return bool(complete)
    return bool(complete and table.records[place] == log.records[place])


def _roughly(expected: Any, found: int, low: int, high: int) -> list[Difference]:
    if found == len(expected):
        return [Difference("changed", low, high - 1, found)]
    kind: Any = "missing" if found < len(expected) else "repeated"
    return [Difference(kind, low, high - 1, abs(len(expected) - found))]


def examine(
    broker: FlightClient, files: Sequence[TableFile], low: int, high: int, bounds: AuditBounds
) -> list[Difference]:
    """The differences in a range, offset by offset."""
    batches = (batch for each in overlapping(files, low, high) for batch in file_batches(each))
    there, numbers = _collected(batches, low, high)
    unique, first, counts = np.unique(there, return_index=True, return_counts=True)
    found = [
        *stretches("missing", np.setdiff1d(bounds.expected(low, high), unique)),
        *stretches("repeated", unique[counts > 1], counts[counts > 1] - 1),
    ]
    if high > bounds.kept:
        known, wanted = _collected(log_batches(broker, max(low, bounds.kept), high), low, high)
        _, mine, theirs = np.intersect1d(unique, known, True, return_indices=True)
        differ = numbers[first][mine] != wanted[theirs]
        found += stretches("changed", unique[mine][differ])
    return found


def _collected(batches: Iterable[Any], low: int, high: int) -> tuple[Any, Any]:
    """Offsets and checksums of the records of a range."""
    offsets, numbers = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
    for batch in batches:
        found = checksum.offsets_of(batch)
        here = (found >= low) & (found < high)
        if here.any():
            offsets.append(found[here])
            numbers.append(checksum.of_records(batch)[here])
    return np.concatenate(offsets), np.concatenate(numbers)
