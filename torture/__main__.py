"""`python -m torture`: kill the broker under load, while queues are at work, and under Spark; and
pipelines."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from torture import kill, pipeline, queues, spark

TORTURES = {
    "kill": kill.torture,
    "queues": queues.torture,
    "spark": spark.torture,
    "pipeline": pipeline.torture,
}
# Spark has a command of its own: it takes long to come back after each kill.
BY_DEFAULT = ("kill", "queues")


def main() -> None:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--only", choices=TORTURES, help="one; without it, those without Spark")
    parser.add_argument("--cycles", type=int, default=50, help="how often to kill the broker")
    parser.add_argument("--seconds", type=float, default=6.0, help="at most so long between kills")
    options = parser.parse_args()
    bad = []
    for name in [options.only] if options.only else BY_DEFAULT:
        with tempfile.TemporaryDirectory(prefix="headwater-torture-") as directory:
            started = time.monotonic()
            verdict = TORTURES[name](Path(directory), options.cycles, options.seconds)
            print(f"{name}: {verdict}")
            print(f"took {time.monotonic() - started:.0f} s")
            bad += [] if verdict.good else [name]
    sys.exit(f"bad: {', '.join(bad)}" if bad else 0)


if __name__ == "__main__":
    main()
