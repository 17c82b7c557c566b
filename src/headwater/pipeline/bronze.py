"""Bronze: every record of the log, once, as it is.

    offset, topic, value, timestamp,
    protocol, publisher, headers        as `format("headwater")` has them
    date                                the day it came, UTC
    topic_group                         the first level of its topic

`date` and `topic_group` are the directories of the table. Nothing here looks into a value, so there
is no record that bronze cannot take.
"""

import string
from typing import TYPE_CHECKING

from headwater.pipeline.settings import connection, setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: So much is one micro-batch at most: enough to be quick, and bounded in memory.
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

    spark = SparkSession.active()
    log = (
        spark.readStream.format("headwater")
        .options(**connection(spark))
        .option("subscribePattern", ".*")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", setting(spark, "bronze.maxOffsets", str(MOST_OFFSETS)))
        .option("maxBytesPerTrigger", setting(spark, "bronze.maxBytes", MOST_BYTES))
        # Retention may overtake a pipeline that was stopped for long. It goes on then, and the gap
        # is written down (see runner.py).
        .option("failOnDataLoss", "false")
    )
    return rows(log.load())


def rows(log: "DataFrame") -> "DataFrame":
    """Rows of bronze, from rows of the log."""
    columns = ("offset", "topic", "value", "timestamp", "protocol", "publisher", "headers")
    return log.selectExpr(*columns, f"{_DATE} AS date", f"{_GROUP} AS topic_group")


def sink_options(**options: str) -> dict[str, str]:
    """Options of a sink back to topics of the same broker."""
    from pyspark.sql import SparkSession

    return connection(SparkSession.active()) | options
