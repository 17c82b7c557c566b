"""What a pipeline survives: kills of its driver, its Java and the broker."""

from pathlib import Path

import pytest

from torture import pipeline

pytestmark = [pytest.mark.torture, pytest.mark.spark_process]


@pytest.mark.timeout(1200)
def test_kills_of_the_driver_and_java(tmp_path: Path) -> None:
    """The short form of `make torture-spark`: two kills, and the proof afterwards."""
    verdict = pipeline.torture(tmp_path, cycles=2, seconds=2.0)
    assert verdict.good, verdict
    assert verdict.harm == {"driver killed": 1, "java killed": 1}
    assert 0 < verdict.acknowledged <= verdict.found, verdict
