"""What a broker needs that nobody has connected to: its memory when it is ready, and a while later.

It listens as it does by default: for all protocols, for Flight, and for the console, which is a
process of its own and not counted.
"""

import time
from functools import partial

from bench.brokers import HOST, Yard
from bench.contestants import Contestant
from bench.figures import Findings, Metric
from bench.runner import Scenario
from bench.scale import Scale

NAME = "empty"
READY = "when it is ready"
LATER = "after a while"
_LISTEN = {"listen.flight": f"{HOST}:0", "listen.console": f"{HOST}:0"}
_WHO = ("headwater-psmb",)  # the one process speaks them all
_IDLE_SECONDS = 3.0


def scenarios(scale: Scale) -> list[Scenario]:
    return [Scenario(NAME, "an empty broker", _WHO, partial(measure, scale=scale), scale.rounds)]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind, _LISTEN) as server:
        ready = server.memory()
        time.sleep(min(_IDLE_SECONDS, scale.settle_seconds))
        later = server.memory()
        return {what: {Metric.RSS: size / 1e6} for what, size in ((READY, ready), (LATER, later))}
