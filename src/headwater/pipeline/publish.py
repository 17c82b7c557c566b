"""Publishes rows of a table as messages: each row as JSON, exactly once.

The topic is the prefix, followed by the row's own topic if it has one. A batch is known to the
broker by the query and its number, so one that is repeated is not published again.
"""

from typing import TYPE_CHECKING, Any

from headwater.pipeline.project.settings import connection
from headwater.spark.flight_client import FlightClient
from headwater.spark.options import SinkOptions, parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def broker_of(spark: "SparkSession") -> FlightClient:
    return FlightClient.of(parse(SinkOptions, connection(spark)))


def rows(frame: "DataFrame", prefix: str, query: str, batch: int) -> None:
    from pyspark.sql.functions import concat, lit, struct, to_json

    topic = concat(lit(f"{prefix}/"), "topic") if "topic" in frame.columns else lit(prefix)
    messages = frame.select(
        topic.alias("topic"), to_json(struct(*frame.columns)).cast("binary").alias("value")
    )
    found: Any = messages.toArrow()
    if len(found):
        broker = broker_of(frame.sparkSession)
        broker.stage(query, batch, 0, "0", found.to_batches())
        broker.commit(query, batch, {"0": "0"})
