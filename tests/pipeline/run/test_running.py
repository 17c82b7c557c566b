"""What may go wrong while a pipeline runs, and what keeps it going."""

import threading
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater.pipeline.audit.batches import BACKFILL
from headwater.pipeline.care.retention import expire
from headwater.pipeline.care.upkeep import compact, keep
from headwater.pipeline.repair.backfill import backfill
from headwater.pipeline.run import runner as running
from headwater.pipeline.run.check import check
from headwater.pipeline.run.runner import Runner, only_runner
from headwater.pipeline.run.status import status_of
from tests.e2e.process import eventually
from tests.pipeline.conftest import BRONZE, Workbench
from tests.spark.conftest import numbered

pytestmark = pytest.mark.timeout(400)


class Continuous:
    """A pipeline that runs in a thread."""

    def __init__(self, workbench: Workbench) -> None:
        self.runner = Runner(workbench.project, workbench.spark)
        self._thread = threading.Thread(target=self._run)
        self.well: bool | None = None

    def _run(self) -> None:
        self.well = self.runner.run()

    def __enter__(self) -> Runner:
        self._thread.start()
        return self.runner

    def __exit__(self, *_: object) -> None:
        """It would never end by itself. What it waits for when it is stopped takes 20 s at most."""
        self.runner.stop()
        self._thread.join(90)
        assert not self._thread.is_alive()


def of(state: dict[str, Any], name: str) -> Any:
    found = {each["name"]: each for each in state["tables"]}
    return found.get(name, {"rows": 0, "error": None})  # it may not be loaded yet


CONTINUOUS = """
from contextlib import contextmanager
from pathlib import Path
from pyspark import pipelines as dp
from headwater.pipeline import bronze as source
from headwater.pipeline.taskfiles.declare import declare

FLAG = Path({flag!r})

@dp.table(
    partition_cols=source.PARTITION_COLUMNS, table_properties={{"headwater.trigger": "0 seconds"}}
)
def bronze():
    return source.frame()

def even():
    return source.frame()

class FailingFiles(source.BronzeFiles):
    @contextmanager
    def collect(self, batch):
        if FLAG.exists():
            raise ValueError("the flag is up")
        with super().collect(batch) as additions:
            yield additions

declare(even, FailingFiles("even"))
dp.table(partition_cols=source.PARTITION_COLUMNS)(even)

@dp.table
def copy():
    return spark.readStream.table("bronze").select("offset")

@dp.materialized_view(table_properties={{"headwater.trigger": "0 seconds"}})
def counts():
    return spark.table("copy").groupBy().count()
"""


@pytest.mark.smoke
@pytest.mark.timeout(600)
def test_it_runs_on_and_one_failure_stops_nobody_else(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "FIRST_PAUSE", 0.2)
    # What fails here does so until the others have come far enough, however often that is.
    monkeypatch.setattr(running, "TRIES", 1000)
    monkeypatch.setattr(running, "_LONGEST_PAUSE", 1.0)
    flag, stand = tmp_path / "flag", workbench.stand
    flag.touch()
    workbench.define(CONTINUOUS.format(flag=str(flag)))
    stand.append("shop/orders", *numbered(0, 10))
    with Continuous(workbench) as runner:
        for _ in eventually(120):
            state = runner.look()
            error = of(state, "even")["error"] or ""
            if of(state, "copy")["rows"] == 10 and "the flag is up" in error:
                break
        assert error.startswith("ValueError: the flag is up")
        assert of(state, "bronze")["state"] == "running"
        flag.unlink()
        with pytest.raises(HeadwaterError, match="the pipeline bench runs already"):
            Runner(workbench.project, workbench.spark, once=True).run()
        stand.append("shop/orders", *numbered(10, 20))
        keep(workbench.table("bronze"))
        stand.append("shop/orders", *numbered(20, 30))
        for _ in eventually(120):
            state = runner.look()
            if [of(state, name)["rows"] for name in ("copy", "even")] == [30, 30]:
                break
        counts = workbench.table("counts")
        for _ in eventually(120):
            if counts.exists and workbench.rows("counts") == [{"count": 30}]:
                break
        assert status_of(workbench.project)["running"]
    assert workbench.column("offset", "copy") == list(range(30))
    assert workbench.column("offset", "even") == list(range(30))
    state = status_of(workbench.project)
    assert not state["running"] and of(state, "bronze")["rows"] == 30
    assert len({row["query"] for row in workbench.rows("audit")}) == 3


