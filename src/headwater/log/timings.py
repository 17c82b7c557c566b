"""How long something took, again and again: a histogram since the start, and the last times."""

from bisect import bisect_left
from collections import deque

#: Upper bounds in seconds; what took longer is in one more bucket.
BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
RECENT = 512


class Timings:
    """One thread adds, any thread reads: what is read may be a moment old."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0
        self._recent: deque[float] = deque(maxlen=RECENT)

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.seconds += seconds
        self._recent.append(seconds)

    def quantiles(self, *shares: float) -> list[float]:
        """Of the last times: how long it took at most in so great a share of them."""
        times = sorted(self._recent.copy())
        if not times:
            return [0.0] * len(shares)
        return [times[min(int(share * len(times)), len(times) - 1)] for share in shares]
