"""Durable acknowledged publishing: one publisher with a window, and many with one message each.

What an acknowledgement promises is not the same everywhere:

    jetstream           written to a file, not synced (its default)
    jetstream-fsync     written and synced
    mosquitto-durable   queued in memory; the file is written later
    redis-aof           written and synced (appendfsync always)
    headwater           written and synced (log.sync = "always")

The window is that of the scale, but no larger than the protocol's own: BMTP has 255 stream ids. So
JetStream is measured once more with a window of 255.

Of many publishers each has a topic of its own, or all have one.
"""

from functools import partial

from bench.brokers import Yard
from bench.contestants import DURABLE, Contestant, aim
from bench.crew import Crew
from bench.figures import Findings
from bench.load.acked import each, window
from bench.runner import Scenario
from bench.scale import Scale
from bench.scenarios.publishers import PROCESSES, case, gather, one_topic
from bench.wire import WIRES, Aim, connect
from bench.wire.bmtp import STREAMS

NAME = "acknowledged"
TOPIC = "bench/acked"
WINDOW = "1 with a window"
NARROW = f"1 with a window of {STREAMS}"
_NARROW_WHO = ("jetstream", "jetstream-fsync", "headwater-bmtp")


def scenarios(scale: Scale) -> list[Scenario]:
    wide = partial(measure_window, scale=scale, size=scale.window, what=WINDOW)
    narrow = partial(measure_window, scale=scale, size=STREAMS, what=NARROW)
    return [
        Scenario(NAME, f"acknowledged, {WINDOW}", DURABLE, wide, scale.rounds),
        Scenario(NAME, f"acknowledged, {NARROW}", _NARROW_WHO, narrow, scale.rounds),
        *(
            Scenario(
                NAME,
                f"acknowledged, {count:,} publishers{', one topic' if not own else ''}",
                DURABLE,
                partial(measure_many, scale=scale, count=count, own_topics=own),
                scale.long_rounds,
            )
            for count in scale.fleets
            for own in (True, False)
        ),
    ]


def measure_window(
    yard: Yard, contestant: Contestant, scale: Scale, size: int, what: str
) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        address = server.address(contestant.wire)
        target = _prepared(contestant, address, scale, own_topics=False)
        worker = crew.start(window, target, size, scale.seconds)
        return {what: gather(server, [worker])}


def measure_many(
    yard: Yard, contestant: Contestant, scale: Scale, count: int, own_topics: bool
) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        target = _prepared(contestant, server.address(contestant.wire), scale, own_topics)
        share = count // PROCESSES
        workers = [
            crew.start(each, target, i * share, share, scale.seconds, own_topics)
            for i in range(PROCESSES)
        ]
        what = case(count) if own_topics else one_topic(count)
        return {what: gather(server, workers)}


def _prepared(
    contestant: Contestant, address: tuple[str, int], scale: Scale, own_topics: bool
) -> Aim:
    wire = WIRES[contestant.wire]
    with connect(address) as link:
        wire.prepare_acked(link, wire.wildcard(TOPIC) if own_topics else TOPIC)
    return aim(contestant, address, scale.payload_bytes, TOPIC)
