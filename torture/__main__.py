"""`python -m torture`: see torture/kill.py."""

import argparse
import tempfile
import time
from pathlib import Path

from torture import kill


def main() -> None:
    parser = argparse.ArgumentParser(prog="torture", description=kill.__doc__)
    parser.add_argument("--cycles", type=int, default=50, help="how often to kill the broker")
    parser.add_argument("--seconds", type=float, default=2.0, help="at most so long between kills")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-torture-") as directory:
        started = time.monotonic()
        print(kill.torture(Path(directory), options.cycles, options.seconds))
        print(f"took {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
