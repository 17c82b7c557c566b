"""What an idle connection costs: memory of the broker with 10,000 subscribers that do nothing."""

from functools import partial

from bench.brokers import Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew
from bench.figures import MIB, Findings, Metric
from bench.load.hold import idle
from bench.runner import Scenario
from bench.scale import Scale

NAME = "idle"
_FIRST = 100
_WHO = ("nats", "mosquitto", "headwater-psmb", "headwater-bpsp")


def case(connections: int) -> str:
    return f"{connections:,} connections"


def scenarios(scale: Scale) -> list[Scenario]:
    return [Scenario(NAME, "idle connections", _WHO, partial(measure, scale=scale))]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        address = server.address(contestant.wire)
        target = aim(contestant, address, scale.payload_bytes, "bench/idle")
        worker = crew.start(idle, target, _FIRST, scale.idle_connections, scale.settle_seconds)
        worker.wait(str)
        before = server.memory()
        worker.step(str)
        growth = server.memory() - before
        return {
            case(scale.idle_connections): {
                Metric.PER_CONNECTION: growth / scale.idle_connections / 1024,
                Metric.PEAK: server.peak_memory() / MIB,
            }
        }
