"""Examples of your own tables: change them, or throw them away."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, concat, lit, window

from headwater.pipeline import bronze as source

spark = SparkSession.active()


# Plain SQL over a table of this project. It is computed anew when bronze has changed.
@dp.materialized_view(table_properties={"headwater.trigger": "30 seconds"})
def topics():
    return spark.sql(
        """
        SELECT topic, count(*) AS records, sum(length(value)) AS bytes, max(timestamp) AS last_seen
        FROM bronze
        WHERE NOT startswith(topic, 'headwater/')
        GROUP BY topic
        """
    )


# A stream over a table of this project: rows are added as they come.
@dp.table(name="large_records", table_properties={"headwater.trigger": "10 seconds"})
def large_records():
    records = spark.readStream.table("bronze")
    return records.where("length(value) > 65536").selectExpr(
        "offset", "topic", "length(value) AS bytes", "timestamp"
    )


# A stream over the log, counted by minute; a row is replaced while its minute lasts.
@dp.table(table_properties={"headwater.keys": "minute,protocol", "headwater.trigger": "10 seconds"})
def minutes():
    return (
        source.frame()
        .withWatermark("timestamp", "1 minute")
        .groupBy(window("timestamp", "1 minute"), "protocol")
        .count()
        .selectExpr("window.start AS minute", "protocol", "count")
    )


# A sink back to a topic: whoever subscribes to notices/large hears of large records.
dp.create_sink("notices", "headwater", source.sink_options())


@dp.append_flow(target="notices", name="notices")
def notices():
    large = spark.readStream.table("large_records")
    text = concat(col("topic"), lit(" has a record of "), col("bytes"), lit(" bytes"))
    return large.select(lit("notices/large").alias("topic"), text.cast("binary").alias("value"))
