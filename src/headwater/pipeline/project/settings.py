"""The settings of a project, as definitions see them: `headwater.*` in Spark's configuration.

Both runners put them there from `configuration:` of spark-pipeline.yml.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PREFIX = "headwater."
DEFAULT_SERVERS = "localhost:8815"

#: Every setting of a project, with its meaning.
KNOWN = {
    "servers": "where the broker listens for Flight",
    "token": "the token that the broker expects",
    "tls.enabled": "whether the broker uses TLS",
    "tls.caFile": "the certificate of the authority that signed the broker's",
    "tls.certFile": "the certificate to show, if the broker asks for one",
    "tls.keyFile": "the key of that certificate",
    "contracts": "the directory of the contracts",
    "format": "how tables are written: delta-rs, delta, iceberg or parquet",
    "upkeep.every": "the time between two runs of upkeep while the pipeline runs, such as 10m",
    "bronze.maxOffsets": "the most records in a micro-batch of bronze",
    "bronze.maxBytes": "about the most bytes of the log in a micro-batch of bronze",
    "contracts.maxOffsets": "the most records in a micro-batch of contracts",
    "contracts.maxBytes": "about the most bytes of the log in a micro-batch of contracts",
    "gold.maxOffsets": "the most records in a micro-batch of traffic or sessions",
    "sessions.gap": "a longer time between two messages of a publisher counts as a gap",
    "sessions.silence": "a publisher without a message for this long is silent",
}
#: How to reach the broker.
CONNECTION = ("servers", "token", "tls.enabled", "tls.caFile", "tls.certFile", "tls.keyFile")


def setting(spark: "SparkSession", name: str, default: str = "") -> str:
    return str(spark.conf.get(PREFIX + name, default))


def connection(spark: "SparkSession") -> dict[str, str]:
    """How to reach the broker: options of `format("headwater")`."""
    found = {name: setting(spark, name) for name in CONNECTION}
    found["servers"] = found["servers"] or DEFAULT_SERVERS
    return {name: value for name, value in found.items() if value}
