"""Records that are in no table: those that repeat a key, and those that only seem to.

A record is left out if silver has a row with its key that came before it, at most the contract's
`dedupe_window` earlier (contracts/repeats.py). That is exact, so a record without such a row is
missing. There are two exceptions: a redrive leaves out a record if silver has its key from any
time, and retention may have deleted the row that was there first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.care.retention import kept_from
from headwater.pipeline.contracts import Contract
from headwater.pipeline.tables.stored import StoredTable

_NEVER = 2**62


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a record came, in microseconds since 1970."""

    offset: int
    time: int


@dataclass(frozen=True, slots=True)
class RepeatFindings:
    """Offsets of records that are in no table: those that were left out as repeats, or may have
    been; those that may repeat a row which retention has deleted; and those whose key is in silver,
    but too long before them, or behind them. Of the others nothing is known."""

    left_out: set[int]
    unknown: set[int]
    forgotten: set[int]


class RepeatJudge:
    """Judges the records of one contract that are in none of its tables."""

    def __init__(self, tables: Path, contract: Contract, redriven: bool) -> None:
        self._contract, self._redriven = contract, redriven
        self._silver = StoredTable(tables / contract.table)
        self._window = round(contract.dedupe_window * 1e6)

    def judge(self, records: Mapping[Arrival, tuple[Any, ...]]) -> RepeatFindings:
        """`records`: those that are missing, with their keys."""
        kept = self._kept(set(records.values()))
        left_out, unknown, forgotten = set(), set(), set()
        deleted = self._deleted()
        for record, key in records.items():
            rows = kept.get(key, [])
            if any(self._repeats(record, row) for row in rows):
                left_out.add(record.offset)
            elif any(self._repeats(record, row) for row in deleted):
                unknown.add(record.offset)
            elif rows:
                forgotten.add(record.offset)
        return RepeatFindings(left_out, unknown, forgotten)

    def _deleted(self) -> list[Arrival]:
        """The last row that retention may have deleted: those before it came no later."""
        if not (begin := kept_from(self._silver)):
            return []
        times = [min(_microseconds(each, "_timestamp")) for each in self._rows(["_timestamp"])]
        return [Arrival(begin - 1, min(times, default=_NEVER))]

    def _repeats(self, record: Arrival, row: Arrival) -> bool:
        if self._redriven:
            return True
        return row.offset < record.offset and record.time - row.time <= self._window

    def _kept(self, keys: set[Any]) -> dict[Any, list[Arrival]]:
        """The rows of silver that have one of the keys."""
        if not keys or not self._silver.exists:
            return {}
        names = [self._contract.field(name).column for name in self._contract.key]
        kind = self._silver.arrow_schema.field(names[0]).type
        first = pa.array([key[0] for key in keys]).cast(kind)
        found: dict[Any, list[Arrival]] = {}
        for every in self._rows([*names, "_offset", "_timestamp"]):
            batch = every.filter(pc.is_in(every.column(names[0]), first))
            columns = [batch.column(name).to_pylist() for name in names]
            offsets, times = batch.column("_offset").to_pylist(), _microseconds(batch, "_timestamp")
            for key, offset, time in zip(zip(*columns, strict=True), offsets, times, strict=True):
                if key in keys:
                    found.setdefault(key, []).append(Arrival(offset, time))
        return found

    def _rows(self, columns: list[str]) -> Any:
        """All of silver. Without a condition: pyarrow cannot compare texts with the bounds of files
        that deltalake has written anew."""
        batches = self._silver.dataset().scanner(columns).to_batches()
        return (each for each in batches if len(each))


def _microseconds(batch: Any, name: str) -> list[int]:
    stamps = batch.column(name).cast(pa.timestamp("us", tz="UTC"))
    found: list[int] = stamps.cast(pa.int64()).to_pylist()
    return found
