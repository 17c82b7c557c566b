"""Does a publish cost more where there is more? With 10 and with 100,000 of

    topics          that have messages, of which the publisher uses ten at a time
    subscriptions   that lie close to the published topics and match none
    queues          of Prism, which take none of the messages, and have no consumer

One publisher sends ten messages, each to another topic, waits until a subscriber with a wildcard
has them, and sends ten to the next ten topics. So what arrives together, and how many topics that
is, does not depend on how many there are: a stream over 100,000 topics would be compared with one
over 10 whose messages share most of their work. All topics have had a message before the clock
starts; what a topic costs when it is new is not asked.

What is compared is the broker's CPU time per message.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from bench.brokers import Server, Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew
from bench.figures import Figures, Findings
from bench.load.hold import queues, subscriptions
from bench.load.pairs import lockstep
from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios.publishers import gather
from bench.wire import Aim

NAME = "growth"
TOPIC = "bench/growth"
TOPICS, SUBSCRIPTIONS, QUEUES = "topics", "subscriptions", "queues"
WIDTH = 10  # messages that are on their way together, each to another topic
_WHO = ("headwater-bpsp",)
_HOLD_SECONDS = 300.0


def case(count: int, what: str) -> str:
    return f"{count:,} {what}"


def scenarios(scale: Scale) -> list[Scenario]:
    return [
        Scenario(
            NAME,
            f"growth of {what}",
            _WHO,
            partial(measure, scale=scale, what=what, surroundings=surroundings),
            scale.long_rounds,
        )
        for what, surroundings in (
            (TOPICS, _topics),
            (SUBSCRIPTIONS, _subscriptions),
            (QUEUES, _queues),
        )
    ]


Surroundings = Callable[[Server, Crew, Aim, int], Aim]


def measure(
    yard: Yard, contestant: Contestant, scale: Scale, what: str, surroundings: Surroundings
) -> Findings:
    findings: dict[str, Figures] = {}
    for count in scale.growth:
        with yard.server(contestant.kind) as server, Crew() as crew:
            target = replace(
                aim(contestant, server.address(contestant.wire), scale.payload_bytes, TOPIC),
                filter=f"{TOPIC}/+/v",
                spread=WIDTH,
            )
            target = surroundings(server, crew, target, count)
            worker = crew.start(lockstep, target, WIDTH, scale.seconds)
            findings[case(count, what)] = gather(server, [worker])
    return findings


def _topics(server: Server, crew: Crew, target: Aim, count: int) -> Aim:
    return replace(target, spread=count)


def _subscriptions(server: Server, crew: Crew, target: Aim, count: int) -> Aim:
    crew.start(subscriptions, target, count).wait(str, _HOLD_SECONDS)
    return target


def _queues(server: Server, crew: Crew, target: Aim, count: int) -> Aim:
    prism = replace(target, wire="prism", address=server.address("prism"))
    crew.start(queues, prism, count).wait(str, _HOLD_SECONDS)
    return target
