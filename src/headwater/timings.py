"""How long something took, again and again: a histogram since the start, and the last times."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from typing import Any

#: Upper bounds in seconds; what took longer is in one more bucket.
BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
#: For what is mostly quick.
FINE_BOUNDS = (0.00005, 0.0001, 0.0002, *BOUNDS[:-1])
RECENT = 512


class Timings:
    """One thread adds, any thread reads: what is read may be a moment old."""

    def __init__(self, bounds: Sequence[float] = BOUNDS, recent: int = RECENT) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.seconds = 0.0
        self._recent: deque[float] = deque(maxlen=recent)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds
        self._recent.append(seconds)

    def quantiles(self, *shares: float) -> list[float]:
        """Of the last times: how long it took at most in so great a share of them."""
        times = sorted(self._recent.copy())
        if not times:
            return [0.0] * len(shares)
        return [times[min(int(share * len(times)), len(times) - 1)] for share in shares]

    def as_dict(self) -> dict[str, Any]:
        return {"bounds": self.bounds, "counts": list(self.counts), "seconds": self.seconds}


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """From the counts of a histogram alone, so about: as if those in a bucket were spread evenly.
    What took longer than the last bound counts as that."""
    left = share * sum(counts)
    lower = 0.0
    for upper, count in zip(bounds, counts, strict=False):
        if left <= count:
            return lower + (upper - lower) * left / max(count, 1)
        left -= count
        lower = upper
    return lower
