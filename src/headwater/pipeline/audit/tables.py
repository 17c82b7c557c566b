"""Bronze against silver, quarantine and late: each record of a topic with a contract is in exactly
one of them.

The one exception is a record that repeats the key of a row of silver: it was left out, which is
counted (repeats.py). Offsets are looked at in windows, one byte for each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.audit.checkpoint import finished_end
from headwater.pipeline.audit.files import file_batches, offset_bounds, overlapping
from headwater.pipeline.audit.keys import SilverKeys
from headwater.pipeline.audit.model import AuditOutcome, Difference, Progress, stretches
from headwater.pipeline.audit.repeats import Arrival, RepeatJudge
from headwater.pipeline.care.retention import kept_from
from headwater.pipeline.contracts import Contract, Record, contract_of, verdict_of
from headwater.pipeline.contracts.values import microseconds_of
from headwater.pipeline.project.paths import CHECKPOINTS, CONTRACTS_QUERY, REDRIVE, REDRIVEN
from headwater.pipeline.tables.stored import StoredTable

WINDOW = 4_000_000
#: Tables that all contracts share; rows say whose they are.
QUARANTINE = "quarantine"
SHARED = (QUARANTINE, "late", REDRIVEN)


@dataclass(slots=True)
class ContractTally:
    """The findings for one contract so far."""

    contract: Contract
    repeats: RepeatJudge
    #: None after a redrive: the running query does not know the keys that it has added to silver.
    keys: SilverKeys | None
    #: Retention has deleted rows before this offset.
    start: int = 0
    #: Behind the last offset that its tables have seen: newer records are lag.
    end: int = 0
    records: int = 0
    newer: int = 0
    expired: int = 0
    left_out: int = 0
    forgotten: int = 0
    unknown: int = 0
    twice: int = 0
    differences: list[Difference] = field(default_factory=list)

    def outcome(self) -> AuditOutcome:
        told = {
            "duplicates by key were left out": self.left_out,
            "records are newer than what its tables have seen": self.newer,
            f"records are before the offset {self.start}, and retention has deleted rows of that "
            "time": self.expired,
            "records may repeat a row that retention has deleted": self.unknown,
            "rows repeat the key of another one within dedupe_window": self.twice,
            "of the missing have the key of a row, but one that dedupe_window does not reach": (
                self.forgotten
            ),
        }
        remarks = [f"{count} {words}" for words, count in told.items() if count]
        what = f"bronze and {self.contract.table}, quarantine, late"
        return AuditOutcome(what, self.records, self.differences, remarks)


def compare(
    tables: Path,
    contracts: Sequence[Contract],
    start: int,
    end: int,
    progress: Progress = lambda rows: None,
) -> list[AuditOutcome]:
    """One outcome for each contract; offsets of bronze are from `start` to before `end`."""
    if not contracts:
        return []
    bronze = StoredTable(tables / "bronze")
    tallies = _tallies(tables, contracts)
    for low in range(start, end, WINDOW):
        window = _OffsetWindow(bronze, contracts, low, min(low + WINDOW, end), progress)
        for number, tally in enumerate(tallies, 1):
            window.check(tables, number, tally)
    return [each.outcome() for each in tallies]


def _tallies(tables: Path, contracts: Sequence[Contract]) -> list[ContractTally]:
    redriven = StoredTable(tables / QUARANTINE).last_batch(REDRIVE) is not None
    return [
        ContractTally(
            each,
            RepeatJudge(tables, each, redriven),
            None if redriven else SilverKeys(StoredTable(tables / each.table), each),
            max(kept_from(StoredTable(tables / name)) for name in (each.table, *SHARED)),
            _end(tables, each),
        )
        for each in contracts
    ]


def _end(tables: Path, contract: Contract) -> int:
    """Behind the last offset that the tables of contracts have seen. They are fed by one query, but
    get their rows of a batch one after the other; only its checkpoint says when all have them.
    Where there is none, the newest row has to do."""
    found = finished_end(tables.parent / CHECKPOINTS / CONTRACTS_QUERY)
    if found is not None:
        return found
    found = 0
    for name, column in ((contract.table, "_offset"), *((each, "offset") for each in SHARED)):
        table = StoredTable(tables / name)
        if table.exists:
            highs = [offset_bounds(each, column)[1] for each in table.files()]
            found = max([found, *(high + 1 for high in highs if high is not None)])
    return found


class _OffsetWindow:
    """A range of offsets of bronze with the contract of each: its number, or 0 for none."""

    def __init__(
        self,
        bronze: StoredTable,
        contracts: Sequence[Contract],
        low: int,
        high: int,
        progress: Progress,
    ) -> None:
        self._files = [each for each in bronze.files() if each.path.exists()]
        self._files = overlapping(self._files, low, high)
        self._low, self._high = low, high
        self._owner = np.zeros(high - low, np.int16)
        numbers: dict[str, int] = {}
        for file in self._files:
            for batch in file_batches(file, ("offset", "topic")):
                self._own(batch, contracts, numbers)
                progress(len(batch))

    def _own(self, batch: Any, contracts: Sequence[Contract], numbers: dict[str, int]) -> None:
        topics = pc.dictionary_encode(batch.column("topic"))
        names = topics.dictionary.to_pylist()
        for name in names:
            if name not in numbers:
                numbers[name] = _number(contracts, name)
        owners = np.array([numbers[name] for name in names], np.int16)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        here = (offsets >= self._low) & (offsets < self._high)
        self._owner[offsets[here] - self._low] = owners[topics.indices.to_numpy()][here]

    def check(self, tables: Path, number: int, tally: ContractTally) -> None:
        mine, offsets = self._owner == number, np.arange(self._low, self._high)
        tally.records += int(mine.sum())
        found = np.zeros(self._high - self._low, np.uint8)
        for rows in _rows_of(tables, tally.contract, self._low, self._high):
            np.add.at(found, rows - self._low, 1)
        tally.newer += int((mine & (offsets >= tally.end) & (found == 0)).sum())
        tally.expired += int((mine & (offsets < tally.start)).sum())
        wanted = mine & (offsets >= tally.start) & (offsets < tally.end)
        absent = offsets[wanted & (found == 0)]
        tally.differences += [
            *stretches("missing", self._without_repeats(tally, absent)),
            *self._where("repeated", found > 1, found.astype(np.int64) - 1),
            *self._where("strange", (found > 0) & ~mine),
        ]
        if tally.keys is not None:
            twice = tally.keys.twice(self._low, self._high)
            tally.differences += stretches("repeated", twice)
            tally.twice += len(twice)

    def _where(self, kind: Any, mask: Any, counts: Any = None) -> list[Difference]:
        places = np.flatnonzero(mask)
        return stretches(kind, places + self._low, None if counts is None else counts[places])

    def _without_repeats(self, tally: ContractTally, absent: Any) -> Any:
        """The offsets that are missing without a reason."""
        if not len(absent) or not tally.contract.key:
            return absent
        judged = tally.repeats.judge(self._records(tally.contract, absent))
        tally.left_out += len(judged.left_out)
        tally.unknown += len(judged.unknown)
        tally.forgotten += len(judged.forgotten)
        missing = {*absent.tolist()} - judged.left_out - judged.unknown
        return np.array(sorted(missing), np.int64)

    def _records(self, contract: Contract, offsets: Any) -> dict[Arrival, tuple[Any, ...]]:
        """Records of bronze that belong into silver, with their keys, as far as they have one."""
        wanted, found = pa.array(offsets), {}
        for file in self._files:
            for batch in file_batches(file, ("offset", "topic", "value", "timestamp")):
                kept = batch.filter(pc.is_in(batch.column("offset"), wanted))
                for offset, topic, value, time in zip(*kept.to_pydict().values(), strict=True):
                    verdict = verdict_of(contract, Record(topic, value, time, offset))
                    if verdict.place == "silver" and verdict.key is not None:
                        found[Arrival(offset, microseconds_of(time))] = verdict.key
        return found


def _number(contracts: Sequence[Contract], topic: str) -> int:
    owner = contract_of(contracts, topic)
    return 0 if owner is None else contracts.index(owner) + 1


def _rows_of(tables: Path, contract: Contract, low: int, high: int) -> Iterator[Any]:
    """The offsets of a range that its tables have."""
    yield from _offsets(StoredTable(tables / contract.table), "_offset", None, low, high)
    for name in SHARED:
        yield from _offsets(StoredTable(tables / name), "offset", contract.name, low, high)


def _offsets(
    table: StoredTable, column: str, whose: str | None, low: int, high: int
) -> Iterator[Any]:
    if not table.exists:
        return
    columns = [column] if whose is None else [column, "contract"]
    files = [each for each in table.files() if each.path.exists()]
    for file in overlapping(files, low, high, column):
        for batch in file_batches(file, columns):
            if whose is not None:
                batch = batch.filter(pc.equal(batch.column("contract"), whose))
            offsets = batch.column(column).to_numpy(zero_copy_only=False)
            yield offsets[(offsets >= low) & (offsets < high)]
