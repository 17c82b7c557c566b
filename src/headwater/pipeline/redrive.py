"""Quarantined records once more: into the tables, after a contract changed, or back to their topic.

To the tables: records that fit now become rows of silver (unless one with their key is there) or of
late, and leave quarantine; the others stay, with the reason that holds now.

It may be killed at any time and run again. The rows of one run are one batch, known by the
contracts and the version of quarantine, and rows whose offset is in a table already are left out.
Records leave quarantine last. What is published is noted in state/redrive.json first, so that a run
after a kill publishes the very same batch, which the broker takes once.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction

from headwater.errors import HeadwaterError
from headwater.pipeline.contracts.expressions import classified
from headwater.pipeline.contracts.fields import key_text, literal
from headwater.pipeline.contracts.model import Contract
from headwater.pipeline.contracts.tables import LATE, PARTITION_COLUMNS, QUARANTINE, Layer
from headwater.pipeline.delta import Table, lock_of, retried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.broker import Broker

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
class Selected:
    """Which records of quarantine."""

    contract: str | None = None
    rule: str | None = None

    def condition(self) -> str:
        tests = [
            f"{name} = {literal(value)}"
            for name, value in (("contract", self.contract), ("rule", self.rule))
            if value is not None
        ]
        return " AND ".join(tests) or "true"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the records, or would."""

    records: int
    silver: dict[str, int] = field(default_factory=dict)
    late: int = 0
    #: Records that fit, but whose key is in silver already.
    repeated: int = 0
    stayed: dict[str, int] = field(default_factory=dict)
    published: int = 0


