"""The same definitions under Spark's own runner, `spark-pipelines run`."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from headwater.pipeline.project import init
from headwater.spark import python
from tests.pipeline.test_commands import Feeder, feeder

__all__ = ["feeder"]

pytestmark = pytest.mark.spark_process

#: A catalog that is still there in the next run, and not 200 pieces of state on two cores.
SETTINGS = {"spark.sql.catalogImplementation": "hive", "spark.sql.shuffle.partitions": "2"}

CONTRACT = """
name: numbers
topics: shop/.*
key: [n]
fields: {n: {type: long, max: 89}}
"""


def make_project(place: Path, servers: str, *without: str) -> Path:
    """What `init` makes, with the broker's address; `without` some files of definitions."""
    init.make(place)
    settings = place / "spark-pipeline.yml"
    told = f"configuration:\n  headwater.servers: {servers}\n  headwater.sessions.silence: 1h\n"
    settings.write_text(settings.read_text().replace("configuration:\n", told))
    for name in without:
        (place / "transformations" / name).unlink()
    return place


def rows(table: Path) -> list[dict[str, Any]]:
    """The rows of a table of Spark's warehouse."""
    found: list[dict[str, Any]] = ds.dataset(table, partitioning="hive").to_table().to_pylist()
    return found


def spark_pipelines_run(project: Path, *tables: str) -> list[str]:
    """Runs all flows, or those of some tables. Returns the flows that it has completed."""
    command = Path(sys.executable).with_name("spark-pipelines")
    conf = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    ran = subprocess.run(
        [str(command), "run", *conf, *(["--refresh", ",".join(tables)] if tables else [])],
        cwd=project,
        env=os.environ
        | {"PYSPARK_PYTHON": str(python.script(project.parent)), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said[-6000:]
    assert "Run is COMPLETED" in said
    return sorted(set(re.findall(r"Flow (?:[\w.]+\.)?(\w+) has COMPLETED", said)))


@pytest.mark.timeout(1200)
def test_definitions_run_under_sparks_own_runner_and_go_on(tmp_path: Path, feeder: Feeder) -> None:
    project = make_project(tmp_path / "shop", feeder.servers)
    (project / "contracts" / "example.yml").write_text(CONTRACT)
    warehouse = project / "spark-warehouse"
    flows = ["bronze", "large_records", "late", "minutes", "movers", "notices", "quarantine"]
    flows += ["sessions", "silver_numbers", "topics", "traffic"]
    feeder.append(100, value=b'{"n":%d}')
    assert spark_pipelines_run(project) == flows
    assert sorted(row["offset"] for row in rows(warehouse / "bronze")) == list(range(100))

    feeder.append(50, value=b'{"n":%d}')
    some = ["bronze", "quarantine", "sessions", "silver_numbers", "topics"]
    assert spark_pipelines_run(project, *some) == some
    assert sorted(row["offset"] for row in rows(warehouse / "bronze")) == list(range(150))
    assert [row["records"] for row in rows(warehouse / "topics")] == [150]
    # Each state of a session is a row there. The second run has gone on with that of the first.
    sessions = rows(warehouse / "sessions")
    assert {row["messages"] for row in sessions} == {100, 150}
    assert len({row["first_seen"] for row in sessions}) == 1
    numbers = [row["n"] for row in rows(warehouse / "silver_numbers")]
    assert sorted(numbers) == list(range(90))  # each key once
    broken = rows(warehouse / "quarantine")
    assert {(row["rule"], row["reason"]) for row in broken} >= {
        ("range", "n is 90; it has to be at most 89")
    }
    assert len(broken) == 10
