"""Large messages, one publisher to one subscriber: bytes per second."""

from functools import partial

from bench.brokers import Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew
from bench.figures import Findings, Metric
from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios import fanout

NAME = "large"
_WHO = ("nats", "mosquitto", "redis", "headwater-psmb", "headwater-bpsp")


def case(size: int) -> str:
    return f"{size // 1024:,} KiB, 1 → 1"


def scenarios(scale: Scale) -> list[Scenario]:
    return [
        Scenario(
            NAME,
            f"messages of {size // 1024:,} KiB",
            _WHO,
            partial(measure, scale=scale, size=size),
            scale.rounds,
        )
        for size in scale.large
    ]


def measure(yard: Yard, contestant: Contestant, scale: Scale, size: int) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        target = aim(contestant, server.address(contestant.wire), size, "bench/large")
        figures = fanout.stream(server, crew, target, 1, scale.seconds)
        return {case(size): {**figures, Metric.BYTES: figures[Metric.RATE] * size / 1e6}}
