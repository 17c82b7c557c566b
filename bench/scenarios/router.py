"""What it costs to find the subscribers of a topic, in the broker's router alone.

The routes that the router remembers are left out: this is the price of a topic that is new. The
topics are those that have near misses around them, so a walk sees the same on its way however many
subscriptions there are elsewhere.
"""

import gc
import time
from dataclasses import dataclass

from bench.brokers import Yard
from bench.contestants import Contestant
from bench.figures import Findings, Metric
from bench.load.hold import near_miss
from bench.scale import Scale
from headwater.broker.router import OwnedSubscription, Router
from headwater.filters import LevelFilter

_PASSES = 5
_FINDS = 10_000


def case(count: int) -> str:
    return f"{count:,} subscriptions, router"


@dataclass(frozen=True, slots=True)
class _Owner:
    durable: bool = False

    def decided(self) -> None: ...
    def unwanted(self, sentence: str) -> None: ...


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    return {case(n): {Metric.ROUTE: _microseconds(n)} for n in scale.subscriptions}


def _microseconds(count: int) -> float:
    router, topics = _router(count), [f"bench/match/{i:06d}/v" for i in range(max(1, count // 4))]
    rounds = [topics[i % len(topics)] for i in range(_FINDS)]
    assert all(len(router.find(topic).live) == 1 for topic in topics)
    gc.collect()
    return min(_pass(router, rounds) for _ in range(_PASSES)) / _FINDS / 1000


def _pass(router: Router[_Owner], topics: list[str]) -> int:
    before = time.perf_counter_ns()
    for topic in topics:
        router.find(topic)
    return time.perf_counter_ns() - before


def _router(count: int) -> Router[_Owner]:
    router, owner = Router[_Owner](), _Owner()
    names = ["bench/match/+/v", *(near_miss("bench/match", i) for i in range(count))]
    for name in names:
        router.add(OwnedSubscription((name, "_0"), LevelFilter.parse(name), owner, 0))
    return router
