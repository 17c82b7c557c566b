"""Redrive: quarantined records are judged again after a contract changed, or published again.

To the tables: records that fit now become rows of silver (unless silver has a row with their key)
or of late, and leave quarantine; the others stay, with their new reason.

To the topic: records are published to the topics that they came from, and leave quarantine.

A redrive may be killed at any time and run again. Records are taken some thousand at a time; those
whose offset is in a table already are not added again, and records leave quarantine last. The
offsets of a batch are noted in state/redrive.json before it is published, so that a run after a
kill publishes the very same batch, which the broker takes once.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction

from headwater.errors import HeadwaterError
from headwater.pipeline.contracts.judge import RECORD
from headwater.pipeline.contracts.model import Contract, contract_of
from headwater.pipeline.contracts.repeats import NO_KEY, digests
from headwater.pipeline.contracts.source import LATE, QUARANTINE, ContractTables
from headwater.pipeline.project import intents
from headwater.pipeline.project.paths import REDRIVE, REDRIVEN
from headwater.pipeline.tables.delta import Table, lock_of, with_retries
from headwater.pipeline.tables.parquet import Addition
from headwater.pipeline.tables.stored import StoredTable, Wanted
from headwater.pipeline.taskfiles.collect import discard, staged_file
from headwater.pipeline.taskfiles.write import DIGEST, TaskRows, write_files

if TYPE_CHECKING:
    from headwater.spark.flight_client import FlightClient

Progress = Callable[[int, int], None]

#: So many records leave quarantine in one step, and are published in one batch.
CHUNK = 50_000
_CHANGES = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("gone", pa.bool_()),
        pa.field("contract", pa.string()),
        pa.field("rule", pa.string()),
        pa.field("reason", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class QuarantineSelection:
    """The records of quarantine that a redrive is about."""

    contract: str | None = None
    rule: str | None = None

    def mask(self, rows: Any) -> Any:
        found = pa.repeat(True, len(rows))
        for name, value in (("contract", self.contract), ("rule", self.rule)):
            if value is not None:
                found = pc.and_(found, pc.fill_null(pc.equal(rows.column(name), value), False))
        return found


@dataclass(frozen=True, slots=True)
class RedriveOutcome:
    """The numbers of records by what became of them, or would become."""

    records: int
    silver: dict[str, int] = field(default_factory=dict)
    late: int = 0
    #: Records that fit, but whose key is in silver already.
    repeated: int = 0
    stayed: dict[str, int] = field(default_factory=dict)
    published: int = 0


@dataclass(slots=True)
class _Count:
    """The same numbers while the redrive runs."""

    records: int = 0
    silver: Counter[str] = field(default_factory=Counter)
    late: int = 0
    repeated: int = 0
    stayed: Counter[str] = field(default_factory=Counter)

    def outcome(self) -> RedriveOutcome:
        return RedriveOutcome(
            self.records, dict(self.silver), self.late, self.repeated, dict(self.stayed)
        )


class QuarantineRedrive:
    def __init__(self, storage: Path, contracts: Sequence[Contract]) -> None:
        self._storage, self._contracts = storage, tuple(contracts)
        self._directory = storage / "tables"
        self._quarantine = Table(self._directory / QUARANTINE)
        self._state = storage / "state" / "contracts"
        self._keys: dict[str, set[bytes]] = {}  # that this run has brought into silver

    def identity(self, selected: QuarantineSelection) -> str:
        """A name that only the same contracts, quarantine and selection give."""
        text = repr((self._contracts, self._quarantine.version, selected))
        return f"redrive/{sha256(text.encode()).hexdigest()[:16]}"

    def count(self, selected: QuarantineSelection) -> int:
        return len(self._offsets(selected))

    def _offsets(self, selected: QuarantineSelection) -> Any:
        """In order. A record may be in quarantine twice if a table was rebuilt halfway."""
        if not self._quarantine.exists:
            return pa.array([], pa.int64())
        found = self._quarantine.rows(["offset", "contract", "rule"], selected.mask)
        return pc.unique(found.column("offset").sort())

    def _records(self, offsets: Any) -> Any:
        rows = self._quarantine.rows(RECORD.names, _has("offset", offsets)).cast(RECORD)
        places = pa.table({"offset": rows.column("offset"), "at": pa.array(range(len(rows)))})
        first = places.group_by("offset").aggregate([("at", "min")]).sort_by("offset")
        return rows.take(first.column("at_min"))

    # To the tables

    def look(self, selected: QuarantineSelection) -> RedriveOutcome:
        """The outcome that `to_tables` would have."""
        return self._run(selected, lambda *_: None, really=False)

    def to_tables(self, selected: QuarantineSelection, progress: Progress) -> RedriveOutcome:
        return self._run(selected, progress, really=True)

    def _run(
        self, selected: QuarantineSelection, progress: Progress, really: bool
    ) -> RedriveOutcome:
        if not self._contracts:
            raise HeadwaterError("the project has no contracts")
        offsets, count, self._keys = self._offsets(selected), _Count(), {}
        identity = self.identity(selected) if len(offsets) else ""
        for batch, start in enumerate(range(0, len(offsets), CHUNK)):
            records = self._records(offsets.slice(start, CHUNK))
            rows = self._judged(records, really)
            fresh = [self._fresh(each, count) for each in rows if each.table != QUARANTINE]
            if really:
                for each in fresh:
                    self._append(each, identity, batch)
                self._change(records, rows, identity, batch)
            stayed = [each for each in rows if each.table == QUARANTINE]
            count.stayed.update(rule for e in stayed for rule in e.rows.column("rule").to_pylist())
            count.records += len(records)
            progress(count.records, len(offsets))
        return count.outcome()

    def _judged(self, records: Any, really: bool) -> list[TaskRows]:
        """Rows for the tables. New fields get a column first, unless this is a dry run."""
        while True:
            tables = ContractTables(self._contracts, self._state, learning=really)
            rows = list(tables.rows(records))
            new = [(each.table, each.new_fields) for each in rows if each.new_fields is not None]
            if not new:
                return rows
            tables.learn(new)

    def _fresh(self, made: TaskRows, count: _Count) -> TaskRows:
        """The rows that are in no table yet, and whose key is not in silver."""
        rows = made.rows
        name = "offset" if made.table == LATE else "_offset"
        there = self._there(made.table, name, rows.column(name))
        known = pc.is_in(rows.column(name), value_set=there.column(name).combine_chunks())
        if made.table == LATE:
            count.late += len(rows)
            return TaskRows(made.table, rows.filter(pc.invert(known)), made.partition_by)
        contract = next(each for each in self._contracts if each.table == made.table)
        repeated = self._repeated(contract, rows, known)
        count.repeated += repeated.true_count
        count.silver[contract.name] += len(rows) - repeated.true_count
        kept = rows.filter(pc.invert(pc.or_(known, repeated)))
        return TaskRows(made.table, kept, made.partition_by)

    def _there(self, table: str, column: str, values: Any, *more: str) -> Any:
        """Rows of a table that have one of these values."""
        known = StoredTable(self._directory / table)
        if not known.exists:
            return pa.table({name: pa.array([], values.type) for name in (column, *more)})
        return known.rows([column, *more], _has(column, pc.unique(values)))

    def _repeated(self, contract: Contract, rows: Any, known: Any) -> Any:
        """Which rows have a key that silver has, or that another one before it has."""
        if not contract.key:
            return pa.repeat(False, len(rows))
        (first, *others) = [contract.field(name).column for name in contract.key]
        there = self._there(contract.table, first, rows.column(first), *others)
        seen = self._keys.setdefault(contract.name, set())
        seen.update(digests(contract, there).to_pylist() if len(there) else ())
        found = []
        for digest, before in zip(rows.column(DIGEST).to_pylist(), known.to_pylist(), strict=True):
            found.append(digest != NO_KEY and digest in seen and not before)
            seen.add(digest)
        return pa.array(found, pa.bool_())

    def _append(self, made: TaskRows, identity: str, batch: int) -> None:
        files = tuple(staged_file(path) for _, path in write_files(made, self._directory))
        schema = ContractTables(self._contracts, self._state).spark_schema(made.table)
        table = Table(self._directory / made.table)
        table.append_files(Addition(files, schema), identity, batch, made.partition_by)
        discard(files)

    # Leaving quarantine

    def _change(self, records: Any, rows: Sequence[TaskRows], identity: str, batch: int) -> None:
        """Take the records that fit out of quarantine, and give the others their new reason."""
        names = ["offset", "contract", "rule", "reason"]
        stayed = [each.rows.select(names) for each in rows if each.table == QUARANTINE]
        told = pa.concat_tables(stayed) if stayed else _CHANGES.empty_table().select(names)
        left = pc.invert(pc.is_in(records.column("offset"), value_set=told.column("offset")))
        gone = records.column("offset").filter(left)
        self._merge(pa.concat_tables([_gone(gone), _stayed(told)]), identity, batch)

    def _merge(self, changes: Any, identity: str, batch: int) -> None:
        # The audit has to know that a redrive has been here.
        noted = [Transaction(identity, batch), Transaction(REDRIVE, 1)]
        once = CommitProperties(app_transactions=noted)

        def merge() -> None:
            merger = self._quarantine.delta().merge(
                changes, "t.offset = s.offset", "s", "t", commit_properties=once
            )
            new = {name: f"s.{name}" for name in ("contract", "rule", "reason")}
            merger.when_matched_delete("s.gone").when_matched_update(new).execute()

        if len(changes):
            with lock_of(self._quarantine.path):
                with_retries(merge)

    # To the topic

    def to_topic(
        self, selected: QuarantineSelection, broker: "FlightClient", progress: Progress
    ) -> RedriveOutcome:
        """Publish records to their topics. A batch that an earlier run began is finished first."""
        published = 0
        if (begun := self._begun()) is not None:
            published += self._publish(*begun, broker)
        left = self._offsets(selected)
        total = published + len(left)
        for offsets in _chunks(left):
            name = sha256(repr((self.identity(selected), offsets)).encode()).hexdigest()[:16]
            self._note(name, offsets)
            published += self._publish(name, offsets, broker)
            progress(published, total)
        return RedriveOutcome(published, published=published)

    def _publish(self, name: str, offsets: list[int], broker: "FlightClient") -> int:
        rows = self._records(pa.array(offsets, pa.int64()))
        query = f"redrive/{name}"
        if len(rows) and broker.committed(query) is None:
            messages = rows.select(["topic", "value", "headers"])
            broker.stage(query, 0, 0, "0", messages.to_batches())
            broker.commit(query, 0, {"0": "0"})
        self._note_redriven(rows, query)
        self._merge(_gone(pa.chunked_array([pa.array(offsets, pa.int64())])), query, 0)
        self._file.unlink(missing_ok=True)
        return len(rows)

    def _note_redriven(self, rows: Any, query: str) -> None:
        """For the audit: these records are in no other table any more."""
        owners = [contract_of(self._contracts, each) for each in rows.column("topic").to_pylist()]
        names = pa.array([None if each is None else each.name for each in owners], pa.string())
        noted = pa.table({"offset": rows.column("offset"), "contract": names})
        if len(noted):
            Table(self._directory / REDRIVEN).append_arrow(noted, query, 0)

    @property
    def _file(self) -> Path:
        return self._storage / "state" / "redrive.json"

    def _begun(self) -> tuple[str, list[int]] | None:
        if not self._file.exists():
            return None
        content = json.loads(self._file.read_text())
        return content["name"], content["offsets"]

    def _note(self, name: str, offsets: list[int]) -> None:
        intents.write(self._file, {"name": name, "offsets": offsets})


def _has(column: str, values: Any) -> Wanted:
    """Rows with one of these values."""
    return lambda rows: pc.is_in(rows.column(column), value_set=values)


def _chunks(offsets: Any) -> Iterator[list[int]]:
    for start in range(0, len(offsets), CHUNK):
        yield offsets.slice(start, CHUNK).to_pylist()


def _gone(offsets: Any) -> Any:
    """Changes that take records out."""
    empty = pa.nulls(len(offsets), pa.string())
    columns = [offsets, pa.repeat(True, len(offsets)), empty, empty, empty]
    return pa.table(columns, schema=_CHANGES)


def _stayed(told: Any) -> Any:
    """Changes that give records another reason."""
    columns = [told.column(name) for name in ("offset", "contract", "rule", "reason")]
    return pa.table([columns[0], pa.repeat(False, len(told)), *columns[1:]], schema=_CHANGES)
