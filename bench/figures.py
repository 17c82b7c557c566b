"""What a measurement is: figures by metric, repeated in rounds, gathered in rows."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class Metric(Enum):
    """What can be measured; the value is the heading of its column."""

    RATE = "messages/s"
    DELIVERIES = "deliveries/s"
    CPU = "CPU µs/message"
    PEAK = "peak MiB"
    P50 = "p50 µs"
    P99 = "p99 µs"
    BYTES = "MB/s"
    RSS = "MB resident"
    CORE = "% of a core"
    PER_CONNECTION = "KiB per connection"
    GROWTH = "MiB of growth"
    READY = "s until ready"
    ROUTE = "µs per route"
    FIRST = "ms to the first message"
    AGAIN = "ms to redelivery at most"
    BATCH_RATE = "rows/s within micro-batches"
    CAUGHT_UP = "s to catch up"
    LAG = "s behind, median"
    MOST_LAG = "s behind at most"


Figures = Mapping[Metric, float]
Findings = Mapping[str, Figures]  # by case: one measurement may answer for several

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Row:
    """One broker in one case, over all rounds."""

    scenario: str
    case: str
    contestant: str
    samples: tuple[Figures, ...]
    failures: tuple[str, ...] = ()

    def values(self, metric: Metric) -> list[float]:
        return [sample[metric] for sample in self.samples if metric in sample]

    def median(self, metric: Metric) -> float | None:
        values = self.values(metric)
        return statistics.median(values) if values else None

    def spread(self, metric: Metric) -> float | None:
        """Largest minus smallest, as a part of the median."""
        values = self.values(metric)
        if len(values) < 2:
            return None
        return (max(values) - min(values)) / (statistics.median(values) or 1.0)


def percentile(ordered: Sequence[int], part: float) -> float:
    """The value that `part` of the sorted values do not exceed."""
    return float(ordered[min(len(ordered) - 1, int(len(ordered) * part))])


def latency(nanoseconds: Sequence[int]) -> Figures:
    if not nanoseconds:
        return {}
    ordered = sorted(nanoseconds)
    return {
        Metric.P50: percentile(ordered, 0.50) / 1000,
        Metric.P99: percentile(ordered, 0.99) / 1000,
    }


def throughput(
    messages: int, seconds: float, cpu_seconds: float, peak_bytes: int, fan_out: int = 1
) -> Figures:
    return {
        Metric.RATE: messages / seconds,
        Metric.DELIVERIES: messages * fan_out / seconds,
        Metric.CPU: cpu_seconds * 1e6 / messages,
        Metric.PEAK: peak_bytes / MIB,
    }
