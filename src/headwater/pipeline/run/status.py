"""The status of a project, running or not: the last reported state, with rows counted now."""

import fcntl
from dataclasses import asdict
from typing import Any

from headwater.pipeline.care.upkeep import tables_of
from headwater.pipeline.project.paths import AUDIT
from headwater.pipeline.project.project import Project
from headwater.pipeline.run import state as states
from headwater.pipeline.run.state import TableState, now
from headwater.pipeline.tables.spark_parquet import SparkParquetTable
from headwater.pipeline.tables.stored import StoredTable


def is_running(project: Project) -> bool:
    """Whether a process holds the lock of the project."""
    try:
        with (project.state / "lock").open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _tables(project: Project) -> list[StoredTable | SparkParquetTable]:
    places = sorted(project.tables.iterdir()) if project.tables.is_dir() else []
    plain = [table for place in places if (table := SparkParquetTable(place)).exists]
    return [*tables_of(project), *plain]


def status_of(project: Project) -> dict[str, Any]:
    """The last state that was reported; the rows are counted now."""
    found = states.load(project.state) or {
        "name": project.name,
        "mode": "continuous",
        "started": now(),
        "updated": now(),
        "log": None,
        "tables": [],
    }
    running = is_running(project)
    rows = {each.name: sum(file.rows for file in each.files()) for each in _tables(project)}
    known = {each["name"]: each for each in found["tables"]}
    for name, count in rows.items():
        if name == AUDIT:
            continue
        known.setdefault(name, asdict(TableState(name, "table", "")))["rows"] = count
    for each in known.values():
        if not running:
            each["rows_per_second"] = 0.0
            each["state"] = "waiting" if each["state"] == "running" else each["state"]
    return {**found, "running": running, "tables": list(known.values())}
