"""A reader of the log over Arrow Flight: do clients notice it?

Three runs on one broker whose log holds something to read. In all of them a pair sends and receives
at a steady rate, and its latency is measured. Beside it, a process reads the log over Flight, again
and again:

    at a pace       as somebody does who follows the log; there is time enough on two cores for all
    flat out        as fast as it can: reader, probe and the broker's threads compete for two cores,
                    so a part of what it costs is that somebody has to wait
"""

import time
from functools import partial

from bench.brokers import HOST, Server, Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew
from bench.figures import Figures, Findings, Metric, latency
from bench.load.acked import fill
from bench.load.flight import read
from bench.load.pairs import Looped, probe
from bench.runner import Scenario
from bench.scale import Scale
from bench.spark.load import Taken
from bench.wire import Aim

NAME = "reading"
ALONE = "nobody reads the log"
PACED = "a reader over Flight at a pace"
FLAT_OUT = "a reader over Flight, flat out"
_LISTEN = {"listen.flight": f"{HOST}:0"}
_WHO = ("headwater-psmb", "headwater-bpsp")
_FILL_SECONDS = 120.0
_LEAD_SECONDS = 0.2  # of reading, before the clock starts and after it has stopped


def scenarios(scale: Scale) -> list[Scenario]:
    measured = partial(measure, scale=scale)
    return [Scenario(NAME, "a reader of the log over Flight", _WHO, measured, scale.long_rounds)]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind, _LISTEN) as server:
        address = server.address(contestant.wire)
        count = _fill(aim(contestant, address, scale.stall_payload_bytes, "bench/log"), scale)
        quick = aim(contestant, address, scale.payload_bytes, "bench/probe")
        _probe(server, quick, scale)  # what happens once has happened then
        return {
            ALONE: _probe(server, quick, scale),
            PACED: _probe(server, quick, scale, count, scale.stall_bytes_per_second),
            FLAT_OUT: _probe(server, quick, scale, count),
        }


def _fill(target: Aim, scale: Scale) -> int:
    count = scale.read_bytes // target.payload_bytes
    with Crew() as crew:
        worker = crew.start(fill, target, count)
        worker.wait(str)
        worker.go()
        return worker.wait(Looped, _FILL_SECONDS).messages


def _probe(server: Server, quick: Aim, scale: Scale, end: int = 0, pace: int = 0) -> Figures:
    """`end`: up to which offset the log is read meanwhile; 0: it is not read."""
    with Crew() as crew:
        prober = crew.start(probe, quick, scale.probe_rate, scale.stall_seconds)
        prober.wait(str)
        if not end:
            return latency(prober.step(Looped).nanoseconds)
        seconds = scale.stall_seconds + 2 * _LEAD_SECONDS
        reader = crew.start(read, server.address("flight"), end, seconds, pace)
        reader.wait(str)
        reader.go()
        time.sleep(_LEAD_SECONDS)
        figures = latency(prober.step(Looped).nanoseconds)
        taken = reader.wait(Taken)
        return {**figures, Metric.BYTES: taken.bytes / taken.seconds / 1e6}
