"""Bronze against what became of it: each record of a topic with a contract is in silver, in
quarantine or in late, and in one of them only.

The one exception is a record with the key of a row of silver: it was left out as a duplicate, which
is counted. Offsets are looked at in windows, one byte for each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.audit.model import Difference, Outcome, Progress, stretches
from headwater.pipeline.audit.records import file_batches, overlapping
from headwater.pipeline.contracts import Contract, contract_of, key_of
from headwater.pipeline.delta import Table
from headwater.pipeline.files import dataset_of

WINDOW = 4_000_000
#: Tables that all contracts share; rows say whose they are.
SHARED = ("quarantine", "late")


@dataclass(slots=True)
class Tally:
    """What was found for one contract so far."""

    contract: Contract
    #: Behind the last offset that one of its tables has: what is newer is lag.
    end: int = 0
    records: int = 0
    newer: int = 0
    left_out: int = 0
    differences: list[Difference] = field(default_factory=list)

    def outcome(self) -> Outcome:
        remarks = []
        if self.left_out:
            remarks.append(f"{self.left_out} duplicates by key were left out")
        if self.newer:
            remarks.append(f"{self.newer} records are newer than the last row")
        what = f"bronze and {self.contract.table}, quarantine, late"
        return Outcome(what, self.records, self.differences, remarks)


def compare(
    tables: Path,
    contracts: Sequence[Contract],
    start: int,
    end: int,
    progress: Progress = lambda rows: None,
) -> list[Outcome]:
    """One outcome for each contract; offsets of bronze are from `start` to before `end`."""
    bronze = Table(tables / "bronze")
    tallies = [Tally(each, _end(tables, each)) for each in contracts]
    for low in range(start, end, WINDOW):
        window = _Window(bronze, contracts, low, min(low + WINDOW, end), progress)
        for number, tally in enumerate(tallies, 1):
            window.check(tables, number, tally)
    return [each.outcome() for each in tallies]


def _end(tables: Path, contract: Contract) -> int:
    """Behind the last offset that the tables of contracts have. They are fed by one query, so what
    one of them has seen all have seen."""
    found = 0
    for name, column in ((contract.table, "_offset"), *((each, "offset") for each in SHARED)):
        table = Table(tables / name)
        if table.exists:
            highs = [each.stats["max"].get(column) for each in table.files()]
            found = max([found, *(int(high) + 1 for high in highs if high is not None)])
    return found


class _Window:
    """Some offsets of bronze, and whose they are: 0 for nobody, else the contract's number."""

    def __init__(
        self,
        bronze: Table,
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

    def check(self, tables: Path, number: int, tally: Tally) -> None:
        wanted = self._owner == number
        tally.records += int(wanted.sum())
        found = np.zeros(self._high - self._low, np.uint8)
        for offsets in _rows_of(tables, tally.contract, self._low, self._high):
            np.add.at(found, offsets - self._low, 1)
        past = np.arange(self._low, self._high) < tally.end
        tally.newer += int((wanted & ~past).sum())
        absent = np.flatnonzero(wanted & past & (found == 0)) + self._low
        unexplained = self._without_duplicates(tables, tally, absent)
        tally.differences += [
            *stretches("missing", unexplained),
            *self._where("repeated", found > 1, found.astype(np.int64) - 1),
            *self._where("strange", (found > 0) & ~wanted),
        ]

    def _where(self, kind: Any, mask: Any, counts: Any = None) -> list[Difference]:
        places = np.flatnonzero(mask)
        return stretches(kind, places + self._low, None if counts is None else counts[places])

    def _without_duplicates(self, tables: Path, tally: Tally, absent: Any) -> Any:
        """Those of the offsets whose key no row of silver has."""
        if not len(absent) or not tally.contract.key:
            return absent
        keys = self._keys(tally.contract, absent)
        known = _known_keys(tables, tally.contract, set(keys.values()))
        explained = {offset for offset, key in keys.items() if key in known}
        tally.left_out += len(explained)
        return np.array([each for each in absent if int(each) not in explained], np.int64)

    def _keys(self, contract: Contract, offsets: Any) -> dict[int, tuple[Any, ...]]:
        """The keys of records of bronze, as far as these have one."""
        wanted, found = pa.array(offsets), {}
        for file in self._files:
            for batch in file_batches(file, ("offset", "value")):
                kept = batch.filter(pc.is_in(batch.column("offset"), wanted))
                for offset, value in zip(*kept.to_pydict().values(), strict=True):
                    key = key_of(contract, value)
                    if key is not None:
                        found[offset] = key
        return found


def _number(contracts: Sequence[Contract], topic: str) -> int:
    owner = contract_of(contracts, topic)
    return 0 if owner is None else contracts.index(owner) + 1


def _rows_of(tables: Path, contract: Contract, low: int, high: int) -> Iterator[Any]:
    """The offsets of a range that its tables have."""
    yield from _offsets(Table(tables / contract.table), "_offset", None, low, high)
    for name in SHARED:
        yield from _offsets(Table(tables / name), "offset", contract.name, low, high)


def _offsets(table: Table, column: str, whose: str | None, low: int, high: int) -> Iterator[Any]:
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


def _known_keys(tables: Path, contract: Contract, keys: set[Any]) -> set[Any]:
    """Those of the keys that silver has."""
    table = Table(tables / contract.table)
    if not keys or not table.exists:
        return set()
    columns = [contract.field(name).column for name in contract.key]
    first = pa.array([key[0] for key in keys]).cast(table.arrow_schema.field(columns[0]).type)
    scanner = dataset_of(table.delta(), table.path).scanner(
        columns, filter=pc.field(columns[0]).isin(first)
    )
    found: set[Any] = set()
    for batch in scanner.to_batches():
        found |= keys & set(zip(*(batch.column(name).to_pylist() for name in columns), strict=True))
    return found
