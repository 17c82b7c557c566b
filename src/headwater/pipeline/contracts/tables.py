"""Silver, quarantine and late: three kinds of tables, one parse, one streaming query.

`define()` is called in a project's transformations. It registers

    silver_<name>   typed rows, for each contract
    quarantine      the whole record, with the rule and the reason
    late            the whole record, with its event time

With no contracts it registers nothing.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.pipeline.contracts.evolution import Discovery, Evolution
from headwater.pipeline.contracts.expressions import RECORD, classified, row_column
from headwater.pipeline.contracts.model import Contract
from headwater.pipeline.contracts.reading import load
from headwater.pipeline.flows import Shared
from headwater.pipeline.settings import connection, setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHARED = "contracts"
QUARANTINE = "quarantine"
LATE = "late"
PARTITION_COLUMNS = ["date"]
MOST_OFFSETS = 500_000
MOST_BYTES = "256MiB"

#: The day of arrival in UTC, whatever the session's time zone.
_DATE = "date_from_unix_date(CAST(floor(unix_micros(timestamp) / 86400000000) AS INT)) AS date"
# Java does not compile larger methods: beyond this, many small ones are quicker than one.
_METHOD_LIMIT = ("spark.sql.codegen.hugeMethodLimit", "8000")


class Layer:
    """The tables of some contracts."""

    def __init__(self, contracts: Sequence[Contract], state: Path) -> None:
        self.contracts = tuple(contracts)
        self._discovery = Discovery(Evolution(each, state) for each in contracts)

    # Rows of each table, from records with their verdict

    def silver(self, batch: "DataFrame", contract: Contract) -> "DataFrame":
        self._discovery.look(batch)
        number = self.contracts.index(contract)
        rows = batch.where(f"_verdict = 'silver' AND contract = '{contract.name}'")
        fields = [f"{row_column(number)}.`{each.column}`" for each in contract.fields]
        return rows.selectExpr(
            *fields,
            *self._discovery.of[contract.name].expressions(),
            "offset AS _offset",
            "topic AS _topic",
            "timestamp AS _timestamp",
            "protocol AS _protocol",
            "publisher AS _publisher",
            "event_time AS _event_time",
            _DATE,
        )

    @staticmethod
    def quarantine(batch: "DataFrame") -> "DataFrame":
        rows = batch.where("_verdict = 'quarantine'")
        broken = ("contract", "_broken.rule AS rule", "_broken.reason AS reason")
        return rows.selectExpr(*RECORD, *broken, _DATE)

    @staticmethod
    def late(batch: "DataFrame") -> "DataFrame":
        rows = batch.where("_verdict = 'late'")
        behind = "(unix_micros(timestamp) - unix_micros(event_time)) / 1000000D AS late_by_seconds"
        return rows.selectExpr(*RECORD, "contract", "event_time", behind, _DATE)

    # The stream

    def stream(self, spark: "SparkSession") -> "DataFrame":
        """Records with their verdict, each key once."""
        return self.once(classified(self._log(spark), self.contracts))

    def once(self, records: "DataFrame") -> "DataFrame":
        """Without repeats. Only rows of silver have a key that another record can have."""
        window = max(each.dedupe_window for each in self.contracts)
        watermarked = records.withWatermark("timestamp", f"{round(window * 1000)} milliseconds")
        return watermarked.dropDuplicatesWithinWatermark(["_key"])

    def _log(self, spark: "SparkSession") -> "DataFrame":
        pattern = "|".join(each.topics.regex for each in self.contracts)
        return (
            spark.readStream.format("headwater")
            .options(**connection(spark))
            .option("subscribePattern", pattern)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option(
                "maxOffsetsPerTrigger", setting(spark, "contracts.maxOffsets", str(MOST_OFFSETS))
            )
            .option("maxBytesPerTrigger", setting(spark, "contracts.maxBytes", MOST_BYTES))
            .option("failOnDataLoss", "false")
            .load()
        )


def state_directory(spark: "SparkSession") -> Path:
    """Where evolved columns are noted."""
    storage = setting(spark, "storage")
    if storage:
        return Path(storage) / "state" / "contracts"
    return Path(setting(spark, "contracts", "contracts")).parent / "storage/state/contracts"


def define() -> None:
    """Register the tables of the project's contracts."""
    from pyspark.sql import SparkSession

    spark = SparkSession.active()
    contracts = load(setting(spark, "contracts", "contracts"))
    if not contracts:
        return
    layer = Layer(contracts, state_directory(spark))
    for each in contracts:
        comment = each.doc or f"records of {each.topics.pattern or ', '.join(each.topics.names)}"
        _register(layer, each.table, comment, _silver_of(layer, each))
    _register(layer, QUARANTINE, "records that break their contract", layer.quarantine)
    _register(layer, LATE, "records whose event time is too long ago", layer.late)


def _silver_of(layer: Layer, contract: Contract) -> "Callable[[DataFrame], DataFrame]":
    return lambda batch: layer.silver(batch, contract)


def _register(
    layer: Layer, name: str, comment: str, select: "Callable[[DataFrame], DataFrame]"
) -> None:
    from pyspark import pipelines as dp
    from pyspark.sql import SparkSession

    def stream() -> "DataFrame":
        spark = SparkSession.active()
        spark.conf.set(*_METHOD_LIMIT)
        return layer.stream(spark)

    def table() -> "DataFrame":
        return select(layer.stream(SparkSession.active()))

    function: Any = table
    function.shared = Shared(SHARED, stream, select)
    dp.table(name=name, comment=comment, partition_cols=PARTITION_COLUMNS)(function)
