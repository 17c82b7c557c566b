"""The benchmark of Spark in small: does it run, and does it count right?"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench import report
from bench.brokers import Yard
from bench.figures import Metric, Row
from bench.spark import measures
from bench.spark.__main__ import chosen_scale, parse, run
from bench.spark.measures import ALL, Measure
from bench.spark.scale import FULL, TINY
from bench.spark.stand import Stand
from bench.spark.targets import targets
from bench.targets import Book

Found = dict[str, list[Row]]


@pytest.fixture
def stand(tmp_path: Path, spark: SparkSession) -> Stand:
    return Stand(Yard(tmp_path), tmp_path, spark, TINY)


@pytest.mark.bench
@pytest.mark.timeout(1200)
def test_it_measures_and_reports(stand: Stand, tmp_path: Path) -> None:
    """A row too few or too many would have been a failure."""
    found: Found = {}
    for measure in ALL:
        rows = run([measure], stand, lambda _: None)
        assert [row.failures for row in rows if row.failures] == []
        assert all(row.samples for row in rows)
        assert list(tmp_path.iterdir()) == []  # servers and their directories are gone
        found[measure.name] = rows
    makes_sense(found)
    has_it_all(found)


def makes_sense(found: Found) -> None:
    def row(name: str, case: str, who: str) -> Row:
        (only,) = [
            row for row in found[name] if row.case.startswith(case) and row.contestant == who
        ]
        return only

    for who in (measures.LOG, measures.FILES):
        rate = row(measures.SOURCE, "", who).median(Metric.RATE)
        within = row(measures.SOURCE, "", who).median(Metric.BATCH_RATE)
        assert rate is not None and within is not None
        assert 100 < rate <= within
    for case in (measures.BATCH, measures.STREAM):
        assert (row(measures.SINK, case, measures.LOG).median(Metric.RATE) or 0) > 100
    delay = row(measures.LATENCY, "", measures.SPARK)
    assert 1000 < (delay.median(Metric.P50) or 0) <= (delay.median(Metric.P99) or 0)
    assert (row(measures.CATCHING_UP, "", measures.BROKER).median(Metric.RATE) or 0) > 100
    for wire in measures.WIRES:
        assert (row(measures.BESIDE, measures.ALONE, wire).median(Metric.P99) or 0) > 1


def has_it_all(found: Found) -> None:
    rows = tuple(row for rows in found.values() for row in rows)
    verdicts = tuple(target.verdict(Book(rows)) for target in targets(TINY))
    assert all(verdict.passed is not None for verdict in verdicts)
    made = report.Report(rows, verdicts, {"kernel": "any"}, "make bench-spark", quotable=False)
    text = report.to_markdown(made)
    assert "| source: 20,000 rows | parquet |" in text
    assert "| publish to Spark sink, p50 | ≤ 250 ms |" in text


def test_a_failure_is_shown(stand: Stand) -> None:
    def fail(_: Stand) -> measures.Findings:
        raise OSError("the disk is gone")

    (failed,) = run([Measure("source", "a failure", fail)], stand, lambda _: None)
    assert failed.failures == ("the disk is gone",)


def test_sizes_can_be_chosen() -> None:
    scale = chosen_scale(parse(["--rows", "7"]))
    assert (scale.rows, scale.sink_rows, scale.backlog) == (7, 7, FULL.backlog)
    assert chosen_scale(parse(["--quick"])).rows < FULL.rows
