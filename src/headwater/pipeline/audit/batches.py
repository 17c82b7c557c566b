"""The batches of a table, as the table `audit` lists them: without gaps and overlaps.

The audit table has a row for each batch of each table: its first and last offset and how many rows.
A batch without rows is a range that the log had dropped before it could be read. Batches of a query
that the table does not know are from before the table was rebuilt, and are ignored.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from headwater.pipeline.audit.model import AuditOutcome, Difference
from headwater.pipeline.project.paths import AUDIT
from headwater.pipeline.tables.stored import StoredTable

BACKFILL = "backfill-"


@dataclass(frozen=True, slots=True, order=True)
class AuditedBatch:
    first: int
    last: int
    rows: int
    #: A backfill: it has filled a range that was missing, maybe only a part of it.
    filled: bool


@dataclass(frozen=True, slots=True)
class AuditedBatches:
    """The batches of one table, by offset."""

    written: Sequence[AuditedBatch]
    #: Ranges that could not be read.
    lost: Sequence[AuditedBatch]

    @property
    def first(self) -> int | None:
        return min((each.first for each in (*self.written, *self.lost)), default=None)

    @property
    def end(self) -> int | None:
        """Behind the last offset."""
        return max((each.last + 1 for each in self.written), default=None)


def batches_of(tables: Path, name: str) -> AuditedBatches:
    noted, table = StoredTable(tables / AUDIT), StoredTable(tables / name)
    if not noted.exists or not table.exists:
        return AuditedBatches([], [])
    rows = noted.rows(
        noted.arrow_schema.names, lambda rows: pc.equal(rows["table"], name)
    ).to_pylist()
    known = {query for query in {row["query"] for row in rows} if _is_known(table, query)}
    found = sorted(
        AuditedBatch(row["first"], row["last"], row["rows"], row["query"].startswith(BACKFILL))
        for row in rows
        if row["query"] in known and row["first"] is not None
    )
    return AuditedBatches(
        [each for each in found if each.rows], [each for each in found if not each.rows]
    )


def _is_known(table: StoredTable, query: str) -> bool:
    return table.last_batch(query) is not None


def check(name: str, batches: AuditedBatches) -> AuditOutcome:
    """Whether batches of a table that has every record follow each other."""
    differences: list[Difference] = []
    remarks = [
        f"the offsets {each.first} to {each.last} were dropped by the log before they were read"
        for each in batches.lost
    ]
    regular = [each for each in batches.written if not each.filled]
    filled = [each for each in batches.written if each.filled]
    end = None
    for each in sorted([*regular, *batches.lost]):
        if end is not None and each.first > end and not _covers(filled, end, each.first - 1):
            differences.append(Difference("missing", end, each.first - 1, each.first - end))
        if end is not None and each.first < end:
            last = min(end - 1, each.last)
            differences.append(Difference("repeated", each.first, last, last - each.first + 1))
        if each.rows and each.rows != each.last - each.first + 1:
            missing = each.last - each.first + 1 - each.rows
            kind: Difference = (
                Difference("missing", each.first, each.last, missing)
                if missing > 0
                else Difference("repeated", each.first, each.last, -missing)
            )
            differences.append(kind)
        end = max(end or 0, each.last + 1)
    rows = sum(each.rows for each in batches.written)
    return AuditOutcome(f"batches of {name}", rows, differences, remarks)


def _covers(filled: Sequence[AuditedBatch], first: int, last: int) -> bool:
    return any(each.first <= first and each.last >= last for each in filled)
