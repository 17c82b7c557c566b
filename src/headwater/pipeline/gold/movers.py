"""Movers: topics that have more, or less, traffic than they usually have.

    minute                    the last minute that is over
    topic, count              and its messages in that minute
    mean, deviation           of its counts in the minutes before, up to an hour; none counts as 0
    ratio                     count by mean; null for a topic that was not there before
    score                     how many deviations the count is away from the mean
    rank                      1 for the topic that has moved most

A deviation counts as at least the square root of the mean, and at least 1: random arrivals vary by
so much, and a topic with one message a minute has not moved when it has two.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PROPERTIES = {"headwater.trigger": "30 seconds"}
MINUTES = 60
TOP = 20


def frame() -> "DataFrame":
    """The table, from that of `traffic`."""
    from pyspark.sql import SparkSession

    return rows(SparkSession.active().read.table("traffic"))


def rows(traffic: "DataFrame", minutes: int = MINUTES, top: int = TOP) -> "DataFrame":
    """The table, from the rows of `traffic`."""
    from pyspark.sql import Window
    from pyspark.sql.functions import broadcast, col, expr, row_number

    # Columns are added with `select`: behind `withColumn`, Spark's own runner takes a table of the
    # project for one that is not, and does not wait until it is filled.
    # The newest minute is still growing.
    ends = traffic.groupBy().agg(
        expr("max(minute) - INTERVAL 1 MINUTE").alias("last"),
        expr(f"greatest(min(minute), max(minute) - INTERVAL {minutes + 1} MINUTES)").alias("begin"),
    )
    recent = traffic.join(broadcast(ends), expr("minute BETWEEN begin AND last"))
    counts = recent.groupBy("topic", "minute", "last", "begin").agg(expr("sum(count)").alias("n"))
    before = "IF(minute < last, n, 0)"
    topics = counts.groupBy("topic", "last", "begin").agg(
        expr("sum(IF(minute = last, n, 0))").alias("count"),
        expr(f"sum({before})").alias("total"),
        expr(f"sum(double({before}) * {before})").alias("squares"),
    )
    known = topics.select(
        "*", expr("(unix_seconds(last) - unix_seconds(begin)) / 60").alias("minutes")
    ).where("minutes >= 1")
    averaged = known.select("*", expr("total / minutes").alias("mean"))
    measured = averaged.select(
        "*", expr("sqrt(greatest(squares / minutes - mean * mean, 0))").alias("deviation")
    )
    scored = measured.select(
        "*", expr("(count - mean) / greatest(deviation, sqrt(mean), 1)").alias("score")
    )
    order = Window.orderBy(expr("abs(score)").desc(), "topic")
    ranked = scored.select("*", row_number().over(order).alias("rank"))
    return ranked.where(col("rank") <= top).select(
        col("last").alias("minute"),
        "topic",
        "count",
        "mean",
        "deviation",
        expr("IF(mean > 0, count / mean, NULL)").alias("ratio"),
        "score",
        "rank",
    )
