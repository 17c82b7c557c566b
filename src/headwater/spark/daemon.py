"""Spark's daemon, which forks Python's workers, with fewer words.

A worker that waits for work finds its socket closed when Spark ends, or stops its query. Over TCP
nobody notices. Over a Unix socket the daemon prints a traceback for each such worker, at the end of
most programs, as if something had failed.

Sources are planned in forks of another daemon, which no setting of Spark changes: what runs there
asks for the same with `quieten`.
"""

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_exc() -> None:
    """As that of `traceback`, unless it was Spark who hung up."""
    if not isinstance(sys.exception(), BrokenPipeError):
        traceback.print_exc()


# Only for what a daemon itself prints: those who work in its forks have the real one.
_QUIET = SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)


def quieten() -> None:
    """If this process is a fork of Spark's own daemon, let it end with fewer words, too."""
    program = sys.modules["__main__"]
    if program.__spec__ is not None and program.__spec__.name == daemon.__name__:
        vars(program)["traceback"] = _QUIET


def main() -> None:
    vars(daemon)["traceback"] = _QUIET
    daemon.manager()


if __name__ == "__main__":
    main()
