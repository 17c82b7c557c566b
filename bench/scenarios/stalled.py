"""A subscriber that never reads: what it costs, and whether others notice.

Two runs on a fresh broker each, with the same load in both:

    background   a publisher at a steady pace to one topic, with two subscribers; one of them
                 always reads, the other one reads in the first run and never in the second
    probe        a pair on another topic at a steady rate, whose latency is measured

So the only difference is whether that one subscriber reads. Before either run the broker gets
the same load once with two subscribers that read: what its memory grows by under any load has then
happened, and what comes on top is seen. For the same reason no segment of the log fills up:
sealing one takes tens of MiB for a moment, whoever reads or does not.
"""

from functools import partial

from bench.brokers import Server, Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew, Worker
from bench.figures import MIB, Figures, Findings, Metric, latency
from bench.load.bulk import Published, Received, publish_paced, subscribe
from bench.load.hold import never_read
from bench.load.pairs import Looped, probe
from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios.fanout import warm_up
from bench.wire import Aim

NAME = "stalled"
READS = "all subscribers read"
STALLED = "one never reads"
_SETTINGS = {"log.segment_bytes": "4GiB"}
_WHO = ("nats", "mosquitto", "headwater-psmb", "headwater-bpsp")


def scenarios(scale: Scale) -> list[Scenario]:
    measured = partial(measure, scale=scale)
    return [Scenario(NAME, "a subscriber that never reads", _WHO, measured, scale.long_rounds)]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    return {
        what: _measure(yard, contestant, scale, stalls)
        for what, stalls in ((READS, False), (STALLED, True))
    }


def _measure(yard: Yard, contestant: Contestant, scale: Scale, stalls: bool) -> Figures:
    with yard.server(contestant.kind, _SETTINGS) as server:
        address = server.address(contestant.wire)
        load = aim(contestant, address, scale.stall_payload_bytes, "bench/load")
        quick = aim(contestant, address, scale.payload_bytes, "bench/probe")
        _once(server, load, quick, scale, stalls=False)
        return _once(server, load, quick, scale, stalls)


def _once(server: Server, load: Aim, quick: Aim, scale: Scale, stalls: bool) -> Figures:
    with Crew() as crew:
        prober = crew.start(probe, quick, scale.probe_rate, scale.stall_seconds)
        prober.wait(str)
        return _watch(server, prober, *_background(crew, load, scale, stalls))


def _background(crew: Crew, load: Aim, scale: Scale, stalls: bool) -> tuple[Worker, list[Worker]]:
    """A publisher, and those of its subscribers that will read; all are ready to go."""
    reader = crew.start(subscribe, load, 1)
    other = crew.start(never_read, load) if stalls else crew.start(subscribe, load, 1)
    writer = crew.start(publish_paced, load, scale.stall_seconds, scale.stall_bytes_per_second)
    warm_up(writer, [reader, other])
    return writer, [reader] if stalls else [reader, other]


def _finish(writer: Worker, readers: list[Worker]) -> None:
    for worker in (*readers, writer):
        worker.go()
    writer.wait(Published)
    for reader in readers:
        reader.wait(Received)


def _watch(server: Server, prober: Worker, writer: Worker, readers: list[Worker]) -> Figures:
    before = server.memory()
    server.reset_peak()
    prober.go()
    _finish(writer, readers)
    looped = prober.wait(Looped)
    peak = server.peak_memory()
    return {
        **latency(looped.nanoseconds),
        Metric.GROWTH: (peak - before) / MIB,
        Metric.PEAK: peak / MIB,
    }
