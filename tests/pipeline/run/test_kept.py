"""A pipeline of an earlier version, with its log, tables and checkpoints, goes on with this one.

`python -m tests.pipeline.run.test_kept NAME` keeps one of the version that is there now.
"""

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headwater.pipeline import contracts
from headwater.pipeline.audit import Audit
from headwater.pipeline.project import init
from headwater.pipeline.project import project as projects
from headwater.pipeline.run.queries import query_id
from headwater.pipeline.run.runner import Runner
from headwater.pipeline.tables.delta import Table
from headwater.spark.flight_client import FlightClient
from tests.e2e.process import BrokerProcess
from tests.flight.client import Client, rows

pytestmark = pytest.mark.timeout(400)

TOPIC = "shop/orders/x"
KEPT = Path(__file__).parent / "kept"
RECORDS = 200
CONTRACT = """
name: orders
topics: shop/orders/.*
key: [order_id]
fields:
  order_id: {type: string, required: true}
  amount: {type: long, min: 0}
"""
#: Without sessions: Spark keeps the whole path of their state, so it cannot be moved.
GOLD = """
from pyspark import pipelines as dp
from headwater.pipeline import gold

@dp.table(table_properties=gold.traffic.PROPERTIES)
def traffic():
    return gold.traffic.frame()
"""


def publish(broker: BrokerProcess, first: int) -> None:
    """Orders, of which every tenth breaks the contract and one is there twice."""
    numbers = [*range(first, first + RECORDS - 1), first + 1]
    values = [
        b'{"order_id":"%d","amount":%d,"shop":"north"}' % (each, each if each % 10 else -1)
        for each in numbers
    ]
    client = Client(broker.ports["flight"])
    put = rows(*[(TOPIC, value) for value in values])
    client.put(put, do="append", producer="kept", sequence=first)
    client.close()


def run(root: Path, broker: BrokerProcess, spark: SparkSession) -> projects.Project:
    project = projects.load(root / "project", f"127.0.0.1:{broker.ports['flight']}")
    assert Runner(project, spark, once=True).run()
    return project


def queries(project: projects.Project) -> dict[str, str]:
    places = project.checkpoints.iterdir()
    return {each.name: query_id(each) for each in places if (each / "metadata").exists()}


@pytest.mark.smoke
@pytest.mark.parametrize("archive", sorted(KEPT.glob("*.tar.xz")), ids=lambda each: each.name)
def test_it_goes_on_where_it_was(archive: Path, tmp_path: Path, spark: SparkSession) -> None:
    with tarfile.open(archive) as kept:
        # Python has filters since 3.11.4, and later ones insist on them.
        kept.extraction_filter = getattr(tarfile, "data_filter", None)
        kept.extractall(tmp_path)
    before = json.loads((tmp_path / "queries.json").read_text())
    with BrokerProcess(tmp_path / "data") as broker:
        publish(broker, RECORDS)
        project = run(tmp_path, broker, spark)
        flight = FlightClient((f"127.0.0.1:{broker.ports['flight']}",))
        audited = Audit(flight, project.tables, contracts.load(project.setting("contracts"))).run()
    assert (audited.gaps, audited.duplicates) == (0, 0), audited
    assert queries(project) == before
    orders = [row for row in content(project, "bronze") if row["topic"] == TOPIC]
    assert sorted(row["offset"] for row in orders)[:RECORDS] == list(range(RECORDS))
    assert len(orders) == sum(row["count"] for row in content(project, "traffic")) == 2 * RECORDS
    broken = len(content(project, "quarantine"))
    assert broken == 2 * RECORDS // 10
    silver = content(project, "silver_orders")
    assert len(silver) == 2 * RECORDS - broken - 2
    assert {row["shop"] for row in silver} == {"north"}


def content(project: projects.Project, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Table(project.tables / table).dataset().to_table().to_pylist()
    return found


def keep(name: str) -> None:
    from headwater.spark import session

    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        init.make(root / "project")
        (root / "project" / "contracts" / "example.yml").write_text(CONTRACT)
        (root / "project" / "transformations" / "gold.py").write_text(GOLD)
        settings = root / "project" / "spark-pipeline.yml"
        lines = settings.read_text().splitlines()
        lines = ["storage: storage" if line.startswith("storage:") else line for line in lines]
        settings.write_text("\n".join(lines) + "\n")
        with BrokerProcess(root / "data") as broker:
            publish(broker, 0)
            project = run(root, broker, session("keep", "local[2]", root / "spark"))
        (root / "queries.json").write_text(json.dumps(queries(project)))
        with tarfile.open(KEPT / f"{name}.tar.xz", "w:xz") as kept:
            for each in ("data", "project", "queries.json"):
                kept.add(root / each, each)


if __name__ == "__main__":
    keep(sys.argv[1])
