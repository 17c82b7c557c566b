"""One message at a time from one publisher to one subscriber, not acknowledged."""

from functools import partial

from bench.brokers import Yard
from bench.contestants import LIVE, Contestant, aim
from bench.crew import Crew
from bench.figures import Findings
from bench.load.pairs import ping
from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios.publishers import gather

NAME = "latency"
CASE = "one message"


def scenarios(scale: Scale) -> list[Scenario]:
    measured = partial(measure, scale=scale)
    return [Scenario(NAME, "latency of one message", LIVE, measured, scale.rounds)]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        address = server.address(contestant.wire)
        target = aim(contestant, address, scale.payload_bytes, "bench/one")
        return {CASE: gather(server, [crew.start(ping, target, scale.latency_rounds)])}
