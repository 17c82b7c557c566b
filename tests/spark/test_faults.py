"""What a stream survives: kills of everyone, and checkpoints of earlier versions."""

import shutil
from pathlib import Path

import pytest

from tests.spark.conftest import SPARK_TIMEOUT, Stand, numbered
from torture import spark as torture

pytestmark = SPARK_TIMEOUT

CHECKPOINTS = Path(__file__).parent / "checkpoints"


@pytest.mark.parametrize("version", ["v1"])
def test_a_checkpoint_of_an_earlier_version_is_read(stand: Stand, version: str) -> None:
    """They were made by a query that had copied the offsets 0 to 99, in two batches."""
    stand.append("a", *numbered(0, 150))
    shutil.copytree(CHECKPOINTS / version, stand.checkpoint())
    stand.run(stand.stream(subscribePattern="a"), topic="out")
    assert stand.values("out") == numbered(100, 150)


@pytest.mark.torture
@pytest.mark.spark_process
@pytest.mark.timeout(1200)
def test_kills_of_the_driver_a_worker_and_the_broker(tmp_path: Path) -> None:
    """The short form of `make torture-spark`."""
    verdict = torture.torture(tmp_path, cycles=3, seconds=1.0)
    assert verdict.good, verdict
    assert sum(verdict.harm.values()) == 3
    assert 0 < verdict.acknowledged <= verdict.found, verdict
