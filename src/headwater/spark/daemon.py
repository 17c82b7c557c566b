"""Spark's daemon, which forks Python's workers, with fewer words.

A worker that waits for work finds its socket closed when Spark ends, or stops its query. Over TCP
nobody notices. Over a Unix socket the daemon prints a traceback for each such worker, at the end of
most programs, as if something had failed.
"""

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_exc() -> None:
    """As that of `traceback`, unless it was Spark who hung up."""
    if not isinstance(sys.exception(), BrokenPipeError):
        traceback.print_exc()


def main() -> None:
    # Only what the daemon itself prints: those who work in its forks have the real one.
    quiet = SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)
    vars(daemon)["traceback"] = quiet
    daemon.manager()


if __name__ == "__main__":
    main()
