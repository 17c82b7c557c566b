"""What the event loop does with its time, and who is slowed.

Nothing here is on the way of a message: a timer looks ten times a second how late it is, and once a
second at what others have counted. How late the loop comes to what is due is how long everyone had
to wait for it, whatever the reason.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from headwater.broker.broker import Broker
from headwater.slowing import REASONS, Slowdown, Slowdowns
from headwater.timings import FINE_BOUNDS, Timings, quantile
from headwater.transport.tcp import Connections

PROBE_SECONDS = 0.1
# So many probes are the last minute, and one of so many also takes a sample.
MINUTE_PROBES = 600
SAMPLE_PROBES = 10
# Over so many samples are rates, and how long turns were.
RATE_SAMPLES = 2
TURN_SAMPLES = 10
# What only a few probes say may be about the start of the broker.
ENOUGH_PROBES = 100


@dataclass(frozen=True, slots=True)
class _Sample:
    """What was counted up to a moment."""

    at: float
    cpu: float
    chores: float
    turns: tuple[int, ...]  # by their length
    writes: int


class LoopWatch:
    def __init__(self, broker: Broker, connections: Connections) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._connections = connections
        #: How late the loop comes to what is due.
        self.lag = Timings(FINE_BOUNDS, recent=MINUTE_PROBES)
        self._samples: deque[_Sample] = deque([self._sample()], maxlen=TURN_SAMPLES + 1)
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = perf_counter() + PROBE_SECONDS
        self._handle = self._loop.call_later(PROBE_SECONDS, self._probe)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _probe(self) -> None:
        self.lag.add(max(perf_counter() - self._due, 0.0))
        if self._probes % SAMPLE_PROBES == 0:
            self._samples.append(self._sample())
        self.start()

    @property
    def _probes(self) -> int:
        return sum(self.lag.counts)

    def _sample(self) -> _Sample:
        turn = self._connections.turn
        return _Sample(
            perf_counter(),
            time.thread_time(),
            self._broker.chores.seconds,
            tuple(turn.lengths.counts),
            turn.writes,
        )

    @property
    def busy(self) -> float:
        """The part of a processor that the loop has used over the last moments."""
        old, new = self._last_moments()
        return min((new.cpu - old.cpu) / _passed(old, new), 1.0)

    @property
    def lag_p99(self) -> float:
        """In the last minute, as soon as there is enough to tell."""
        return self.lag.quantiles(0.99)[0] if self._probes >= ENOUGH_PROBES else 0.0

    def overview(self) -> dict[str, Any]:
        old, new = self._last_moments()
        passed = _passed(old, new)
        half, most = self._turn_quantiles(0.5, 0.99)
        late, longest = self.lag.quantiles(0.99, 1.0)
        return {
            "busy": round(self.busy, 4),
            "chores": round((new.chores - old.chores) / passed, 4),
            "turns_per_second": round((sum(new.turns) - sum(old.turns)) / passed, 1),
            "writes_per_second": round((new.writes - old.writes) / passed, 1),
            "turn_ms_p50": round(half * 1000, 3),
            "turn_ms_p99": round(most * 1000, 3),
            "lag_ms_p99": round(late * 1000, 3),
            "lag_ms_longest": round(longest * 1000, 3),
            "slowed": slowed(self._connections.slowdowns),
        }

    def metrics(self) -> dict[str, Any]:
        connections, matcher = self._connections, self._broker.matcher
        ins, outs = connections.input_ceiling, connections.output_ceiling
        return {
            "cpu_seconds": time.thread_time(),
            "chores_seconds": self._broker.chores.seconds,
            "turns": connections.turn.lengths.as_dict(),
            "writes": connections.turn.writes,
            "lag": self.lag.as_dict(),
            "lag_longest": self.lag.quantiles(1.0)[0],
            "slowed": slowed(connections.slowdowns),
            "input": {"claimed": ins.total, "limit": ins.limit, "waiting": ins.waiting},
            "output": {"connections": outs.full, "limit": outs.limit, "share": outs.share},
            "patterns": {"asked": matcher.asked, "refused": matcher.refused},
        }

    def _last_moments(self) -> tuple[_Sample, _Sample]:
        return self._samples[max(-RATE_SAMPLES - 1, -len(self._samples))], self._samples[-1]

    def _turn_quantiles(self, *shares: float) -> list[float]:
        """Of the last ten seconds."""
        old, new = self._samples[0].turns, self._samples[-1].turns
        counts = [after - before for before, after in zip(old, new, strict=True)]
        return [quantile(FINE_BOUNDS, counts, share) for share in shares]


def _passed(old: _Sample, new: _Sample) -> float:
    return max(new.at - old.at, 1e-6)


def slowed(slowdowns: Slowdowns) -> list[dict[str, Any]]:
    """Of all connections, by reason: those that never were a reason too, so that they are 0."""
    at, nobody = perf_counter(), Slowdown()
    found = {**dict.fromkeys(REASONS, nobody), **slowdowns.by_reason}
    return [
        {
            "reason": why,
            "meaning": REASONS.get(why, why),
            "connections": each.now,
            "times": each.times,
            "seconds": round(each.seconds(at), 6),
        }
        for why, each in found.items()
    ]


def slowed_for(slowdowns: Slowdowns) -> Iterator[dict[str, Any]]:
    """Of one connection: the reasons that there were."""
    at = perf_counter()
    for why, each in slowdowns.by_reason.items():
        yield {
            "reason": why,
            "meaning": REASONS.get(why, why),
            "times": each.times,
            "seconds": round(each.seconds(at), 3),
            "share": round(each.share, 4),
            "since": each.since if each.now else None,
        }
