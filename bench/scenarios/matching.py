"""Does matching get slower with the number of subscriptions? Asked over the socket.

A pair publishes to many topics in turn and receives through one wildcard, while another
connection holds 100 or 100,000 subscriptions that lie close to those topics and match none.
Every message has another topic than the one before, so nothing is matched once for many.

`router.py` asks the same of the broker's router alone, without sockets.
"""

from dataclasses import replace
from functools import partial

from bench.brokers import Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew
from bench.figures import Figures, Findings
from bench.load.hold import subscriptions
from bench.load.pairs import ping
from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios import fanout, router
from bench.scenarios.publishers import gather

NAME = "matching"
TOPIC = "bench/match"
_WHO = ("headwater-bpsp",)


def stream(count: int) -> str:
    return f"{count:,} subscriptions, stream"


def single(count: int) -> str:
    return f"{count:,} subscriptions, one message"


def scenarios(scale: Scale) -> list[Scenario]:
    measured = partial(measure, scale=scale)
    return [
        Scenario(NAME, "matching, over the socket", _WHO, measured, scale.rounds),
        Scenario(NAME, "matching, the router alone", _WHO, partial(router.measure, scale=scale)),
    ]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    findings: dict[str, Figures] = {}
    for count in scale.subscriptions:
        with yard.server(contestant.kind) as server, Crew() as crew:
            target = replace(
                aim(contestant, server.address(contestant.wire), scale.payload_bytes, TOPIC),
                filter=f"{TOPIC}/+/v",
                spread=scale.match_topics,
            )
            crew.start(subscriptions, target, count).wait(str)
            rounds = scale.latency_rounds // 4
            findings[single(count)] = gather(server, [crew.start(ping, target, rounds)])
            findings[stream(count)] = fanout.stream(server, crew, target, 1, scale.seconds)
    return findings
