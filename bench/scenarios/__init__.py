"""All scenarios, in the order they are run and shown."""

from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios import (
    acked,
    empty,
    fanout,
    growth,
    idle,
    large,
    latency,
    matching,
    opening,
    publishers,
    queue,
    reading,
    stalled,
    steady,
    topics,
)


def all_scenarios(scale: Scale) -> list[Scenario]:
    modules = (
        *(fanout, large, topics, publishers, steady, latency, acked, queue),
        *(idle, empty, stalled, reading, matching, growth, opening),
    )
    return [scenario for module in modules for scenario in module.scenarios(scale)]
