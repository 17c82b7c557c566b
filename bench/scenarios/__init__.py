"""All scenarios, in the order they are run and shown."""

from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios import (
    acked,
    fanout,
    idle,
    latency,
    matching,
    opening,
    publishers,
    queue,
    stalled,
    steady,
)


def all_scenarios(scale: Scale) -> list[Scenario]:
    modules = (
        *(fanout, publishers, steady, latency, acked, queue, idle, stalled, matching, opening),
    )
    return [scenario for module in modules for scenario in module.scenarios(scale)]
