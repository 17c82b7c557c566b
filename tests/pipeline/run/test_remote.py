"""Elsewhere than in this process: a Spark Connect server, and executors of a cluster."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from headwater.pipeline.run.remote import FlowEvent, event_of, short_error
from headwater.spark import python
from tests.cli.here import headwater_here
from tests.e2e.process import eventually
from tests.pipeline.run.test_spark_pipelines import CONTRACT, SETTINGS, make_project, rows
from tests.pipeline.test_commands import BRONZE, Feeder, feeder, offsets
from tests.pipeline.test_commands import make_project as make_small_project

__all__ = ["feeder"]

pytestmark = pytest.mark.timeout(900)

STARTING_SECONDS = 180
STARTED = re.compile(r"Spark Connect server started at: 127\.0\.0\.1:(\d+)")


def headwater(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headwater", "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=400)


@dataclass(frozen=True, slots=True)
class Connect:
    """A Spark Connect server that runs."""

    address: str
    warehouse: Path

    def offsets(self, table: str = "bronze") -> list[int]:
        try:
            return sorted(row["offset"] for row in rows(self.warehouse / table))
        except (OSError, pa.ArrowException):  # a file may be being written
            return []


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    place = tmp_path_factory.mktemp("connect")
    home = Path(pyspark.__file__).parent
    conf = {
        **SETTINGS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        # Any: one that is chosen here may be someone else's when Java gets to it.
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={place}",
        "spark.ui.enabled": "false",
    }
    given = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--driver-memory", "1g"]
    environment = {"PYSPARK_PYTHON": str(python.script(place)), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"SPARK_HOME": str(home)}
    with (place / "log").open("wb") as log:
        server = subprocess.Popen(
            [*command, *given, "--class", main, "spark-internal"],
            cwd=place,
            env=os.environ | environment,
            stdout=log,
            stderr=log,
        )
    try:
        port = _port_of(server, place / "log")
        yield Connect(f"sc://127.0.0.1:{port}", place / "warehouse")
    finally:
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:  # no test is about how soon it ends
            server.kill()
            server.wait()


def _port_of(server: subprocess.Popen[bytes], log: Path) -> int:
    """Wait until it says where it listens."""
    for _ in eventually(STARTING_SECONDS):
        if found := STARTED.search(log.read_text(errors="replace")):
            return int(found[1])
        assert server.poll() is None, log.read_text(errors="replace")[-3000:]
    raise AssertionError


def last_state(printed: str) -> dict[str, dict[str, Any]]:
    """The tables of the last line of JSON, by name."""
    state = json.loads(printed.splitlines()[-1])
    return {each["name"]: each for each in state["tables"]}


@pytest.mark.spark_process
def test_a_server_fills_the_tables_and_goes_on(
    tmp_path: Path, feeder: Feeder, connect: Connect
) -> None:
    project = make_project(tmp_path / "shop", feeder.servers, "examples.py")
    (project / "contracts" / "example.yml").write_text(CONTRACT)
    feeder.append(100, value=b'{"n":%d}')
    ran = headwater("run", "--once", "--remote", connect.address, cwd=project)
    assert ran.returncode == 0, ran.stderr
    tables = last_state(ran.stdout)
    assert {name: each["state"] for name, each in tables.items()} == dict.fromkeys(
        ("bronze", "silver_numbers", "quarantine", "late", "traffic", "sessions", "movers"), "done"
    )
    assert tables["bronze"]["rows"] == 100 and tables["sessions"]["rows"] == 1
    assert tables["movers"]["kind"] == "view"

    feeder.append(50, value=b'{"n":%d}')
    ran = headwater("run", "--once", "--remote", connect.address, cwd=project)
    assert ran.returncode == 0, ran.stderr
    assert last_state(ran.stdout)["bronze"]["rows"] == 150
    assert connect.offsets() == list(range(150))
    numbers = [row["n"] for row in rows(connect.warehouse / "silver_numbers")]
    assert sorted(numbers) == list(range(90))  # each key once
    assert {row["rule"] for row in rows(connect.warehouse / "quarantine")} == {"range"}
    assert {row["messages"] for row in rows(connect.warehouse / "sessions")} == {100, 150}

    ran = headwater(
        "run", "--once", "--remote", connect.address, "--full-refresh", "bronze", cwd=project
    )
    assert ran.returncode == 0, ran.stderr
    assert connect.offsets() == list(range(150))


@pytest.mark.spark_process
def test_it_runs_again_and_again_until_it_is_stopped(
    tmp_path: Path, feeder: Feeder, connect: Connect
) -> None:
    definitions = BRONZE.replace("def bronze", "def stream")
    project = make_small_project(tmp_path / "shop", feeder.servers, definitions)
    command = [sys.executable, "-m", "headwater", "pipeline", "run", "--remote", connect.address]
    feeder.append(10)
    with subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, text=True) as running:
        try:
            for count in (10, 15):
                for _ in eventually(120):
                    if connect.offsets("stream") == list(range(count)):
                        break
                feeder.append(5)
            running.send_signal(signal.SIGTERM)
            _, said = running.communicate(timeout=90)  # otherwise it would never end
        finally:
            running.kill()
    assert (running.returncode, said) == (0, "")


@pytest.mark.spark_process
def test_what_is_wrong_is_said_in_one_line(
    tmp_path: Path, feeder: Feeder, connect: Connect
) -> None:
    wrong = BRONZE + "\n\n@dp.table\ndef other():\n    return source.frame().select(1 / 0)\n"
    project = make_small_project(tmp_path / "wrong", feeder.servers, wrong)
    ran = headwater("run", "--once", "--remote", connect.address, cwd=project)
    assert ran.returncode == 1
    expected = "transformations/bronze.py, line 12: ZeroDivisionError: division by zero"
    assert ran.stderr == f"headwater: error: {expected}\n"

    text = (project / "transformations" / "bronze.py").read_text()
    (project / "transformations" / "bronze.py").write_text(text.replace("1 / 0", "'nothing'"))
    ran = headwater("run", "--once", "--remote", connect.address, cwd=project)
    assert ran.returncode == 1 and len(ran.stderr.splitlines()) == 1
    assert ran.stderr.startswith("headwater: error: other: [UNRESOLVED_COLUMN")

    checked = headwater("check", "--remote", connect.address, cwd=project)
    _, *nodes, error = checked.stdout.splitlines()
    assert (checked.returncode, nodes) == (1, ["bronze (table)", "other (table)"])
    assert error.startswith("error: other: [UNRESOLVED_COLUMN")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("sc://127.0.0.1:{port}", "no Spark Connect server answers at sc://127.0.0.1:{port}"),
        ("http://127.0.0.1", "--remote must be an address such as sc://localhost:15002"),
    ],
)
def test_a_server_that_is_not_there(
    tmp_path: Path, feeder: Feeder, address: str, said: str
) -> None:
    project = make_small_project(tmp_path / "shop", feeder.servers, BRONZE)
    with socket.socket() as taken:  # by someone who does not listen, so that nobody else does
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        ran = headwater("run", "--remote", address.format(port=port), cwd=project)
    assert ran.returncode == 1
    assert ran.stderr.startswith(f"headwater: error: {said.format(port=port)}")


def test_events_are_understood() -> None:
    running = event_of("Flow spark_catalog.default.bronze is RUNNING.")
    assert running == FlowEvent("spark_catalog.default.bronze", "running")
    failed = event_of(
        "Flow 'spark_catalog.`default`.bronze' has FAILED more than 2 times and will not be "
        "restarted.\nError: [STREAM_FAILED] Query [id = 1] terminated with exception: no disk\nat x"
    )
    assert failed == FlowEvent("spark_catalog.default.bronze", "failed", "no disk")
    unresolved = event_of("Failed to resolve flow: 'spark_catalog.default.x'.\nError: no column")
    assert unresolved == FlowEvent("spark_catalog.default.x", "failed", "no column")
    assert event_of("Run is COMPLETED.") is None


def test_a_server_without_headwater_is_told_what_to_do() -> None:
    told = short_error("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: headwater. Make")
    assert told.endswith("install headwater[spark] in its Python and in that of its executors")


@pytest.mark.spark_process
def test_executors_of_a_cluster_fill_the_tables(tmp_path: Path, feeder: Feeder) -> None:
    project = make_project(
        tmp_path / "shop", feeder.servers, "contracts.py", "examples.py", "gold.py"
    )
    settings = project / "spark-pipeline.yml"
    settings.write_text(settings.read_text() + "  spark.sql.shuffle.partitions: '2'\n")
    feeder.append(1000)
    work = Path(pyspark.__file__).parent / "work"  # where executors have their files
    before = set(work.glob("app-*"))
    ran = headwater("run", "--once", "--master", "local-cluster[1,1,1024]", cwd=project)
    executors = set(work.glob("app-*")) - before
    for each in executors:  # which may still be writing there when the program has ended
        for _ in eventually(60):
            shutil.rmtree(each, ignore_errors=True)
            if not each.exists():
                break
    assert ran.returncode == 0 and executors, ran.stderr
    assert offsets(project) == list(range(1000))
    audited = headwater_here("pipeline", "audit", cwd=project)
    assert audited.stdout.splitlines()[-1] == "gaps 0, duplicates 0", audited.stderr
