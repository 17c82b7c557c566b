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
    "token": "what the broker wants to hear first",
    "tls.enabled": "whether the broker speaks TLS",
    "tls.caFile": "who has signed its certificate",
    "contracts": "the directory of the contracts",
    "format": "how tables are written: delta-rs, delta, iceberg or parquet",
    "upkeep.every": "how often a pipeline that runs looks after its files, such as 10m",
    "bronze.maxOffsets": "how many records a micro-batch of bronze has at most",
    "bronze.maxBytes": "about how many bytes of the log a micro-batch of bronze has at most",
    "contracts.maxOffsets": "how many records a micro-batch of contracts has at most",
    "contracts.maxBytes": "about how many bytes of the log a micro-batch of contracts has at most",
    "gold.maxOffsets": "how many records a micro-batch of traffic or sessions has at most",
    "sessions.gap": "the time between two messages from which on it counts as a gap",
    "sessions.silence": "the time without a message after which a publisher is silent",
}
_CONNECTION = ("servers", "token", "tls.enabled", "tls.caFile")


def setting(spark: "SparkSession", name: str, default: str = "") -> str:
    return str(spark.conf.get(PREFIX + name, default))


def connection(spark: "SparkSession") -> dict[str, str]:
    """How to reach the broker: options of `format("headwater")`."""
    found = {name: setting(spark, name) for name in _CONNECTION}
    found["servers"] = found["servers"] or DEFAULT_SERVERS
    return {name: value for name, value in found.items() if value}
