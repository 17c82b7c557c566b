"""What is to be reached, all of it between figures of the same run."""

from bench.figures import Metric
from bench.spark.measures import (
    ALONE,
    BATCH,
    BESIDE,
    FILES,
    LATENCY,
    LOG,
    SINK,
    SOURCE,
    SPARK,
    WIRES,
    WITH_READER,
)
from bench.spark.scale import Scale
from bench.targets import Book, Target, Value, figure, ratio


def targets(scale: Scale) -> list[Target]:
    rows = f"{scale.rows:,} rows"
    log, files = (figure(SOURCE, rows, who, Metric.RATE) for who in (LOG, FILES))
    sink = figure(SINK, BATCH, LOG, Metric.RATE)
    p50 = figure(LATENCY, f"{scale.latency_rate:,} messages/s", SPARK, Metric.P50)
    return [
        Target("source against the same records in Parquet", True, 1.3, "×", ratio(log, files)),
        Target("sink, made durable", True, 0.8, " M rows/s", _part(sink, 1e6)),
        Target("publish to Spark sink, p50", False, 250, " ms", _part(p50, 1e3)),
        *(_beside(wire) for wire in WIRES),
    ]


def _part(value: Value, of: float) -> Value:
    def divided(book: Book) -> float | None:
        found = value(book)
        return None if found is None else found / of

    return divided


def _beside(wire: str) -> Target:
    cases = (WITH_READER, ALONE)
    p99 = ratio(*(figure(BESIDE, case, wire, Metric.P99) for case in cases))
    return Target(f"p99 beside a Flight reader, {wire}", False, 1.3, "×", p99)
