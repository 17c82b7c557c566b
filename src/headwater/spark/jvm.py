"""Spark's Java process, as far as PySpark has no public way to it.

Borrowed from PySpark, each in a function of its own:

    context_exists    SparkContext._active_spark_context: `SparkContext.getOrCreate` would make one
    activate          SparkSession._jvm, ._jsparkSession: a thread other than the first has no
                      active session, and no public call gives it one
    java_process      SparkContext._gateway: the process, to learn when it ends
    silence           SparkContext._accumulatorServer: prints a traceback when Java is killed
    is_remote         pyspark.sql.utils.is_remote: whether there is a server instead of a process

If one of them goes away, its function says so, and whatever called it does not start.
"""

from typing import TYPE_CHECKING, Any

from headwater.borrowed import PYSPARK

if TYPE_CHECKING:
    from subprocess import Popen

    from pyspark.sql import SparkSession


def context_exists() -> bool:
    """Whether Spark runs in this process."""
    from pyspark import SparkContext

    PYSPARK.check_attributes("SparkContext", SparkContext, "_active_spark_context")
    return SparkContext._active_spark_context is not None


def activate(spark: "SparkSession") -> None:
    """Make the session the one that `SparkSession.getActiveSession` finds in this thread."""
    PYSPARK.check_attributes("SparkSession", spark, "_jvm", "_jsparkSession")
    java: Any = spark._jvm
    java.SparkSession.setActiveSession(spark._jsparkSession)


def java_process(spark: "SparkSession") -> "Popen[bytes]":
    context = spark.sparkContext
    PYSPARK.check_attributes("SparkContext", context, "_gateway")
    PYSPARK.check_attributes("the gateway of SparkContext", context._gateway, "proc")
    process: Popen[bytes] = context._gateway.proc  # type: ignore[union-attr]
    return process


def silence(spark: "SparkSession") -> None:
    """Let accumulators end without a traceback when Java does."""
    context = spark.sparkContext
    PYSPARK.check_attributes("SparkContext", context, "_accumulatorServer")
    server: Any = context._accumulatorServer
    PYSPARK.check_attributes("the accumulator server of SparkContext", server, "handle_error")
    server.handle_error = lambda *_: None


def is_remote() -> bool:
    """Whether the session of this thread is on a Spark Connect server."""
    with PYSPARK.imports():
        from pyspark.sql.utils import is_remote as remote

    return remote()
