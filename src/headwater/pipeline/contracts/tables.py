"""Silver, quarantine and late: three kinds of tables, one look at each record, one query.

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
from headwater.pipeline.contracts.repeats import Seen, digests
from headwater.pipeline.contracts.source import (
    LATE,
    NAME,
    PARTITION_COLUMNS,
    QUARANTINE,
    Files,
    Tables,
)
from headwater.pipeline.project.paths import CONTRACTS_QUERY
from headwater.pipeline.project.settings import connection, setting
from headwater.pipeline.tables.parquet import Addition
from headwater.pipeline.tables.stored import StoredTable
from headwater.pipeline.taskfiles import collect as written
from headwater.pipeline.taskfiles.collect import Found, Piece
from headwater.pipeline.taskfiles.declare import Direct
from headwater.pipeline.taskfiles.write import DIGEST
from headwater.units import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_OFFSETS = 500_000
MOST_BYTES = "256MiB"


class Layer:
    """The tables of some contracts, and the keys that may be repeated."""

    def __init__(self, contracts: Sequence[Contract], state: Path) -> None:
        self.contracts, self._state = tuple(contracts), state
        self.tables = Tables(self.contracts, state)
        self._directory = Path()
        self._seen: dict[str, Seen] = {}

    # For any runner of Spark

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
            .options(**connection(spark), **Tables.options(self.contracts, self._state))
            .option("subscribePattern", pattern)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option(
                "maxOffsetsPerTrigger", setting(spark, "contracts.maxOffsets", str(MOST_OFFSETS))
            )
            .option("maxBytesPerTrigger", setting(spark, "contracts.maxBytes", MOST_BYTES))
            .option("failOnDataLoss", "false")
        )

    # For Headwater's own

    def stream(self, directory: Path) -> "DataFrame":
        """Files for all tables, which are in this directory."""
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
        spark.dataSource.register(Files)
        self._directory, self._seen = directory, {}
        found: DataFrame = self._log(spark, Files.name()).option("tables", str(directory)).load()
        return found

    @contextmanager
    def taken(self, batch: "DataFrame") -> Iterator[Mapping[str, Addition]]:
        """What a micro-batch brings to each table, without repeats."""
        found = self._found(batch)
        # What is remembered is true only if all of it gets into the tables. Otherwise it is
        # forgotten, and found again in them.
        seen, self._seen = self._seen, {}
        try:
            yield {name: self._addition(name, found.pieces, seen) for name in self.tables.names}
            self._seen = seen
        finally:
            found.discard()

    def _found(self, batch: "DataFrame") -> Found:
        """Fields that nobody knew become columns, and the batch is written anew with them."""
        found = written.found(batch)
        while found.news:
            found.discard()
            self.tables.learn(found.news)
            found = written.found(batch)
        return found

    def _addition(
        self, name: str, found: Mapping[str, list[Piece]], seen: dict[str, Seen]
    ) -> Addition:
        pieces = found.get(name, [])
        if name not in (QUARANTINE, LATE) and self.tables.contract_of(name).key and pieces:
            pieces = self._once(self.tables.contract_of(name), pieces, seen)
        return Addition(tuple(each.file for each in pieces), self.tables.spark_schema(name))

    def _once(self, contract: Contract, pieces: list[Piece], seen: dict[str, Seen]) -> list[Piece]:
        keys = b"".join(each.keys for each in pieces)
        times = b"".join(each.times for each in pieces)
        if contract.name not in seen:
            seen[contract.name] = self._remembered(contract, int(np.frombuffer(times, "i8").min()))
        repeated = seen[contract.name].repeats(keys, times)
        kept, at = [], 0
        for each in pieces:
            mask = repeated[at : at + each.file.rows]
            at += each.file.rows
            left = each.without(mask) if mask.any() else each
            if left is not None:
                kept.append(left)
        return kept

    def _remembered(self, contract: Contract, first: int) -> Seen:
        """The keys that a table has and that records from `first` on may repeat."""
        seen, table = Seen(contract.dedupe_window), StoredTable(self._directory / contract.table)
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
    """Where evolved columns are noted."""
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
    layer = Layer(contracts, state_directory(spark))
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
        _register(layer, name, comment, properties.get(name, {}))


def _register(layer: Layer, name: str, comment: str, properties: Mapping[str, str]) -> None:
    from pyspark import pipelines as dp
    from pyspark.sql import SparkSession

    def table() -> "DataFrame":
        return layer.rows(SparkSession.active(), name)

    function: Any = table
    function.direct = Direct(CONTRACTS_QUERY, layer.stream, layer.taken)
    dp.table(
        name=name,
        comment=comment,
        partition_cols=list(PARTITION_COLUMNS),
        table_properties=dict(properties),
    )(function)
