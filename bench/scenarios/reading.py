"""A reader of the log over Arrow Flight: do clients notice it?

Two runs on one broker whose log holds something to read. In both a pair sends and receives at a
steady rate, and its latency is measured; in the second, a process beside it reads the log over
Flight as fast as it can, again and again.
"""

from functools import partial

from bench.brokers import HOST, Server, Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew
from bench.figures import Figures, Findings, Metric, latency
from bench.load.acked import fill
from bench.load.pairs import Looped, probe
from bench.runner import Scenario
from bench.scale import Scale
from bench.spark.load import Taken, take
from bench.wire import Aim

NAME = "reading"
ALONE = "nobody reads the log"
BESIDE = "a reader over Flight"
_LISTEN = {"listen.flight": f"{HOST}:0"}
_WHO = ("headwater-psmb", "headwater-bpsp")
_FILL_SECONDS = 120.0
_LEAD_SECONDS = 0.2  # of reading, before the clock starts and after it has stopped


def scenarios(scale: Scale) -> list[Scenario]:
    measured = partial(measure, scale=scale)
    return [Scenario(NAME, "a reader of the log over Flight", _WHO, measured, scale.rounds)]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind, _LISTEN) as server:
        address = server.address(contestant.wire)
        count = _fill(aim(contestant, address, scale.stall_payload_bytes, "bench/log"), scale)
        quick = aim(contestant, address, scale.payload_bytes, "bench/probe")
        _probe(server, quick, scale)  # what happens once has happened then
        return {ALONE: _probe(server, quick, scale), BESIDE: _probe(server, quick, scale, count)}


def _fill(target: Aim, scale: Scale) -> int:
    count = scale.read_bytes // target.payload_bytes
    with Crew() as crew:
        worker = crew.start(fill, target, count)
        worker.wait(str)
        worker.go()
        return worker.wait(Looped, _FILL_SECONDS).messages


def _probe(server: Server, quick: Aim, scale: Scale, read: int = 0) -> Figures:
    """`read`: up to which offset the log is read meanwhile."""
    with Crew() as crew:
        prober = crew.start(probe, quick, scale.probe_rate, scale.stall_seconds)
        prober.wait(str)
        if not read:
            return latency(prober.step(Looped).nanoseconds)
        seconds = scale.stall_seconds + 2 * _LEAD_SECONDS
        reader = crew.start(take, server.address("flight"), 0, read, 0, seconds)
        reader.wait(str)
        reader.go()
        figures = latency(prober.step(Looped).nanoseconds)
        taken = reader.wait(Taken)
        return {**figures, Metric.BYTES: taken.bytes / taken.seconds / 1e6}
