"""The same definitions under Spark's own runner, `spark-pipelines run`."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from headwater.pipeline import init
from tests.pipeline.test_commands import Feeder, feeder

__all__ = ["feeder"]

pytestmark = pytest.mark.xdist_group("spark")

#: What needs more than Spark's own runner allows: sessions and contracts look at their columns
#: while they are defined.
OURS_ONLY = ("transformations/gold.py", "transformations/contracts.py")


@pytest.mark.timeout(300)
def test_definitions_run_under_sparks_own_runner(tmp_path: Path, feeder: Feeder) -> None:
    project = tmp_path / "shop"
    init.make(project)
    for name in OURS_ONLY:
        (project / name).unlink()
    settings = project / "spark-pipeline.yml"
    told = f"configuration:\n  headwater.servers: {feeder.servers}\n"
    settings.write_text(settings.read_text().replace("configuration:\n", told))
    feeder.append(100)
    command = Path(sys.executable).with_name("spark-pipelines")
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [str(command), "run"],
        cwd=project,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    bronze = ds.dataset(project / "spark-warehouse" / "bronze", partitioning="hive")
    assert sorted(bronze.to_table(["offset"]).column("offset").to_pylist()) == list(range(100))
