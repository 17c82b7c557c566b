"""`python -m torture`: do harm to brokers, and account for every message.

Without options it runs the cycles of seeds.toml. `--seed` runs one of them again, `--kind` new ones
of a kind. `--only` does one kind of harm for long:

    kill, queues, everyone   one broker is killed `--cycles` times, and its log grows
    boundaries               a crash of the machine at each of `--operations` on the disk
    flips                    `--count` times, a file is damaged
    full-disk                each operation fails; then a broker's, in `--cycles` rounds
    clock                    the clock jumps `--cycles` times
    spark, pipeline          Spark, pipelines and the broker are killed
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from torture import boundaries, clock, cycles, flips, full_disk, kill, pipeline, queues, spark
from torture.everyone import kill as everyone
from torture.report import Report
from torture.verdict import Verdict

TORTURES: dict[str, Callable[[Path, int, float], Verdict]] = {
    "kill": partial(kill.torture, chance=Random()),
    "queues": partial(queues.torture, chance=Random()),
    "everyone": partial(everyone.torture, chance=Random()),
    "clock": partial(clock.torture, chance=Random()),
    "spark": spark.torture,
    "pipeline": pipeline.torture,
}

#: Those that look at files, and need no directory that lasts.
DISKS: dict[str, Callable[[argparse.Namespace], Verdict]] = {
    "boundaries": lambda options: boundaries.torture(
        operations=options.operations, chance=Random(), every=options.every
    ),
    "flips": lambda options: flips.torture(count=options.count, chance=Random()),
    "full-disk": lambda options: full_disk.torture(
        rounds=options.cycles, chance=Random(), every=options.every
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="torture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=int, action="append", help="run the cycle of this seed")
    what.add_argument("--kind", choices=cycles.KINDS, help="run new cycles of this kind")
    what.add_argument("--only", choices=[*TORTURES, *DISKS], help="this kind of harm, for long")
    parser.add_argument("--cycles", type=int, default=50, help="how often, with --kind or --only")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="at most so long between kills, with --only"
    )
    parser.add_argument("--operations", type=int, default=5000, help="with --only boundaries")
    parser.add_argument("--every", type=int, default=1, help="every Nth of these operations only")
    parser.add_argument("--count", type=int, default=10_000, help="with --only flips")
    parser.add_argument("--report", type=Path, help="append the verdict to this file, in markdown")
    options = parser.parse_args()
    if options.only:
        bad = _only(options)
    elif options.kind:
        bad = _run(cycles.new_seeds(options.kind, options.cycles))
    else:
        bad = _run(options.seed or cycles.listed_seeds())
    sys.exit(f"bad: {', '.join(bad)}" if bad else 0)


def _only(options: argparse.Namespace) -> list[str]:
    name, report = options.only, Report(options.only)
    if name in DISKS:
        verdict = DISKS[name](options)
    else:
        with tempfile.TemporaryDirectory(prefix="headwater-torture-") as directory:
            verdict = TORTURES[name](Path(directory), options.cycles, options.seconds)
    print(f"{name}: {verdict}\ntook {report.seconds():.0f} s")
    if options.report is not None:
        report.append(options.report, verdict)
    return [] if verdict.good else [name]


def _run(seeds: Sequence[int]) -> list[str]:
    """Returns what to say of the bad ones."""
    outcomes = []
    for number, seed in enumerate(seeds, 1):
        outcomes.append(outcome := cycles.run(seed))
        print(f"{number}/{len(seeds)} {outcome}", flush=True)
    print(cycles.summary(outcomes))
    return [f"seed {outcome.seed} ({outcome.kind})" for outcome in outcomes if not outcome.good]


if __name__ == "__main__":
    main()
