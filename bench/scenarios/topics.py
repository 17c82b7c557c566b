"""One publisher over 10,000 topics in turn, to one subscriber with a wildcard.

No two messages that follow each other have the same topic, so nothing is done once for many. PSMB,
BMTP and CrystalConnector have no part in it: a connection publishes to one topic, or nobody can
subscribe to all of them; what Prism delivers comes from a queue, which is another question.
"""

from dataclasses import replace
from functools import partial

from bench.brokers import Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew
from bench.figures import Findings
from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios import fanout
from bench.wire import WIRES

NAME = "topics"
TOPIC = "bench/topics"
_WHO = ("nats", "mosquitto", "headwater-bpsp")


def case(count: int) -> str:
    return f"{count:,} in turn"


def scenarios(scale: Scale) -> list[Scenario]:
    title = f"one publisher over {scale.topics:,} topics"
    return [Scenario(NAME, title, _WHO, partial(measure, scale=scale), scale.rounds)]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    wire = WIRES[contestant.wire]
    with yard.server(contestant.kind) as server, Crew() as crew:
        target = replace(
            aim(contestant, server.address(contestant.wire), scale.payload_bytes, TOPIC),
            filter=wire.join(TOPIC, wire.any_level, "v"),
            spread=scale.topics,
        )
        return {case(scale.topics): fanout.stream(server, crew, target, 1, scale.seconds)}
