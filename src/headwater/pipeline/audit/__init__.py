"""The audit: proves that the tables equal the log, or names the offsets where they differ.

    records.py      compares the log with bronze
    checksum.py     the checksum of a record, the same in the log and in a table
    tables.py       compares bronze with silver, quarantine and late
    repeats.py      records that are in no table because they repeat a key
    keys.py         rows of silver that repeat a key and should not be there
    batches.py      the batches of a table, as the table `audit` lists them
    checkpoint.py   how far a query has come
    files.py        reads the files of tables
    model.py        differences, outcomes and the report

Rules: the audit needs no Spark, changes nothing, and may run while the pipeline runs.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headwater.pipeline.audit import batches, records, tables
from headwater.pipeline.audit.files import open_table
from headwater.pipeline.audit.model import AuditOutcome, AuditReport, Difference, Progress
from headwater.pipeline.audit.records import AuditBounds
from headwater.pipeline.contracts import Contract
from headwater.pipeline.tables.spark_parquet import SparkParquetTable
from headwater.spark.flight_client import FlightClient

__all__ = ["Audit", "AuditOutcome", "AuditReport", "Difference"]

BRONZE = "bronze"


class Audit:
    """One audit of the tables in a directory. `first` and `end` limit the offsets."""

    def __init__(
        self,
        broker: FlightClient,
        place: Path,
        contracts: Sequence[Contract] = (),
        first: int | None = None,
        end: int | None = None,
    ) -> None:
        self._broker, self._place, self._contracts = broker, place, contracts
        self._table = open_table(place / BRONZE)
        self._noted = batches.batches_of(place, BRONZE)
        bounds, self._remarks = records.bounds_of(broker, self._table, self._noted)
        if isinstance(self._table, SparkParquetTable):
            self._contracts = ()
            self._remarks.append("tables of Parquet files: only bronze is compared")
        self._bounds = _limited(bounds, first, end)

    @property
    def steps(self) -> int:
        """About how many records the audit reads; a record counts once for each place it is in."""
        bounds = self._bounds
        in_log = bounds.end - min(max(bounds.start, bounds.kept), bounds.end)
        return in_log + (bounds.end - bounds.start) * (2 if self._contracts else 1)

    def run(self, progress: Progress = lambda rows: None) -> AuditReport:
        began, bounds = time.monotonic(), self._bounds
        compared = records.compare(self._broker, self._table, bounds, progress)
        compared = replace(compared, remarks=[*self._remarks, *compared.remarks])
        silver = tables.compare(self._place, self._contracts, bounds.start, bounds.end, progress)
        outcomes = [compared, *silver]
        if not isinstance(self._table, SparkParquetTable):
            outcomes.append(batches.check(BRONZE, self._noted))
        return AuditReport(bounds.start, bounds.end - 1, outcomes, time.monotonic() - began)


def _limited(bounds: AuditBounds, first: int | None, end: int | None) -> AuditBounds:
    start = bounds.start if first is None else min(max(bounds.start, first), bounds.end)
    stop = bounds.end if end is None else max(min(bounds.end, end), start)
    return replace(bounds, start=start, end=stop)
