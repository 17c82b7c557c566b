"""Spark reads and writes the log: `format("headwater")`.

    options.py    the options, declared once
    broker.py     the broker as Spark's processes see it
    source.py     reading, in batch and as a stream
    sink.py       writing, in batch and from a stream
    session.py    a session with the settings that were measured
    java.py       the Java that Spark runs on

    jvm.py, arrow_schemas.py, daemon.py   borrowed from PySpark, which does not promise to keep it

Spark finds the format in the package `pyspark_headwater`. The broker imports nothing of all this.
"""

from headwater.spark.session import session

__all__ = ["session"]
