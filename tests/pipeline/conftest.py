"""One Spark for all tests, a broker, and projects to run on both."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.cli import pipeline as commands
from headwater.pipeline.project import project as projects
from headwater.pipeline.run.runner import Runner, configure
from headwater.pipeline.tables.delta import Table
from tests.cli.here import headwater_here
from tests.spark.conftest import Stand, spark, stand

__all__ = ["Command", "Stand", "Workbench", "spark", "stand", "table", "warm", "workbench"]

#: `headwater pipeline …`, with a working directory.
Command = Callable[..., subprocess.CompletedProcess[str]]

BRONZE = """
from pyspark import pipelines as dp
from headwater.pipeline import bronze as source

@dp.table(partition_cols=source.PARTITION_COLUMNS, table_properties={"headwater.complete": "true"})
@source.direct
def bronze():
    return source.frame()
"""


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table that does not exist yet."""
    return Table(tmp_path / "tables" / "numbers")


class Workbench:
    """A project in a directory, run on the one Spark, against a broker."""

    def __init__(self, root: Path, stand: Stand) -> None:
        self.root, self.stand, self.spark = root, stand, stand.spark
        self.settings: dict[str, str] = {}

    def define(self, text: str = BRONZE, name: str = "definitions.py") -> None:
        place = self.root / "transformations" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        configuration = {"headwater.servers": self.stand.servers, **self.settings}
        written = json.dumps(
            {"name": "bench", "storage": "storage", "configuration": configuration}
        )
        (self.root / "spark-pipeline.yml").write_text(written)  # JSON is YAML

    @property
    def project(self) -> projects.Project:
        return projects.load(self.root)

    def run(self, refresh: list[str] | None = None) -> Runner:
        """Everything there is, once."""
        runner = Runner(self.project, self.spark, once=True)
        assert runner.run(refresh), runner.state.as_dict()
        return runner

    def table(self, name: str = "bronze") -> Table:
        return Table(self.project.tables / name)

    def rows(self, name: str = "bronze") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table(name).dataset().to_table().to_pylist()
        return found

    def column(self, name: str, table: str = "bronze") -> list[Any]:
        return sorted(row[name] for row in self.rows(table))


@pytest.fixture
def warm(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Commands in this process, on the Spark that is there already. They must not stop it."""

    def session(project: projects.Project, master: str, app_name: str = "") -> SparkSession:
        configure(spark, project)
        return spark

    monkeypatch.setattr(commands, "session", session)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)

    def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return headwater_here("pipeline", *arguments, cwd=cwd)

    return run


@pytest.fixture
def workbench(tmp_path: Path, stand: Stand) -> Workbench:
    return Workbench(tmp_path / "project", stand)
