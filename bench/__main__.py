"""`make bench`, or `python -m bench`: measure, and compare with the peers."""

import argparse
import resource
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import contestants, report, runner
from bench.brokers import Yard
from bench.contestants import Contestant
from bench.runner import Scenario
from bench.scale import FULL, QUICK, Scale
from bench.scenarios import all_scenarios
from bench.targets import Book, targets

RESULTS = Path(__file__).parent / "results"
_PEERS = tuple(family for family in contestants.FAMILIES if family != "headwater")


def parse(argv: list[str]) -> argparse.Namespace:
    names = sorted({scenario.name for scenario in all_scenarios(FULL)})
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    add = parser.add_argument
    add("--quick", action="store_true", help="a short run, to see whether something is badly off")
    add("--only", metavar="NAME", action="append", choices=names, help=", ".join(names))
    add("--peers", metavar="A,B", help=f"of {', '.join(_PEERS)}; 'none' for this broker alone")
    add("--no-headwater", action="store_true", help="the peers alone")
    add("--install-peers", action="store_true", help="apt-get install what is missing (root)")
    add("--payload", type=int, metavar="BYTES", help="size of a message (128)")
    add("--seconds", type=float, help="of publishing per measurement (2)")
    add("--rounds", type=int, help="of every throughput measurement (3)")
    add("--work", type=Path, metavar="DIR", help="where servers store; not in memory (results/)")
    add("--json", type=Path, metavar="FILE", help="write all figures to a file, too")
    return parser.parse_args(argv)


def chosen_scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    named = {
        "payload_bytes": options.payload,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "long_rounds": options.rounds,
    }
    return replace(scale, **{name: value for name, value in named.items() if value is not None})


def chosen_contestants(options: argparse.Namespace, console: Console) -> list[Contestant]:
    families = set(_PEERS)
    if options.peers is not None:
        families = set() if options.peers == "none" else set(options.peers.split(","))
        if unknown := families.difference(_PEERS):
            sys.exit(f"no such peer: {', '.join(sorted(unknown))}; known: {', '.join(_PEERS)}")
    if not options.no_headwater:
        families.add("headwater")
    wanted = [each for each in contestants.ALL.values() if each.family in families]
    for family in sorted({each.family for each in wanted if not each.is_installed()}):
        console.print(f"{family} is not installed and left out (--install-peers gets it)")
    return [each for each in wanted if each.is_installed()]


def chosen_scenarios(options: argparse.Namespace, scale: Scale) -> list[Scenario]:
    known = all_scenarios(scale)
    return [each for each in known if options.only is None or each.name in options.only]


@contextmanager
def work_directory(wanted: Path | None) -> Iterator[Path]:
    parent = wanted or RESULTS
    parent.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="work-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def allow_many_files() -> None:
    """10,000 connections need as many descriptors, here and in the servers, which inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(argv: list[str]) -> int:
    options = parse(argv)
    # Where the output goes to a file there is no window to fit into.
    console = Console() if sys.stdout.isatty() else Console(width=180)
    # SIGTERM leaves through the same `finally` as Ctrl-C: no server stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    allow_many_files()
    if options.install_peers:
        contestants.install_peers()
    scale = chosen_scale(options)
    with work_directory(options.work) as work:
        machine = report.machine(work)
        who = chosen_contestants(options, console)
        rows = runner.run(chosen_scenarios(options, scale), who, Yard(work), console.print)
    book = Book(rows)
    verdicts = tuple(target.verdict(book) for target in targets(scale))
    command = f'make bench ARGS="{shlex.join(argv)}"' if argv else "make bench"
    long_enough = scale.rounds >= FULL.rounds and scale.seconds >= FULL.seconds
    result = report.Report(tuple(rows), verdicts, machine, command, quotable=long_enough)
    report.finish(result, console, RESULTS, options.json)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
