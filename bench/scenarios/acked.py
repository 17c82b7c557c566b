"""Durable acknowledged publishing: one publisher with a window, and many with one message each.

What an acknowledgement promises is not the same everywhere:

    jetstream           written to a file, not synced (its default)
    jetstream-fsync     written and synced
    mosquitto-durable   queued in memory; the file is written later
    redis-aof           written and synced (appendfsync always)
    headwater           written and synced (log.sync = "always")

The window is that of the scale, but no larger than the protocol's own: BMTP has 255 stream ids.
"""

from functools import partial

from bench.brokers import Yard
from bench.contestants import DURABLE, Contestant, aim
from bench.crew import Crew
from bench.figures import Findings
from bench.load.acked import each, window
from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios.publishers import PROCESSES, gather
from bench.scenarios.publishers import case as many
from bench.wire import WIRES, Aim, connect

NAME = "acknowledged"
TOPIC = "bench/acked"
WINDOW = "1 with a window"


def scenarios(scale: Scale) -> list[Scenario]:
    runs = [("one publisher with a window", partial(measure_window, scale=scale))]
    runs += [
        (f"{count:,} publishers", partial(measure_many, scale=scale, count=count))
        for count in scale.fleets
    ]
    return [
        Scenario(NAME, f"acknowledged, {what}", DURABLE, measure, scale.rounds)
        for what, measure in runs
    ]


def measure_window(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        address = server.address(contestant.wire)
        target = _prepared(contestant, address, scale)
        worker = crew.start(window, target, scale.window, scale.seconds)
        return {WINDOW: gather(server, [worker])}


def measure_many(yard: Yard, contestant: Contestant, scale: Scale, count: int) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        target = _prepared(contestant, server.address(contestant.wire), scale)
        share = count // PROCESSES
        workers = [
            crew.start(each, target, i * share, share, scale.seconds) for i in range(PROCESSES)
        ]
        return {many(count): gather(server, workers)}


def _prepared(contestant: Contestant, address: tuple[str, int], scale: Scale) -> Aim:
    with connect(address) as link:
        WIRES[contestant.wire].prepare_acked(link, TOPIC)
    return aim(contestant, address, scale.payload_bytes, TOPIC)
