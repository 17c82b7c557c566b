"""The commands as a person types them, in processes of their own; some of them are killed."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater.spark.flight_client import FlightClient
from tests.cli.here import headwater_here
from tests.e2e.process import BrokerProcess, eventually
from tests.flight.client import Client, rows

#: So long it may take until Spark has started and written, where others use the machine as well.
PATIENCE = 240.0

BRONZE = """
from pyspark import pipelines as dp
from headwater.pipeline import bronze as source

@dp.table(partition_cols=source.PARTITION_COLUMNS, table_properties={"headwater.complete": "true"})
def bronze():
    return source.frame()
"""


def headwater(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater", "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300)


def here(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """For those that need no Spark."""
    return headwater_here("pipeline", *arguments, cwd=cwd)


def offsets(project: Path) -> list[int]:
    table = DeltaTable(str(project / "storage" / "tables" / "bronze"))
    found: list[int] = table.to_pyarrow_table(columns=["offset"]).column("offset").to_pylist()
    return sorted(found)


def noted(project: Path) -> list[tuple[int, int, int]]:
    """What the audit table says, by batch: the first offset, that behind the last, and rows."""
    table = DeltaTable(str(project / "storage" / "tables" / "audit")).to_pyarrow_table()
    audit = sorted(table.to_pylist(), key=lambda row: row["batch"])
    return [(row["first"], row["last"] + 1, row["rows"]) for row in audit]


class Feeder:
    """Appends records to the log."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.servers = f"127.0.0.1:{broker.ports['flight']}"
        self._client = Client(broker.ports["flight"])
        self._sequence = 0

    def append(self, count: int, topic: str = "shop/orders", value: bytes = b"%d") -> None:
        values = [(topic, value % number) for number in range(count)]
        self._client.put(rows(*values), do="append", producer="feeder", sequence=self._sequence)
        self._sequence += 1

    @property
    def end(self) -> int:
        return FlightClient((self.servers,)).log().end


@pytest.fixture
def feeder(tmp_path: Path) -> Iterator[Feeder]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield Feeder(broker)


def make_project(place: Path, servers: str, definitions: str) -> Path:
    (place / "transformations").mkdir(parents=True)
    (place / "transformations" / "bronze.py").write_text(definitions)
    configuration = {"headwater.servers": servers, "headwater.bronze.maxOffsets": "500"}
    content = {"name": "shop", "storage": "storage", "configuration": configuration}
    (place / "spark-pipeline.yml").write_text(json.dumps(content))
    return place


@contextmanager
def running(project: Path) -> Iterator[subprocess.Popen[str]]:
    """A pipeline that runs, and is killed at the end: Python and Java."""
    with subprocess.Popen(
        [sys.executable, "-m", "headwater", "pipeline", "run"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.smoke
@pytest.mark.spark_process
@pytest.mark.timeout(900)
def test_a_new_project_checks_runs_and_tells(tmp_path: Path, feeder: Feeder) -> None:
    made = here("init", "mine", cwd=tmp_path)
    assert "headwater pipeline run" in made.stdout, made.stderr
    project = tmp_path / "mine"
    feeder.append(1000)
    feeder.append(10, "sensors/a")
    servers = ("--servers", feeder.servers)
    checked = headwater("check", *servers, cwd=project)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert (
        "log → bronze (table)" in checked.stdout and not (project / "storage" / "tables").exists()
    )
    ran = headwater("run", "--once", *servers, cwd=project)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    states = [json.loads(line) for line in ran.stdout.splitlines()]
    assert all(table["state"] == "done" for table in states[-1]["tables"])
    assert offsets(project) == list(range(1010))
    status = json.loads(here("status", "--json", cwd=project).stdout)
    tables: dict[str, Any] = {each["name"]: each for each in status["tables"]}
    assert tables["bronze"]["rows"] == 1010 and tables["topics"]["rows"] == 2
    shown = here("status", cwd=project).stdout
    assert "bronze" in shown and "1,010" in shown and "is not running" in shown
    compacted = here("compact", "bronze", cwd=project)
    assert compacted.stdout.startswith("bronze: "), compacted.stderr
    assert offsets(project) == list(range(1010))


@pytest.mark.torture
@pytest.mark.spark_process
@pytest.mark.timeout(900)
def test_killed_at_any_point_there_are_no_gaps_and_no_repeats(
    tmp_path: Path, feeder: Feeder
) -> None:
    project = make_project(tmp_path / "shop", feeder.servers, BRONZE)
    log = project / "storage" / "tables" / "bronze" / "_delta_log"
    feeder.append(5000)  # ten micro-batches
    for versions in (3, 8):  # a version per micro-batch, and one that made the table
        with running(project):
            for _ in eventually(PATIENCE):
                if len(list(log.glob("*.json"))) >= versions:
                    break
            time.sleep(0.1 * versions)  # somewhere in the next batch
        feeder.append(200)
    with running(project) as process:
        for _ in eventually(PATIENCE):
            # The audit has its row after the table: a batch may be stopped between the two.
            if len(offsets(project)) >= feeder.end and noted(project)[-1][1] == feeder.end:
                break
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=90)  # otherwise it would never end
    assert process.returncode == 0 and "Traceback" not in said, said
    assert offsets(project) == list(range(feeder.end))
    ranges = noted(project)
    assert ranges[0][0] == 0 and ranges[-1][1] == feeder.end
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
    assert sum(rows for *_, rows in ranges) == feeder.end


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    nowhere = headwater("status", cwd=tmp_path)
    assert nowhere.returncode == 1
    assert nowhere.stderr.startswith("headwater: error: there is no spark-pipeline.yml in ")
    assert len(nowhere.stderr.splitlines()) == 1
    named = here("run", "bronze", cwd=tmp_path)
    assert named.stderr == "headwater: error: naming tables needs --full-refresh\n"
