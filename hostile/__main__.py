"""`make hostile`, or `python -m hostile`: attack brokers, and see whether anyone else notices."""

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.__main__ import allow_many_files
from bench.brokers import Yard
from hostile.attacks import ATTACKS
from hostile.stage import HostileVerdict, perform

ALL = "all together"
CROWD = "a crowd"
#: Attacks that are made at the same time, by name.
TOGETHER = {
    CROWD: ("idle clients", "half-open clients"),
    ALL: tuple(name for name, attack in ATTACKS.items() if attack.limit is None),
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="hostile", description=__doc__)
    every = (*ATTACKS, *TOGETHER)
    parser.add_argument("--only", action="append", choices=every, help=", ".join(every))
    parser.add_argument("--quick", action="store_true", help="less of everything")
    options = parser.parse_args(argv)
    allow_many_files()
    console = Console() if sys.stdout.isatty() else Console(width=160)
    verdicts = []
    for name in options.only or every:
        with tempfile.TemporaryDirectory(prefix="headwater-hostile-") as directory:
            attacks = TOGETHER.get(name, (name,))
            verdict = perform(Yard(Path(directory)), name, attacks, few=options.quick)
        verdicts.append(verdict)
        console.print(f"{name}: {', '.join(verdict.faults) or 'good'}")
    console.print(table(verdicts))
    return 1 if any(verdict.faults for verdict in verdicts) else 0


def table(verdicts: list[HostileVerdict]) -> Table:
    made = Table(
        "attack",
        "done",
        "s",
        "delivered",
        "quiet p99 ms",
        "p99 ms",
        "worst ms",
        "grew MiB",
        "left MiB",
        "health ms",
    )
    for each in verdicts:
        figures = (
            *(each.quiet_ms, each.p99_ms, each.worst_ms),
            *(each.growth_mib, each.left_mib, each.health_ms),
        )
        made.add_row(
            each.attack,
            f"{each.done:,}",
            f"{each.seconds:.1f}",
            f"{each.delivered:,}",
            *(f"{figure:.1f}" for figure in figures),
            style="" if not each.faults else "red",
        )
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
