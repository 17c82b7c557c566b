"""Histograms of how long something took."""

import pytest

from headwater.timings import BOUNDS, Timings, quantile


def test_the_last_times_and_all_times() -> None:
    timings = Timings(recent=3)
    for seconds in (9.0, 0.003, 0.001, 0.002):
        timings.add(seconds)
    assert sum(timings.counts) == 4 and timings.counts[-1] == 1
    assert timings.quantiles(0.5, 1.0) == [0.002, 0.003]
    assert Timings().quantiles(0.5) == [0.0]


@pytest.mark.parametrize(
    ("counts", "share", "seconds"),
    [
        ([0, 0, 0], 0.99, 0.0),
        ([10, 0, 0], 0.5, 0.5),
        ([10, 10, 0], 0.75, 1.5),
        ([1, 0, 99], 0.99, 2.0),  # longer than the last bound, nobody knows how long
    ],
)
def test_a_quantile_of_counts(counts: list[int], share: float, seconds: float) -> None:
    assert quantile((1.0, 2.0), counts, share) == seconds


def test_bounds_rise() -> None:
    assert list(BOUNDS) == sorted(BOUNDS)
