"""`make bench-console`, or `python -m bench.console`: what it costs the broker to be looked at.

One publisher, one subscriber, PSMB, as fast as they can; in turns with nobody at the console, and
with ten tails of the busy topic, a live overview, heavy pages once a second and a tail that is not
read. The people at the console, and its own process, run on the same machine: so the throughput
shows what all of them take together, and the CPU time per message what the broker alone spends.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.brokers import HOST, Yard
from bench.contestants import ALL, aim
from bench.crew import Crew
from bench.figures import Figures, Metric
from bench.load.audience import watch
from bench.scenarios.fanout import stream

TOPIC = "bench/console"
NOBODY, WATCHED = "nobody looks", "ten tails, overview, heavy pages, a slow reader"
TARGET = 0.02
_CONSOLE = {"listen.console": f"{HOST}:0"}
_LEAD_SECONDS = 3.0  # of looking, before the clock starts


def measure(yard: Yard, seconds: float, watched: bool, payload_bytes: int = 128) -> Figures:
    contestant = ALL["headwater-psmb"]
    with yard.server(contestant.kind, _CONSOLE) as server, Crew() as crew:
        target = aim(contestant, server.address(contestant.wire), payload_bytes, TOPIC)
        if watched:
            audience = crew.start(
                watch, HOST, server.ports["console"], TOPIC, seconds + _LEAD_SECONDS
            )
            audience.wait(str)
            audience.go()
        return stream(server, crew, target, 1, seconds)


def compare(yard: Yard, rounds: int, seconds: float) -> dict[str, list[Figures]]:
    found: dict[str, list[Figures]] = {NOBODY: [], WATCHED: []}
    for number in range(rounds):
        # In turns, and each first as often as the other.
        order = (False, True) if number % 2 == 0 else (True, False)
        for watched in order:
            found[WATCHED if watched else NOBODY].append(measure(yard, seconds, watched))
    return found


def cost(found: dict[str, list[Figures]], metric: Metric) -> float:
    """How much worse it is when it is looked at, as a part."""
    alone, watched = (_median(found[case], metric) for case in (NOBODY, WATCHED))
    ratio = watched / alone
    return 1 - ratio if metric is Metric.RATE else ratio - 1


def table(found: dict[str, list[Figures]]) -> str:
    lines = ["| | messages/s | CPU µs/message of the broker |", "| --- | --- | --- |"]
    for case, figures in found.items():
        rate, cpu = (_median(figures, metric) for metric in (Metric.RATE, Metric.CPU))
        lines.append(f"| {case} | {rate:,.0f} | {cpu:.3f} |")
    rate, cpu = (cost(found, metric) for metric in (Metric.RATE, Metric.CPU))
    lines.append(f"| cost (target: at most {TARGET:.0%}) | {rate:+.1%} | {cpu:+.1%} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.console", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="of each of the two (7)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of publishing (4)")
    parser.add_argument("--work", type=Path, help="where the broker stores (bench/results)")
    options = parser.parse_args(arguments)
    parent = options.work or Path(__file__).parent / "results"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="work-", dir=parent) as work:
        found = compare(Yard(Path(work)), options.rounds, options.seconds)
    print(table(found))
    sys.exit(cost(found, Metric.RATE) > TARGET)


def _median(figures: Sequence[Figures], metric: Metric) -> float:
    return statistics.median(each[metric] for each in figures)


if __name__ == "__main__":
    main()
