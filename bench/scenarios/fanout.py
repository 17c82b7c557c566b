"""One publisher to 1, 8 and 64 subscribers.

The clock runs from the publisher's first byte to the last byte at the last subscriber, so a broker
that reads fast and hands on late gains nothing.

What a protocol asks of its clients, they do in this time: a consumer of Prism acknowledges every
message (with a prefetch of 5,000, where the default is 1), a publisher of
CrystalConnector reads the answer to every message. BMTP publishes with QoS 0.
"""

from functools import partial

from bench.brokers import Server, Yard
from bench.contestants import STREAMS, STREAMS_TO_ONE, Contestant, aim
from bench.crew import Crew, Worker
from bench.figures import Figures, Findings, throughput
from bench.load.bulk import Published, Received, publish, subscribe, verify
from bench.runner import Scenario
from bench.scale import Scale
from bench.wire import WIRES, Aim

NAME = "fan-out"
_PER_PROCESS = 32  # subscribers


def case(subscribers: int) -> str:
    return f"1 → {subscribers}"


def scenarios(scale: Scale) -> list[Scenario]:
    return [
        Scenario(
            NAME,
            f"one publisher to {count}",
            STREAMS if count > 1 else STREAMS_TO_ONE,
            partial(measure, scale=scale, subscribers=count),
            scale.rounds,
        )
        for count in scale.fan_out
    ]


def measure(yard: Yard, contestant: Contestant, scale: Scale, subscribers: int) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        address = server.address(contestant.wire)
        target = aim(contestant, address, scale.payload_bytes, "bench/fan")
        return {case(subscribers): stream(server, crew, target, subscribers, scale.seconds)}


def stream(server: Server, crew: Crew, target: Aim, subscribers: int, seconds: float) -> Figures:
    """Publish for some seconds, and wait until the last subscriber has it all."""
    readers = [
        crew.start(subscribe, target, min(_PER_PROCESS, subscribers - start))
        for start in range(0, subscribers, _PER_PROCESS)
    ]
    writer = crew.start(publish, target, seconds)
    warm_up(writer, readers)
    before = server.cpu_seconds()
    for worker in (*readers, writer):
        worker.go()
    published = writer.wait(Published)
    received = [reader.wait(Received) for reader in readers]
    cpu = server.cpu_seconds() - before
    for each in received:
        verify(published, each, WIRES[target.wire])
    taken = (max(each.finished for each in received) - published.started) / 1e9
    return throughput(published.messages, taken, cpu, server.peak_memory(), subscribers)


def warm_up(writer: Worker, readers: list[Worker]) -> None:
    """The publisher's first messages are compared by every subscriber."""
    for worker in (*readers, writer):
        worker.wait(str)
    writer.step(str)
    for reader in readers:
        reader.step(str)