def test_what_fails_for_good_is_said(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FIRST_PAUSE", 0.01)
    workbench.define(
        BRONZE
        + """
@dp.table
def wrong():
    return source.frame().select("offset", "no_such_column")

@dp.materialized_view
def bad():
    return spark.sql("SELECT raise_error('boom') AS x FROM bronze")
"""
    )
    workbench.stand.append("a", b"1")
    runner = Runner(workbench.project, workbench.spark, once=True)
    assert not runner.run()
    state = runner.state.as_dict()
    assert of(state, "bronze")["state"] == "done"
    assert of(state, "wrong")["state"] == "failed"
    assert "no_such_column" in of(state, "wrong")["error"]
    assert "boom" in of(state, "bad")["error"]
    report = check(workbench.project, workbench.spark)
    assert "log → bronze (table)" in report.lines
    (error,) = report.errors
    assert error.startswith("definitions.py, line ") and "no_such_column" in error


def test_retention_leaves_a_gap_that_is_noted(workbench: Workbench) -> None:
    stand = workbench.stand
    workbench.define()
    stand.append("a", *numbered(0, 3))
    workbench.run()
    for _ in range(4):
        stand.append("a", *[b"x" * 1000] * 100)
    start = stand.drop_oldest()
    runner = workbench.run()
    end = stand.flight.log().end
    assert workbench.column("offset") == [0, 1, 2, *range(start, end)]
    gap = of(runner.state.as_dict(), "bronze")["gap"]
    assert gap == f"the offsets 3 to {start - 1} were dropped by the log's retention"
    gaps = [row for row in workbench.rows("audit") if row["rows"] == 0]
    assert [(row["first"], row["last"]) for row in gaps] == [(3, start - 1)]


@pytest.mark.smoke
def test_tables_are_rebuilt_and_filled(workbench: Workbench) -> None:
    stand, spark = workbench.stand, workbench.spark
    workbench.define()
    stand.append("a", *numbered(0, 20))
    workbench.run()
    workbench.run(refresh=["bronze"])
    assert workbench.column("offset") == list(range(20))
    workbench.table().delta().delete("offset BETWEEN 5 AND 9")
    assert len(workbench.rows()) == 15
    filled = backfill(workbench.project, spark, "bronze", "3", "8")
    assert (filled.start, filled.end, filled.rows) == (3, 8, 3)
    assert backfill(workbench.project, spark, "bronze", None, None).rows == 2
    assert backfill(workbench.project, spark, "bronze", None, None).rows == 0
    assert workbench.column("offset") == list(range(20))
    with pytest.raises(HeadwaterError, match="there is no table nothing"):
        Runner(workbench.project, spark, once=True).run(["nothing"])


def test_a_killed_backfill_gets_its_audit_row_from_the_next_one(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = workbench.spark
    workbench.define()
    workbench.stand.append("a", *numbered(0, 20))
    workbench.run()
    workbench.table().delta().delete("offset BETWEEN 5 AND 9")
    with monkeypatch.context() as killed:
        killed.setattr("headwater.pipeline.repair.backfill.audit", _killed)
        with pytest.raises(KeyboardInterrupt):
            backfill(workbench.project, spark, "bronze", None, None)
    assert workbench.column("offset") == list(range(20))
    compact(workbench.table())
    for _ in range(2):
        assert backfill(workbench.project, spark, "bronze", None, None).rows == 0
        rows = [row for row in workbench.rows("audit") if row["query"].startswith(BACKFILL)]
        assert [(row["first"], row["last"], row["rows"]) for row in rows] == [(5, 9, 5)]


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_two_cannot_run_at_once(workbench: Workbench) -> None:
    workbench.define()
    with only_runner(workbench.project):
        second = pytest.raises(HeadwaterError, match="runs already")
        with second, only_runner(workbench.project):
            pass
    with only_runner(workbench.project):
        pass


AGED = """
@dp.table
def aged():
    age = "make_dt_interval(CAST(10 * CAST(offset < 5 AS INT) AS INT))"
    return source.frame().selectExpr("offset", f"timestamp - {age} AS timestamp")
"""


def test_what_retention_deleted_is_filled_only_if_asked_for(workbench: Workbench) -> None:
    """Otherwise every `backfill` would bring back what the next upkeep deletes again."""
    spark, table = workbench.spark, workbench.table
    workbench.define(BRONZE + AGED)
    workbench.stand.append("a", *numbered(0, 10))
    workbench.run()
    assert expire(table("aged"), "7d") == 5
    table("aged").delta().delete("offset = 7")
    filled = backfill(workbench.project, spark, "aged", None, None)
    assert (filled.start, filled.rows) == (5, 1)
    assert workbench.column("offset", "aged") == [5, 6, 7, 8, 9]
    assert backfill(workbench.project, spark, "aged", "2", "4").rows == 2
    assert workbench.column("offset", "aged") == [2, 3, 5, 6, 7, 8, 9]


def test_what_passes_is_waited_for(
    workbench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that is too busy to start a process: however often, nothing is given up."""
    monkeypatch.setattr(running, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(running, "TRIES", 2)
    flag = tmp_path / "flag"
    flag.touch()
    failing = CONTINUOUS.format(flag=str(flag))
    workbench.define(failing.replace("the flag is up", "Python worker failed to connect back"))
    workbench.stand.append("a", *numbered(0, 10))
    failures, seen = 0, None
    with Continuous(workbench) as runner:
        for _ in eventually(90):
            state = of(runner.look(), "even")
            failures += state.get("state") == "waiting" != seen
            seen = state.get("state")
            if failures > running.TRIES:
                break
        assert "failed to connect back" in state["error"]
        flag.unlink()
        for _ in eventually(60):
            if of(runner.look(), "even")["rows"] == 10:
                break
