"""A stream of the log that is condensed where it is read.

Tasks read record batches from the broker and give Spark a few rows instead. So the payloads never
travel to Java and back, which takes several times as long as everything else here. Offsets,
partitions and checkpoints are those of `format("headwater")`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, InputPartition
from pyspark.sql.types import StructType

from headwater.pipeline.gold import sessions, traffic
from headwater.pipeline.project.settings import connection, setting
from headwater.spark.options import SourceOptions, parse
from headwater.spark.source import StreamReader, schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = "headwater_condensed"
#: All topics but the broker's own, as a PCRE pattern.
OTHERS = r"(?!headwater/).*"
#: So much is one micro-batch at most, so that there are rows soon when there is a lot to read.
MOST_OFFSETS = 2_000_000
#: Options of this source; all others are those of `format("headwater")`.
_OWN = ("kind", "gap", "silence")


def stream(kind: str, **limits: object) -> "DataFrame":
    """The log as counts for `traffic`, or as spans for `sessions`."""
    from pyspark.sql import SparkSession

    spark = SparkSession.active()
    options = {
        "subscribePattern": OTHERS,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": setting(spark, "gold.maxOffsets", str(MOST_OFFSETS)),
        # Retention may overtake a pipeline that was stopped for long; what is left is counted.
        "failOnDataLoss": "false",
    }
    own = {name: str(value) for name, value in limits.items()}
    given = options | connection(spark) | own | {"kind": kind}
    return spark.readStream.format(NAME).options(**given).load()


class Condensed(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return traffic.CONDENSED if self.options["kind"] == "traffic" else sessions.CONDENSED

    def streamReader(self, schema: StructType) -> StreamReader:
        options = dict(self.options)
        return _CondensingReader(**{name: options.pop(name, "") for name in _OWN}, options=options)


class _CondensingReader(StreamReader):
    def __init__(self, kind: str, gap: str, silence: str, options: dict[str, str]) -> None:
        parsed = parse(SourceOptions, options)
        super().__init__(parsed, schema(parsed))
        self._limits = (
            None if kind == "traffic" else sessions.SessionLimits.of(float(gap), float(silence))
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        batches = super().read(partition)
        if self._limits is None:
            return traffic.condensed(batches)
        return sessions.condensed(batches, self._limits)
