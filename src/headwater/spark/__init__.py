"""Spark reads and writes the log: `format("headwater")`.

    options.py         the options, declared once
    flight_client.py   requests to the broker, repeated until one answers
    source.py          reads the log, in batch and as a stream
    sink.py            writes to the log, in batch and from a stream
    session.py         a session with settings that were measured
    java.py            the Java that Spark runs on
    python.py          the Python that Spark's workers run on
    jvm.py, arrow_schemas.py, daemon.py   borrowed from PySpark, which does not promise to keep it

Spark finds the format in the package `pyspark_headwater`. The broker imports nothing from here.
"""

from headwater.spark.session import session

__all__ = ["session"]
