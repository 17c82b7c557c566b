"""Gold: ready-made tables about everything that is published.

Each has its properties in headwater.pipeline.gold; to change some, write for example
table_properties={**gold.traffic.PROPERTIES, "headwater.retention": "30d"}.
"""

from pyspark import pipelines as dp

from headwater.pipeline import gold


# By minute, topic, protocol and publisher: messages, bytes, sizes, delays. Its rows are also
# messages under headwater/stats/traffic/.
@dp.table(table_properties=gold.traffic.PROPERTIES)
def traffic():
    return gold.traffic.frame()


# Who publishes, since when, with which gaps; who has fallen silent.
@dp.table(table_properties=gold.sessions.PROPERTIES, spark_conf=gold.sessions.CONF)
def sessions():
    return gold.sessions.frame()


# Topics that have more or less traffic in the last minute than they usually have.
@dp.materialized_view(table_properties=gold.movers.PROPERTIES)
def movers():
    return gold.movers.frame()
