"""Fleets: many publishers with one message at a time.

Each connection sends a message, waits until a subscriber in the same process has it, and sends the
next. So there are as many messages under way as publishers, and none arrives together with others
of its connection: the opposite of the fan-out, where a broker can work in large batches. Each has a
topic and a subscriber of its own, or all have one of both.
"""

from functools import partial

from bench.brokers import Server, Yard
from bench.contestants import FLEETS, Contestant, aim
from bench.crew import Crew, Worker
from bench.figures import Figures, Findings, latency, throughput
from bench.load.pairs import Looped, closed_loop, shared_loop
from bench.runner import Scenario
from bench.scale import Scale

NAME = "publishers"
PROCESSES = 2


def case(count: int) -> str:
    return f"{count:,} × 1 message"


def one_topic(count: int) -> str:
    return f"{count:,} × 1 message, one topic"


def scenarios(scale: Scale) -> list[Scenario]:
    return [
        Scenario(
            NAME,
            f"{count:,} publishers, one message at a time{where}",
            FLEETS,
            partial(measure, scale=scale, count=count),
            scale.long_rounds,
        )
        for count in scale.fleets
        for where, measure in (("", measure_own), (", one topic", measure_shared))
    ]


def measure_own(yard: Yard, contestant: Contestant, scale: Scale, count: int) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        address = server.address(contestant.wire)
        target = aim(contestant, address, scale.payload_bytes, "bench/many")
        share = count // PROCESSES
        workers = [
            crew.start(closed_loop, target, i * share, share, scale.seconds)
            for i in range(PROCESSES)
        ]
        return {case(count): gather(server, workers)}


def measure_shared(yard: Yard, contestant: Contestant, scale: Scale, count: int) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        address = server.address(contestant.wire)
        share = count // PROCESSES
        workers = [
            crew.start(
                shared_loop,
                aim(contestant, address, scale.payload_bytes, f"bench/shared/{i}"),
                share,
                scale.seconds,
            )
            for i in range(PROCESSES)
        ]
        return {one_topic(count): gather(server, workers)}


def gather(server: Server, workers: list[Worker]) -> Figures:
    """Start all loops at once, and add up what they did."""
    for worker in workers:
        worker.wait(str)
    before = server.cpu_seconds()
    for worker in workers:
        worker.go()
    loops = [worker.wait(Looped) for worker in workers]
    cpu = server.cpu_seconds() - before
    messages = sum(loop.messages for loop in loops)
    span = max(loop.finished for loop in loops) - min(loop.started for loop in loops)
    taken = [each for loop in loops for each in loop.nanoseconds]
    return {**throughput(messages, span / 1e9, cpu, server.peak_memory()), **latency(taken)}
