"""A fleet as it is: 10,000 devices that report once a second, and 100 who watch a group each."""

from functools import partial

from bench.brokers import Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew
from bench.figures import Findings, Metric, latency, throughput
from bench.load.pairs import Looped
from bench.load.steady import devices, groups
from bench.runner import Scenario
from bench.scale import Scale

NAME = "steady"
PROCESSES = 2
_WHO = ("nats", "mosquitto", "headwater-psmb", "headwater-bpsp")


def case(count: int) -> str:
    return f"{count:,} × 1 message/s"


def scenarios(scale: Scale) -> list[Scenario]:
    title = f"{scale.devices:,} connections, a message a second each"
    return [Scenario(NAME, title, _WHO, partial(measure, scale=scale), scale.long_rounds)]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind) as server, Crew() as crew:
        address = server.address(contestant.wire)
        target = aim(contestant, address, scale.payload_bytes, "bench/fleet")
        share = scale.devices // PROCESSES
        senders = [
            crew.start(devices, target, i * share, share, scale.groups, scale.steady_seconds)
            for i in range(PROCESSES)
        ]
        expected = int(share * scale.steady_seconds) * PROCESSES
        watcher = crew.start(groups, target, scale.groups, expected)
        for worker in (*senders, watcher):
            worker.wait(str)
        before = server.cpu_seconds()
        for worker in (watcher, *senders):
            worker.go()
        sent = [worker.wait(Looped) for worker in senders]
        seen = watcher.wait(Looped)
        cpu = server.cpu_seconds() - before
        span = (seen.finished - min(each.started for each in sent)) / 1e9
        figures = throughput(seen.messages, span, cpu, server.peak_memory())
        return {
            case(scale.devices): {
                **figures,
                **latency(seen.nanoseconds),
                Metric.CORE: cpu / span * 100,
            }
        }
