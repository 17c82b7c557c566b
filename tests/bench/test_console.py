"""The benchmark of the console in small: does it run, and does it count right?"""

from pathlib import Path

import pytest

from bench import console
from bench.brokers import Yard
from bench.figures import Figures, Metric

pytestmark = pytest.mark.timeout(600)


@pytest.mark.bench
def test_it_measures_with_and_without_an_audience(tmp_path: Path) -> None:
    found = console.compare(Yard(tmp_path), rounds=1, seconds=0.5)
    assert set(found) == {console.NOBODY, console.WATCHED}
    assert all(each[Metric.RATE] > 0 for figures in found.values() for each in figures)
    assert "messages/s" in console.table(found)


def test_the_cost_is_told_from_medians() -> None:
    def figures(rate: float, cpu: float) -> Figures:
        return {Metric.RATE: rate, Metric.CPU: cpu}

    found = {
        console.NOBODY: [figures(100, 1.0), figures(100, 1.0), figures(10, 9.0)],
        console.WATCHED: [figures(98, 1.01), figures(98, 1.01), figures(1, 9.0)],
    }
    assert console.cost(found, Metric.RATE) == pytest.approx(0.02)
    assert console.cost(found, Metric.CPU) == pytest.approx(0.01)
    assert "+2.0%" in console.table(found)
