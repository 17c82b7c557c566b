"""Bronze: every record of the log, once, as it is.

    offset, topic, value, timestamp,
    protocol, publisher, headers        as `format("headwater")` has them
    date                                the day it came, UTC
    topic_group                         the first level of its topic

`date` and `topic_group` are the directories of the table. Nothing here looks into a value, so there
is no record that bronze cannot take.

The same rows are made in two ways: by Spark (`frame`), for any runner and for definitions that go
on from there, and with Arrow by the tasks that read the log (`BronzeFiles`), for the table itself.
"""

import re
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import DateType, StringType, StructType

from headwater.pipeline.project.settings import connection, setting
from headwater.pipeline.tables.parquet import Addition
from headwater.pipeline.taskfiles.collect import collect
from headwater.pipeline.taskfiles.declare import TaskFiles, declare
from headwater.pipeline.taskfiles.write import FILE_COLUMNS, FileReader, TaskRows, dates
from headwater.spark.options import SourceOptions, parse
from headwater.spark.source import schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The most in one micro-batch: enough to be quick, and bounded in memory.
MOST_OFFSETS = 2_000_000
MOST_BYTES = "512MiB"
PARTITION_COLUMNS = ["date", "topic_group"]

# In UTC, whatever the session's time zone.
_DATE = "date_from_unix_date(CAST(floor(unix_micros(timestamp) / 86400000000) AS INT))"
# A directory name that every tool can read. Topics of a device or a user may be many; those whose
# first level is long share a directory by its beginning. Most first levels can stay as they are,
# and finding that out first is quicker: patterns would take a quarter of the time of bronze.
_FIRST = "substring_index(topic, '/', 1)"
_SAFE = string.ascii_letters + string.digits + "_.-"
_GROUP = (
    f"CASE WHEN {_FIRST} = '' THEN '_' "
    f"WHEN length({_FIRST}) <= 64 AND translate({_FIRST}, '{_SAFE}', '') = '' THEN {_FIRST} "
    f"ELSE substring(regexp_replace({_FIRST}, '[^{_SAFE}]', '_'), 1, 64) END"
)


def frame() -> "DataFrame":
    """The log as a stream of rows of bronze."""
    from pyspark.sql import SparkSession

    return rows(_log(SparkSession.active(), "headwater").load())


def _log(spark: "SparkSession", source: str) -> Any:
    return (
        spark.readStream.format(source)
        .options(**connection(spark))
        .option("subscribePattern", ".*")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", setting(spark, "bronze.maxOffsets", str(MOST_OFFSETS)))
        .option("maxBytesPerTrigger", setting(spark, "bronze.maxBytes", MOST_BYTES))
        # Retention may overtake a pipeline that was stopped for long. It goes on then, and the gap
        # is noted in the audit table (see run/queries.py).
        .option("failOnDataLoss", "false")
    )


def rows(log: "DataFrame") -> "DataFrame":
    """Rows of bronze, from rows of the log."""
    columns = ("offset", "topic", "value", "timestamp", "protocol", "publisher", "headers")
    return log.selectExpr(*columns, f"{_DATE} AS date", f"{_GROUP} AS topic_group")


def direct(function: "Callable[[], DataFrame]") -> "Callable[[], DataFrame]":
    """Let the tasks that read the log write the files of a table, which is much quicker. The
    function has to return `frame()` as it is; other runners than Headwater's own call it."""
    declare(function, BronzeFiles(function.__name__))
    return function


class BronzeFiles(TaskFiles):
    """A table of bronze, whose files are written by the tasks that read the log."""

    def __init__(self, table: str) -> None:
        self.key = table

    def stream(self, tables: Path) -> "DataFrame":
        from pyspark.sql import SparkSession

        spark = SparkSession.active()
        spark.dataSource.register(BronzeFileSource)
        log = _log(spark, BronzeFileSource.name())
        files: DataFrame = log.options(tables=str(tables), table=self.key).load()
        return files

    @contextmanager
    def collect(self, batch: "DataFrame") -> Iterator[Mapping[str, Addition]]:
        collected = collect(batch)
        try:
            files = tuple(each.file for each in collected.files.get(self.key, ()))
            yield {self.key: Addition(files, columns())}
        finally:
            collected.discard()


def columns() -> StructType:
    """The columns of bronze."""
    log = schema(SourceOptions(servers=(), pattern=".*", headers=True))
    return StructType(
        [*log, *StructType().add("date", DateType()).add("topic_group", StringType())]
    )


class BronzeFileSource(DataSource):
    """The log as files of bronze.

    Options besides those of the log: `tables`, a directory, and `table`, a name in it."""

    @classmethod
    def name(cls) -> str:
        return "headwater_bronze_files"

    def schema(self) -> str:
        return FILE_COLUMNS

    def streamReader(self, schema: StructType) -> FileReader:
        options = dict(self.options)
        tables, table = Path(options.pop("tables")), options.pop("table")
        return FileReader(
            parse(SourceOptions, options), tables, lambda records: [_rows(table, records)]
        )


def _rows(table: str, records: Any) -> TaskRows:
    """Rows of bronze, from records of the log in Arrow."""
    encoded = pc.dictionary_encode(records.column("topic").combine_chunks())
    groups = [topic_group(each) for each in encoded.dictionary.to_pylist()]
    group = pc.take(pa.array(groups, pa.string()), encoded.indices)
    with_day = records.append_column("date", dates(records.column("timestamp")))
    return TaskRows(table, with_day.append_column("topic_group", group), tuple(PARTITION_COLUMNS))


def topic_group(topic: str) -> str:
    first = topic.partition("/")[0]
    return re.sub(f"[^{_SAFE}]", "_", first)[:64] or "_"


def sink_options(**options: str) -> dict[str, str]:
    """Options of a sink back to topics of the same broker."""
    from pyspark.sql import SparkSession

    return connection(SparkSession.active()) | options