class Redrive:
    def __init__(self, spark: "SparkSession", storage: Path, contracts: Sequence[Contract]) -> None:
        self._spark, self._storage, self._contracts = spark, storage, tuple(contracts)
        self._tables = storage / "tables"
        self._quarantine = Table(self._tables / QUARANTINE)
        self._layer = Layer(contracts, storage / "state" / "contracts")

    def identity(self, selected: Selected) -> str:
        """The same for the same contracts, the same quarantine and the same choice."""
        text = repr((self._contracts, self._quarantine.version, selected))
        return f"redrive/{sha256(text.encode()).hexdigest()[:16]}"

    def count(self, selected: Selected) -> int:
        if not self._quarantine.exists:
            return 0
        return self._records(selected).count()

    def _records(self, selected: Selected) -> "DataFrame":
        return self._quarantine.frame(self._spark).where(selected.condition())

    # To the tables

    def look(self, selected: Selected) -> Outcome:
        """What would happen."""
        if not self._contracts:
            raise HeadwaterError("the project has no contracts")
        judged = self._judged(selected)
        try:
            return self._outcome(judged)
        finally:
            judged.unpersist()

    def to_tables(self, selected: Selected, progress: Progress) -> Outcome:
        if not self._contracts:
            raise HeadwaterError("the project has no contracts")
        identity, judged = self.identity(selected), self._judged(selected)
        try:
            outcome = self._outcome(judged)
            fresh = judged.where("_fresh")
            for each in self._contracts:
                rows = self._layer.silver(fresh, each)
                self._table(each.table).append(rows, identity, 0, PARTITION_COLUMNS)
            self._table(LATE).append(self._layer.late(fresh), identity, 0, PARTITION_COLUMNS)
            self._change(judged, identity, outcome.records, progress)
        finally:
            judged.unpersist()
        return outcome

    def _table(self, name: str) -> Table:
        return Table(self._tables / name)

    def _judged(self, selected: Selected) -> "DataFrame":
        """The records with their verdict; `_fresh`: they are in no table yet."""
        records = self._records(selected).drop("contract", "rule", "reason", "date")
        # A record may be in quarantine twice if a table was rebuilt halfway.
        judged = classified(records.dropDuplicates(["offset"]), self._contracts)
        first = "row_number() OVER (PARTITION BY _key ORDER BY offset) = 1"
        judged = judged.selectExpr("*", f"{first} AS _first")
        keys, offsets = self._keys(), self._offsets()
        judged = judged.join(keys, "_key", "left").join(offsets, "offset", "left")
        fresh = "_first AND _has_key IS NULL AND _has_offset IS NULL"
        return judged.selectExpr("*", f"({fresh}) AS _fresh").persist()

    def _keys(self) -> "DataFrame":
        """The keys that silver has."""
        found = self._spark.createDataFrame([], "_key string, _has_key boolean")
        for each in self._contracts:
            table = self._table(each.table)
            if not each.key or not table.exists:
                continue
            fields = [each.field(name) for name in each.key]
            text = key_text(each.name, [(f"`{f.column}`", f.kind) for f in fields])
            rows = table.frame(self._spark).selectExpr(f"{text} AS _key", "true AS _has_key")
            found = found.unionAll(rows.where("_key IS NOT NULL"))
        return found.distinct()

    def _offsets(self) -> "DataFrame":
        """The offsets that a redrive before has brought into the tables."""
        found = self._spark.createDataFrame([], "offset long, _has_offset boolean")
        for name in (*[each.table for each in self._contracts], LATE):
            table, column = self._table(name), "offset" if name == LATE else "_offset"
            if table.exists:
                rows = table.frame(self._spark)
                found = found.unionAll(rows.selectExpr(f"{column} AS offset", "true"))
        return found.distinct()

    @staticmethod
    def _outcome(judged: "DataFrame") -> Outcome:
        columns = ("_verdict", "contract", "_broken.rule AS rule", "_fresh")
        counted = judged.selectExpr(*columns).groupBy("_verdict", "contract", "rule", "_fresh")
        silver: dict[str, int] = {}
        stayed: dict[str, int] = {}
        total = late = repeated = 0
        for row in counted.count().collect():
            count: int = row["count"]
            total += count
            if row["_verdict"] == "quarantine":
                stayed[row["rule"]] = stayed.get(row["rule"], 0) + count
            elif not row["_fresh"]:
                repeated += count
            elif row["_verdict"] == "late":
                late += count
            else:
                silver[row["contract"]] = silver.get(row["contract"], 0) + count
        return Outcome(total, silver, late, repeated, stayed)

    # Leaving quarantine

    def _change(self, judged: "DataFrame", identity: str, total: int, progress: Progress) -> None:
        """Take out what left, and give the others their new reason."""
        gone = "_verdict <> 'quarantine' AS gone"
        broken = ("contract", "_broken.rule AS rule", "_broken.reason AS reason")
        rows: Any = judged.selectExpr("offset", gone, *broken).toArrow()
        rows = rows.cast(_CHANGES).sort_by("offset")
        for batch, start in enumerate(range(0, len(rows), CHUNK)):
            self._merge(rows.slice(start, CHUNK), identity, batch)
            progress(min(start + CHUNK, total), total)

    def _merge(self, changes: Any, identity: str, batch: int) -> None:
        once = CommitProperties(app_transactions=[Transaction(identity, batch)])

        def merge() -> None:
            merger = self._quarantine.delta().merge(
                changes, "t.offset = s.offset", "s", "t", commit_properties=once
            )
            new = {name: f"s.{name}" for name in ("contract", "rule", "reason")}
            merger.when_matched_delete("s.gone").when_matched_update(new).execute()

        if len(changes):
            with lock_of(self._quarantine.path):
                retried(merge)

    # To the topic

    def to_topic(self, selected: Selected, broker: "Broker", progress: Progress) -> Outcome:
        """Publish records to where they came from. What an earlier run began is ended first."""
        published = 0
        if (begun := self._begun()) is not None:
            published += self._publish(*begun, broker)
        total = published + self.count(selected)
        while True:
            offsets = self._next_offsets(selected)
            if not offsets:
                return Outcome(published, published=published)
            name = sha256(repr((self.identity(selected), offsets)).encode()).hexdigest()[:16]
            self._note(name, offsets)
            published += self._publish(name, offsets, broker)
            progress(published, total)

    def _next_offsets(self, selected: Selected) -> list[int]:
        rows = self._records(selected).select("offset").distinct().orderBy("offset").limit(CHUNK)
        return [row["offset"] for row in rows.collect()]

    def _publish(self, name: str, offsets: list[int], broker: "Broker") -> int:
        wanted = self._spark.createDataFrame([(each,) for each in offsets], "offset long")
        records = self._quarantine.frame(self._spark).join(wanted, "offset", "left_semi")
        records = records.dropDuplicates(["offset"]).orderBy("offset")
        rows: Any = records.select("topic", "value", "headers").toArrow()
        query = f"redrive/{name}"
        if len(rows) and broker.committed(query) is None:
            broker.stage(query, 0, 0, "0", rows.to_batches())
            broker.commit(query, 0, {"0": "0"})
        empty = [None] * len(offsets)
        columns = [offsets, [True] * len(offsets), empty, empty, empty]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, _CHANGES, strict=True)]
        self._merge(pa.table(arrays, schema=_CHANGES), query, 0)
        self._file.unlink(missing_ok=True)
        return len(rows)

    @property
    def _file(self) -> Path:
        return self._storage / "state" / "redrive.json"

    def _begun(self) -> tuple[str, list[int]] | None:
        if not self._file.exists():
            return None
        content = json.loads(self._file.read_text())
        return content["name"], content["offsets"]

    def _note(self, name: str, offsets: list[int]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        written = self._file.with_suffix(".new")
        with written.open("w") as file:
            json.dump({"name": name, "offsets": offsets}, file)
            file.flush()
            os.fsync(file.fileno())
        written.replace(self._file)
