"""How fast messages come and go: rates of now, and of the last minutes.

Nothing here is on the way of a message: the counters are sampled once a second.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.traffic import Traffic

logger = logging.getLogger(__name__)

SAMPLE_SECONDS = 1.0
# Rates are over this many samples.
RATE_SAMPLES = 2
STEP_SECONDS = 5
STEPS = 15 * 60 // STEP_SECONDS

#: The traffic of each protocol at one moment.
Totals = Mapping[str, Traffic]


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second."""

    messages_in: float = 0.0
    bytes_in: float = 0.0
    messages_out: float = 0.0
    bytes_out: float = 0.0

    @classmethod
    def between(cls, old: Traffic, new: Traffic, seconds: float) -> "Rates":
        return cls(
            (new.messages_in - old.messages_in) / seconds,
            (new.bytes_in - old.bytes_in) / seconds,
            (new.messages_out - old.messages_out) / seconds,
            (new.bytes_out - old.bytes_out) / seconds,
        )


NOTHING = Traffic()


class RateHistory:
    """Rates of the last 15 minutes, in steps of 5 seconds. The newest is last."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, dict[str, Rates]]] = deque(maxlen=STEPS)

    def add(self, at: int, rates: dict[str, Rates]) -> None:
        self._steps.append((at, rates))

    def as_dict(self) -> dict[str, Any]:
        names = sorted({name for _, rates in self._steps for name in rates})
        by_name = {name: [rates.get(name, Rates()) for _, rates in self._steps] for name in names}
        sums = list(zip(*by_name.values(), strict=True)) or [()] * len(self._steps)
        return {
            "step_seconds": STEP_SECONDS,
            "times": [at for at, _ in self._steps],
            "in": [_rounded(each.messages_in for each in row) for row in sums],
            "out": [_rounded(each.messages_out for each in row) for row in sums],
            "bytes_in": [_rounded(each.bytes_in for each in row) for row in sums],
            "bytes_out": [_rounded(each.bytes_out for each in row) for row in sums],
            "protocols": {
                name: {
                    "in": [round(each.messages_in, 1) for each in row],
                    "out": [round(each.messages_out, 1) for each in row],
                }
                for name, row in by_name.items()
            },
        }


def _rounded(values: Iterable[float]) -> float:
    return round(sum(values), 1)


class RateSampler:
    """`sample` brings the totals up to date, with pauses in which others get their turn."""

    def __init__(self, totals: Totals, sample: Callable[[], Iterator[None]]) -> None:
        self._totals = totals
        self._bring_up_to_date = sample
        self.started = time.time_ns() // 1000
        self.history = RateHistory()
        self._samples: deque[tuple[float, dict[str, Traffic]]] = deque(maxlen=RATE_SAMPLES + 1)
        self._step: tuple[float, dict[str, Traffic]] = self._sample()
        self._samples.append(self._step)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def rates(self) -> dict[str, Rates]:
        """By protocol, over the last moments."""
        return _rates(self._samples[0], self._samples[-1])

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            try:
                await self._take()
            except Exception:  # rates that stand still would be taken for true
                logger.exception("traffic could not be measured")

    async def _take(self) -> None:
        for _ in self._bring_up_to_date():
            await asyncio.sleep(0)
        sample = self._sample()
        self._samples.append(sample)
        if sample[0] - self._step[0] >= STEP_SECONDS - SAMPLE_SECONDS / 2:
            self.history.add(time.time_ns() // 1000, _rates(self._step, sample))
            self._step = sample

    def _sample(self) -> tuple[float, dict[str, Traffic]]:
        return time.monotonic(), {name: each.copy() for name, each in self._totals.items()}


def _rates(
    old: tuple[float, dict[str, Traffic]], new: tuple[float, dict[str, Traffic]]
) -> dict[str, Rates]:
    seconds = max(new[0] - old[0], 1e-6)
    return {
        name: Rates.between(old[1].get(name, NOTHING), traffic, seconds)
        for name, traffic in new[1].items()
    }
