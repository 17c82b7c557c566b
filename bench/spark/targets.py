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
from bench.spark.pipeline import ALL_TABLES, BRONZE, COLD, LAG, PIPELINE
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
        *_of_the_pipeline(scale),
    ]


def _of_the_pipeline(scale: Scale) -> list[Target]:
    bronze = figure(PIPELINE, BRONZE, PIPELINE, Metric.BATCH_RATE)
    tables = figure(PIPELINE, ALL_TABLES, PIPELINE, Metric.BATCH_RATE)
    behind = figure(PIPELINE, f"{LAG} at {scale.lag_rate:,} records/s", "bronze", Metric.LAG)
    cold = figure(PIPELINE, COLD, PIPELINE, Metric.READY)
    return [
        Target("bronze", True, 0.4, " M records/s", _part(bronze, 1e6)),
        Target("all tables of a new project", True, 0.1, " M records/s", _part(tables, 1e6)),
        Target(f"lag of bronze at {scale.lag_rate:,} records/s", False, 3, " s", behind),
        Target("cold start to the first rows", False, 20, " s", cold),
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
