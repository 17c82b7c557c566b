"""`headwater pipeline audit` and `replay`, as a person calls them. No Spark is needed for these."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import write_deltalake

from tests.cli.here import headwater_here
from tests.e2e.process import BrokerProcess
from tests.flight.client import Client, rows

PROJECT = """
name: test
storage: storage
configuration:
  headwater.servers: 127.0.0.1:{port}
"""


class Project:
    def __init__(self, root: Path, broker: BrokerProcess) -> None:
        self.root = root
        self.client = Client(broker.ports["flight"])
        root.mkdir()
        (root / "spark-pipeline.yml").write_text(PROJECT.format(port=broker.ports["flight"]))

    def append(self, sequence: int, *values: bytes) -> None:
        batch = rows(*[("a", value) for value in values])
        self.client.put(batch, do="append", producer="tests", sequence=sequence)

    def fill(self, start: int, end: int) -> None:
        content = self.client.read(start=start, end=end, headers=True)
        write_deltalake(str(self.root / "storage/tables/bronze"), content, mode="append")

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return headwater_here("pipeline", *command, "--project", str(self.root))

    def run_alone(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """In a process of its own."""
        program = [sys.executable, "-m", "headwater", "pipeline"]
        return subprocess.run(
            [*program, *command, "--project", str(self.root)], capture_output=True, text=True
        )


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    with BrokerProcess(tmp_path / "data") as broker:
        made = Project(tmp_path / "project", broker)
        yield made
        made.client.close()


@pytest.fixture(scope="module")
def empty_project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """For commands that change nothing."""
    place = tmp_path_factory.mktemp("proof")
    with BrokerProcess(place / "data") as broker:
        made = Project(place / "project", broker)
        yield made
        made.client.close()


def test_an_audit_ends_with_what_it_proves(project: Project) -> None:
    project.append(1, *[b"%d" % n for n in range(100)])
    project.fill(0, 90)
    found = project.run_alone("audit")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.splitlines()[-1] == "gaps 0, duplicates 0"
    assert "10 records are newer than the last batch of bronze" in found.stdout


def test_an_audit_that_fails_says_where(project: Project) -> None:
    project.append(1, *[b"%d" % n for n in range(100)])
    project.fill(0, 50)
    project.fill(60, 100)
    project.fill(70, 71)
    found = project.run("audit")
    assert found.returncode == 1
    assert found.stdout.splitlines()[-1] == "gaps 10, duplicates 1"
    assert "log and bronze: missing: 50 to 59 (10)" in found.stdout
    assert "log and bronze: repeated: 70 (1)" in found.stdout
    as_json = project.run("audit", "--json", "--from", "60")
    assert as_json.returncode == 1
    report = json.loads(as_json.stdout)
    assert (report["gaps"], report["duplicates"], report["first"]) == (0, 1, 60)


def test_a_replay_by_name(project: Project) -> None:
    project.append(1, *[b"%d" % n for n in range(100)])
    found = project.run("replay", "--since", "10", "--to", "b", "--name", "mine")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("mine: 90 messages in ")
    log = project.client.act("log")
    values = project.client.read(start=0, end=log["end"], topics=["b"]).column("value")
    assert values.to_pylist() == [b"%d" % n for n in range(10, 100)]
    again = project.run("replay", "--name", "mine", "--resume")
    assert again.returncode == 0 and project.client.act("log")["end"] == log["end"]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (("audit",), "there is no table bronze"),
        (("replay", "--from", "silver"), "there is no table silver"),
        (("replay", "--pace", "quick"), "a pace is original, max, 10x or 500/s, not: quick"),
        (("replay", "--resume"), "--resume needs --name NAME"),
        (("replay", "--resume", "--name", "x"), "there is no replay x to resume"),
        (("replay", "--name", "../x"), "a replay's name has letters"),
    ],
)
def test_errors_are_one_line(
    empty_project: Project, command: tuple[str, ...], sentence: str
) -> None:
    found = empty_project.run(*command)
    assert found.returncode == 1
    assert found.stderr.startswith("headwater: error: ") and sentence in found.stderr
    assert len(found.stderr.splitlines()) == 1
