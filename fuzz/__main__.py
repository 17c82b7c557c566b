"""`make fuzz`, or `python -m fuzz`: give inputs to everything that reads bytes of strangers.

It fails when an input makes something fail that must not, takes longer than 50 ms, or when memory
has grown by more than 5 %.
"""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from fuzz import report
from fuzz.outcome import Outcome, Plan
from fuzz.processes import run_all
from fuzz.targets import NAMES

INPUTS = 2_000_000


def options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    add = parser.add_argument
    add("--target", action="append", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    add("--inputs", type=int, default=INPUTS, help=f"for each target (default: {INPUTS:,})")
    add("--seconds", type=float, default=1e9, help="stop each target after so many")
    add("--seed", type=int, default=1, help="what is left to chance follows from it")
    add("--jobs", type=int, default=2, help="targets at the same time")
    add("--report", type=Path, help="write the table to this file, in Markdown")
    add("--replay", type=Path, action="append", help="only this input, of the one --target")
    add("--keep", action="store_true", help="make the corpus in the repository anew")
    given = parser.parse_args(argv)
    if given.replay and len(given.target or ()) != 1:
        parser.error("--replay needs one --target")
    return given


def plans(given: argparse.Namespace) -> list[Plan]:
    only = tuple(file.read_bytes() for file in given.replay or ())
    inputs = len(only) or given.inputs
    return [
        Plan(name, inputs, given.seconds, given.seed, only, given.keep)
        for name in given.target or NAMES
    ]


def main(argv: list[str]) -> int:
    given = options(argv)
    console = Console() if sys.stdout.isatty() else Console(width=140)
    outcomes = []
    for outcome in run_all(plans(given), given.jobs, lambda line: console.print(line, style="dim")):
        outcomes.append(outcome)
        outcomes.sort(key=lambda each: NAMES.index(each.target))
        tell(console, outcome)
        if given.report is not None:  # each time: all of it takes an hour and more
            given.report.write_text(report.markdown(outcomes))
    console.print(report.table(outcomes))
    return 1 if any(each.findings for each in outcomes) else 0


def tell(console: Console, outcome: Outcome) -> None:
    rate = f"{outcome.inputs:,} inputs, {outcome.per_second:,.0f} a second"
    console.print(f"{outcome.target}: {rate}, {len(outcome.findings) or 'no'} findings")
    for finding in outcome.findings:
        console.print(finding.why[-3000:], style="red", markup=False, highlight=False)
        if finding.data:
            console.print(
                f"again: python -m fuzz --target {finding.target} --replay {finding.save()}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
