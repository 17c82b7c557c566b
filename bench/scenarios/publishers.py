"""Many publishers with one message at a time.

Each connection sends a message, waits until a subscriber in the same process has it, and sends the
next. So there are as many messages under way as publishers, and none arrives together with others
of its connection: the opposite of the fan-out, where a broker can work in large batches.
"""

from functools import partial

from bench.brokers import Server, Yard
from bench.contestants import LIVE, Contestant, aim
from bench.crew import Crew, Worker
from bench.figures import Figures, Findings, latency, throughput
from bench.load.pairs import Looped, closed_loop
from bench.runner import Scenario
from bench.scale import Scale

NAME = "publishers"
PROCESSES = 2


def case(count: int) -> str:
    return f"{count} × 1 message"


def scenarios(scale: Scale) -> list[Scenario]:
    title = f"{scale.publishers} publishers, one message at a time"
    return [Scenario(NAME, title, LIVE, partial(measure, scale=scale), scale.rounds)]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        address = server.address(contestant.wire)
        target = aim(contestant, address, scale.payload_bytes, "bench/many")
        share = scale.publishers // PROCESSES
        workers = [
            crew.start(closed_loop, target, i * share, share, scale.seconds)
            for i in range(PROCESSES)
        ]
        return {case(scale.publishers): gather(server, workers)}


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
