"""Queues: what waiting messages cost, and how soon they get to a consumer.

    waiting     a queue without consumers is filled. Then a consumer comes: the time from its
                connection to its first message, and the broker's memory by then. The same once more
                after the broker was started again, with the log out of the page cache.
    lost        a consumer holds messages and vanishes, while another one waits: the time until that
                one gets the first of them. The slowest of many such losses counts.

BMTP shares the messages of a channel among its subscribers here (`bmtp.delivery = "balanced"`).
"""

import time
from functools import partial

from bench.brokers import WAITING, Server, Yard
from bench.contestants import QUEUES, Contestant, aim
from bench.crew import Crew
from bench.figures import MIB, Figures, Findings, Metric, latency
from bench.load.acked import fill
from bench.load.consume import first_message, lose
from bench.load.pairs import Looped
from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios.opening import restart
from bench.wire import Aim

NAME = "queue"
LOST = "a consumer is lost"
_SHARED = {"bmtp.delivery": "balanced"}
_FILL_SECONDS = 330.0


def waiting(count: int) -> str:
    return f"{count:,} waiting"


def reopened(count: int) -> str:
    return f"{count:,} waiting, after a restart"


def scenarios(scale: Scale) -> list[Scenario]:
    runs = (("waiting messages", measure_waiting), ("lost consumers", measure_lost))
    return [
        Scenario(NAME, f"queues, {what}", QUEUES, partial(measure, scale=scale), scale.long_rounds)
        for what, measure in runs
    ]


def measure_waiting(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    findings: dict[str, Figures] = {}
    for count in scale.waiting:
        with yard.server(contestant.kind, _SHARED) as server:
            _fill(_aim(server, contestant, scale), count)
            time.sleep(scale.settle_seconds)  # until what filling it needed is done with
            findings[waiting(count)] = _first(server, contestant, scale)
            restart(server)
            findings[reopened(count)] = _first(server, contestant, scale)
    return findings


def measure_lost(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind, _SHARED) as server, Crew() as crew:
        target = _aim(server, contestant, scale)
        worker = crew.start(lose, target, scale.lost_consumers, scale.held)
        worker.wait(str)
        taken = worker.step(Looped).nanoseconds
        return {LOST: {**latency(taken), Metric.AGAIN: max(taken) / 1e6}}


def _aim(server: Server, contestant: Contestant, scale: Scale) -> Aim:
    return aim(contestant, server.address(contestant.wire), scale.payload_bytes, WAITING)


def _fill(target: Aim, count: int) -> None:
    with Crew() as crew:
        worker = crew.start(fill, target, count)
        worker.wait(str)
        worker.go()
        worker.wait(Looped, _FILL_SECONDS)


def _first(server: Server, contestant: Contestant, scale: Scale) -> Figures:
    with Crew() as crew:
        worker = crew.start(first_message, _aim(server, contestant, scale))
        worker.wait(str)
        server.reset_peak()
        (taken,) = worker.step(Looped).nanoseconds
        return {Metric.FIRST: taken / 1e6, Metric.PEAK: server.peak_memory() / MIB}
