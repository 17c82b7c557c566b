"""`python -m torture`: do harm to brokers, and account for every message.

Without options it runs the cycles of seeds.toml. `--seed` runs one of them again, `--kind` new ones
of a kind. `--only` kills one broker again and again, whose log grows meanwhile, or Spark.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random

from torture import cycles, kill, pipeline, queues, spark
from torture.verdict import Verdict

TORTURES: dict[str, Callable[[Path, int, float], Verdict]] = {
    "kill": partial(kill.torture, chance=Random()),
    "queues": partial(queues.torture, chance=Random()),
    "spark": spark.torture,
    "pipeline": pipeline.torture,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="torture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=int, action="append", help="run the cycle of this seed")
    what.add_argument("--kind", choices=cycles.KINDS, help="run new cycles of this kind")
    what.add_argument("--only", choices=TORTURES, help="kill these again and again")
    parser.add_argument("--cycles", type=int, default=50, help="how often, with --kind or --only")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="at most so long between kills, with --only"
    )
    options = parser.parse_args()
    if options.only:
        bad = _kill(options.only, options.cycles, options.seconds)
    elif options.kind:
        bad = _run(cycles.new_seeds(options.kind, options.cycles))
    else:
        bad = _run(options.seed or cycles.listed_seeds())
    sys.exit(f"bad: {', '.join(bad)}" if bad else 0)


def _kill(name: str, number: int, seconds: float) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="headwater-torture-") as directory:
        started = time.monotonic()
        verdict = TORTURES[name](Path(directory), number, seconds)
        print(f"{name}: {verdict}")
        print(f"took {time.monotonic() - started:.0f} s")
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
