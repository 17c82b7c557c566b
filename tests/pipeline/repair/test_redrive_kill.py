"""`headwater pipeline redrive`, killed in the middle and run again until it is done.

It is killed with SIGKILL right after something of the work can be seen, and a random moment more.
In the end no record is lost, none is there twice, and what fits has left quarantine.
"""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.e2e.process import BrokerProcess, eventually
from tests.flight.client import Client, rows
from torture.driver import Driver

pytestmark = pytest.mark.spark_process

TOPIC = "shop/orders"
FIT, BROKEN, GOOD = 60_000, 30_000, 1_000
#: It redrives in smaller steps than usual. There is work left for long when the first one is seen,
#: so the kill comes in the middle even where this process has to wait for its turn.
HEADWATER = """
from headwater.cli import main
from headwater.pipeline.repair import redrive

redrive.CHUNK = 5_000
main()
"""
DEFINITIONS = """
from pyspark import pipelines as dp

from headwater.pipeline import bronze as source
from headwater.pipeline import contracts


@dp.table(partition_cols=source.PARTITION_COLUMNS, table_properties={"headwater.complete": "true"})
def bronze():
    return source.frame()


contracts.define()
"""
CONTRACT = """
name: orders
topics: shop/.*
key: [id]
fields:
  id: {type: long, required: true}
  amount: {type: long, required: true, min: 0}
"""


class Quarantined:
    """A project whose quarantine has orders that a looser contract takes, and other texts."""

    def __init__(self, root: Path, broker: BrokerProcess) -> None:
        self.root = root
        self.tables = root / "storage" / "tables"
        self.client = Client(broker.ports["flight"])
        self._command = [sys.executable, "-c", HEADWATER, "pipeline"]
        servers = {"headwater.servers": f"127.0.0.1:{broker.ports['flight']}"}
        content = {"name": "test", "storage": "storage", "configuration": servers}
        for name in ("transformations", "contracts"):
            (root / name).mkdir(parents=True)
        (root / "spark-pipeline.yml").write_text(json.dumps(content))  # JSON is YAML
        (root / "transformations" / "all.py").write_text(DEFINITIONS)
        self._contract = root / "contracts" / "orders.yml"

    def fill(self) -> None:
        refused = [b'{"id": %d, "amount": -1}' % number for number in range(FIT)]
        broken = [b"broken %d" % number for number in range(BROKEN)]
        good = [b'{"id": %d, "amount": 1}' % (FIT + number) for number in range(GOOD)]
        values = [*refused, *broken, *good]
        random.shuffle(values)
        for number, start in enumerate(range(0, len(values), 20_000)):
            batch = rows(*[(TOPIC, value) for value in values[start : start + 20_000]])
            self.client.put(batch, do="append", producer="tests", sequence=number)
        self._contract.write_text(CONTRACT)
        self.run("run", "--once")
        assert self.rules() == {"range": FIT, "json": BROKEN}
        self._contract.write_text(CONTRACT.replace("min: 0", "min: -5") + "version: 2\n")

    def run(self, *command: str) -> str:
        done = subprocess.run(
            [*self._command, *command],
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def driver(self, *command: str) -> Driver:
        made = [*self._command, "redrive", *command, "--yes", "--project", str(self.root)]
        return Driver(made, self.root / "redrive.log")

    def column(self, table: str, name: str) -> list[Any]:
        found = DeltaTable(str(self.tables / table)).to_pyarrow_table(columns=[name])
        return list(found.column(name).to_pylist())

    def rules(self) -> dict[str, int]:
        return dict(Counter(self.column("quarantine", "rule")))

    def commits(self, table: str) -> int:
        return len(list((self.tables / table / "_delta_log").glob("*.json")))

    def end(self) -> int:
        found: int = self.client.act("log")["end"]
        return found

    def published(self, since: int) -> list[bytes]:
        found = self.client.read(start=since, end=self.end(), topics=[TOPIC])
        return list(found.column("value").to_pylist())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quarantined]:
    """Each test looks at a rule of its own."""
    place = tmp_path_factory.mktemp("redrive")
    with BrokerProcess(place / "data") as broker:
        made = Quarantined(place / "project", broker)
        made.fill()
        yield made
        made.client.close()


def killed(driver: Driver, seen: Callable[[], bool]) -> bool:
    """Start it, and kill it when something was seen. Returns whether it was at work still."""
    driver.start()
    try:
        for _ in eventually(120):
            if seen() or not driver.running():
                break
        time.sleep(random.uniform(0, 0.1))
        return driver.running()
    finally:
        driver.kill()


def grown(number: Callable[[], int]) -> Callable[[], bool]:
    before = number()
    return lambda: number() > before


@pytest.mark.timeout(1500)
def test_killed_on_the_way_to_the_tables(project: Quarantined) -> None:
    driver = project.driver("--rule", "range")
    in_silver = grown(lambda: project.commits("silver_orders"))
    assert killed(driver, in_silver), f"it ended by itself: {driver.log}"
    killed(driver, grown(lambda: project.commits("quarantine")))
    project.run("redrive", "--rule", "range", "--yes")
    ids = project.column("silver_orders", "id")
    assert sorted(ids) == list(range(FIT + GOOD))
    assert "range" not in project.rules()
    assert project.run("audit").endswith("gaps 0, duplicates 0\n")


@pytest.mark.timeout(1500)
def test_killed_on_the_way_to_the_topic(project: Quarantined) -> None:
    driver = project.driver("--to", "topic", "--rule", "json")
    before, note = project.end(), project.root / "storage" / "state" / "redrive.json"
    assert killed(driver, note.exists), f"it ended by itself: {driver.log}"
    killed(driver, grown(project.end))
    project.run("redrive", "--to", "topic", "--rule", "json", "--yes")
    values = project.published(before)
    assert sorted(values) == sorted(b"broken %d" % number for number in range(BROKEN))
    assert "json" not in project.rules()
    assert project.run("audit").endswith("gaps 0, duplicates 0\n")
