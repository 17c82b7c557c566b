"""Upkeep while a pipeline runs: in its own process, and in another one at the same time."""

import json
import re
import signal
import time
from pathlib import Path

import pytest

from headwater.pipeline.audit import Audit
from headwater.pipeline.care.retention import noted
from headwater.pipeline.project.paths import AUDIT
from headwater.pipeline.run.queries import next_offset
from headwater.pipeline.tables.delta import Table
from tests.e2e.process import eventually
from tests.pipeline.conftest import BRONZE, Command, Workbench
from tests.pipeline.run.test_running import Continuous
from tests.pipeline.test_commands import Feeder, feeder, here, make_project, offsets, running
from tests.spark.conftest import numbered

__all__ = ["feeder"]

#: `copy` is a stream over a table that is compacted; every other row of `aged` is ten days old.
DEFINITIONS = (
    BRONZE.replace('"true"}', '"true", "headwater.trigger": "0 seconds"}')
    + """
@dp.table
def copy():
    return spark.readStream.table("bronze").select("offset")

@dp.table(table_properties={"headwater.retention": "RETENTION"})
def aged():
    age = "make_dt_interval(CAST(10 * (offset % 2) AS INT))"
    return source.frame().selectExpr("offset", f"timestamp - {age} AS timestamp")
"""
)


def operations(table: Table) -> list[str]:
    return [each["operation"] for each in table.delta().history()] if table.exists else []


def count(place: Path) -> int:
    table = Table(place)
    return sum(each.rows for each in table.files()) if table.exists else 0


def is_noted(tables: Path, end: int) -> bool:
    """Whether the audit table has the last batch of bronze. It has its row after bronze, and a
    pipeline may be stopped between the two."""
    return next_offset(Table(tables / AUDIT), "bronze") == end


@pytest.mark.timeout(500)
def test_on_a_schedule_nobody_notices(workbench: Workbench) -> None:
    stand = workbench.stand
    workbench.settings["headwater.upkeep.every"] = "1s"
    workbench.define(DEFINITIONS.replace("RETENTION", "7d"))
    bronze, aged, copy = (workbench.table(name) for name in ("bronze", "aged", "copy"))
    sent = 0
    with Continuous(workbench):
        for _ in eventually(180):
            if count(bronze.path) == sent:  # the next batch
                stand.append("a", *numbered(sent, sent + 20))
                sent += 20
            if operations(bronze).count("OPTIMIZE") >= 3 and "DELETE" in operations(aged):
                break
            time.sleep(0.1)
        for _ in eventually(120):
            young = list(range(0, sent, 2))  # not only as many: some may be old, others to come
            read = count(copy.path) == sent and is_noted(workbench.project.tables, sent)
            if read and workbench.column("offset", "aged") == young:
                break
    assert noted(workbench.project) == {"aged": "7d"}
    assert workbench.column("offset") == list(range(sent))
    assert workbench.column("offset", "copy") == list(range(sent))
    assert workbench.column("offset", "aged") == young
    report = Audit(stand.flight, workbench.project.tables).run()
    assert report.well and report.records == sent


@pytest.mark.spark_process
@pytest.mark.timeout(900)
def test_another_process_may_do_it_too(tmp_path: Path, feeder: Feeder) -> None:
    project = make_project(
        tmp_path / "shop", feeder.servers, DEFINITIONS.replace("RETENTION", "20d")
    )
    tables = project / "storage" / "tables"
    feeder.append(3000)  # six micro-batches
    with running(project) as process:
        for _ in eventually(180):
            if count(tables / "bronze") >= 1000:  # two files or more, which can be merged
                break
        for _ in range(2):
            feeder.append(700)
            compacted = here("compact", "--json", cwd=project)
            assert compacted.returncode == 0, compacted.stderr
            done = {each["table"]: each for each in json.loads(compacted.stdout)}
            assert done["bronze"]["files_before"] >= 1 and not done["bronze"]["error"]
        # How many files there were afterwards says nothing: the pipeline has added more meanwhile.
        assert "OPTIMIZE" in operations(Table(tables / "bronze"))
        for _ in eventually(180):
            filled = {count(tables / name) for name in ("bronze", "copy", "aged")}
            if filled == {feeder.end} and is_noted(tables, feeder.end):
                break
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=90)  # otherwise it would never end
    assert process.returncode == 0 and "Traceback" not in said, said
    assert offsets(project) == list(range(feeder.end))
    audited = here("audit", cwd=project)
    assert audited.stdout.splitlines()[-1] == "gaps 0, duplicates 0", audited.stdout


@pytest.mark.timeout(300)
def test_definitions_that_changed_are_loaded_to_know_how_long_rows_are_kept(
    workbench: Workbench, warm: Command
) -> None:
    workbench.define(DEFINITIONS.replace("RETENTION", "20d"))
    workbench.stand.append("a", *numbered(0, 100))
    workbench.run()
    workbench.define(DEFINITIONS.replace("RETENTION", "7d"))
    planned = warm("compact", "aged", "--dry-run", cwd=workbench.root)
    assert "50 rows older than 7d would be deleted" in planned.stdout, planned.stderr
    found = warm("compact", cwd=workbench.root)
    assert "50 rows older than 7d deleted" in found.stdout, found.stderr
    assert re.search(r"^bronze: .*\d+ files \(.*\)", found.stdout, re.MULTILINE)
    assert workbench.column("offset", "aged") == list(range(0, 100, 2))
    wrong = warm("compact", "no_such_table", cwd=workbench.root)
    assert wrong.stderr == "headwater: error: there is no table no_such_table\n"
