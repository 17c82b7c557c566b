"""Silver, quarantine and late: tables filled by one query, which judges each record once.

`define()` is called in a project's transformations. It registers

    silver_<name>   typed rows, for each contract
    quarantine      the whole record, with the rule and the reason
    late            the whole record, with its event time

With no contracts it registers nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ConfigError
from headwater.pipeline.contracts.model import Contract
from headwater.pipeline.contracts.reading import load
from headwater.pipeline.contracts.repeats import SeenKeys, digests
from headwater.pipeline.contracts.source import (
    LATE,
    NAME,
    PARTITION_COLUMNS,
    QUARANTINE,
    ContractFileSource,
    ContractTables,
)
from headwater.pipeline.project.paths import CONTRACTS_QUERY
from headwater.pipeline.project.settings import connection, setting
from headwater.pipeline.tables.parquet import Addition
from headwater.pipeline.tables.stored import StoredTable
from headwater.pipeline.taskfiles.collect import CollectedFiles, TaskFile, collect
from headwater.pipeline.taskfiles.declare import TaskFiles, declare
from headwater.pipeline.taskfiles.write import DIGEST
from headwater.units import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_OFFSETS = 500_000
MOST_BYTES = "256MiB"


class ContractFiles(TaskFiles):
    """The tables of some contracts, and the keys that new records may repeat."""

    key = CONTRACTS_QUERY

    def __init__(self, contracts: Sequence[Contract], state: Path) -> None:
        self.contracts, self._state = tuple(contracts), state
        self.tables = ContractTables(self.contracts, state)
        self._directory = Path()
        self._seen: dict[str, SeenKeys] = {}

    # For other runners of Spark

    def rows(self, spark: "SparkSession", table: str) -> "DataFrame":
        """A table as a stream of its rows, each key once."""
        log: DataFrame = self._log(spark, NAME).option("table", table).load()
        if table in (QUARANTINE, LATE) or not self.tables.contract_of(table).key:
            return log.drop(DIGEST)
        window = round(self.tables.contract_of(table).dedupe_window * 1000)
        watermarked = log.withWatermark("_timestamp", f"{window} milliseconds")
        return watermarked.dropDuplicatesWithinWatermark([DIGEST]).drop(DIGEST)

    def _log(self, spark: "SparkSession", source: str) -> Any:
        pattern = "|".join(each.topics.regex for each in self.contracts)
        return (
            spark.readStream.format(source)
            .options(**connection(spark), **ContractTables.options(self.contracts, self._state))
            .option("subscribePattern", pattern)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option(
                "maxOffsetsPerTrigger", setting(spark, "contracts.maxOffsets", str(MOST_OFFSETS))
            )
            .option("maxBytesPerTrigger", setting(spark, "contracts.maxBytes", MOST_BYTES))
            .option("failOnDataLoss", "false")
        )

    # For Headwater's own runner

    def stream(self, tables: Path) -> "DataFrame":
        """A stream of files for all tables."""
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
        spark.dataSource.register(ContractFileSource)
        self._directory, self._seen = tables, {}
        log = self._log(spark, ContractFileSource.name())
        files: DataFrame = log.option("tables", str(tables)).load()
        return files

    @contextmanager
    def collect(self, batch: "DataFrame") -> Iterator[Mapping[str, Addition]]:
        """The files of a micro-batch for each table, without repeats."""
        collected = self._collect(batch)
        # The remembered keys are true only if all files are committed. Otherwise they are
        # forgotten, and the next micro-batch reads them from the tables.
        seen, self._seen = self._seen, {}
        try:
            yield {name: self._addition(name, collected, seen) for name in self.tables.names}
            self._seen = seen
        finally:
            collected.discard()

    def _collect(self, batch: "DataFrame") -> CollectedFiles:
        """Run the batch again for as long as its records have fields without a column."""
        collected = collect(batch)
        while collected.new_fields:
            collected.discard()
            self.tables.learn(collected.new_fields)
            collected = collect(batch)
        return collected

    def _addition(
        self, name: str, collected: CollectedFiles, seen: dict[str, SeenKeys]
    ) -> Addition:
        files = collected.files.get(name, [])
        if name not in (QUARANTINE, LATE) and self.tables.contract_of(name).key and files:
            files = self._without_repeats(self.tables.contract_of(name), files, seen)
        return Addition(tuple(each.file for each in files), self.tables.spark_schema(name))

    def _without_repeats(
        self, contract: Contract, files: list[TaskFile], seen: dict[str, SeenKeys]
    ) -> list[TaskFile]:
        keys = b"".join(each.keys for each in files)
        times = b"".join(each.times for each in files)
        if contract.name not in seen:
            seen[contract.name] = self._stored_keys(contract, int(np.frombuffer(times, "i8").min()))
        repeated = seen[contract.name].repeats(keys, times)
        kept, at = [], 0
        for each in files:
            mask = repeated[at : at + each.file.rows]
            at += each.file.rows
            left = each.without(mask) if mask.any() else each
            if left is not None:
                kept.append(left)
        return kept

    def _stored_keys(self, contract: Contract, first: int) -> SeenKeys:
        """The keys in the table that records from `first` on may repeat."""
        seen, table = (
            SeenKeys(contract.dedupe_window),
            StoredTable(self._directory / contract.table),
        )
        if table.exists:
            oldest = first - round(contract.dedupe_window * 1e6)
            rows = table.rows(
                [*(contract.field(name).column for name in contract.key), "_timestamp"],
                lambda batch: pc.greater_equal(batch.column("_timestamp").cast("int64"), oldest),
            ).sort_by("_timestamp")
            times = rows.column("_timestamp").cast(pa.int64()).to_numpy().tobytes()
            seen.add(b"".join(digests(contract, rows).to_pylist()), times)
        return seen


def state_directory(spark: "SparkSession") -> Path:
    """The directory of the notes about evolved columns."""
    storage = setting(spark, "storage")
    if storage:
        return Path(storage) / "state" / "contracts"
    return Path(setting(spark, "contracts", "contracts")).parent / "storage/state/contracts"


def define(properties: Mapping[str, Mapping[str, str]]) -> None:
    """Register the tables of the project's contracts; `properties` by table."""
    from pyspark.sql import SparkSession

    spark = SparkSession.active()
    contracts = load(setting(spark, "contracts", "contracts"))
    if not contracts:
        return
    files = ContractFiles(contracts, state_directory(spark))
    comments = {
        each.table: each.doc or f"records of {each.topics.pattern or ', '.join(each.topics.names)}"
        for each in contracts
    }
    comments[QUARANTINE] = "records that break their contract"
    comments[LATE] = "records whose event time is too long ago"
    for name in properties:
        if name not in comments:
            raise ConfigError(f"there is no table {name}{did_you_mean(name, comments)}")
    for name, comment in comments.items():
        _register(files, name, comment, properties.get(name, {}))


def _register(files: ContractFiles, name: str, comment: str, properties: Mapping[str, str]) -> None:
    from pyspark import pipelines as dp
    from pyspark.sql import SparkSession

    def table() -> "DataFrame":
        return files.rows(SparkSession.active(), name)

    declare(table, files)
    dp.table(
        name=name,
        comment=comment,
        partition_cols=list(PARTITION_COLUMNS),
        table_properties=dict(properties),
    )(table)
