"""Spark's Python processes, with fewer words.

Borrowed from PySpark: the module `pyspark.daemon`, run as it is but for the name `traceback` in it,
and the name `print` in the module that plans stateful operators. No setting changes what they say:

- A worker that waits for work finds its socket closed when Spark ends, or stops its query. Over TCP
  nobody notices. Over a Unix socket the daemon, which forks the workers, prints a traceback for
  each of them, at the end of most programs, as if something had failed.
- Sources are planned in forks of another daemon, which no setting of Spark replaces: the code that
  runs there asks for the same with `quieten`.
- The process in which Spark asks for the columns of a state prints each of its steps.

If the daemon changes, `main` says so and no worker starts. If only the words come another way, they
are back, and nothing else is lost.
"""

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon

from headwater.borrowed import PYSPARK

STATE_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"


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


def quieten_state_worker() -> None:
    """If this process is the one that plans stateful operators, let it work without words."""
    worker = sys.modules.get(STATE_WORKER)
    if worker is not None:
        vars(worker)["print"] = lambda *_: None


def check() -> None:
    """Compare PySpark with what this module knows of it."""
    PYSPARK.check_attributes("pyspark.daemon", daemon, "manager", "traceback")
    PYSPARK.check_parameters("pyspark.daemon.manager", daemon.manager)


def main() -> None:
    check()
    vars(daemon)["traceback"] = _QUIET
    daemon.manager()


if __name__ == "__main__":
    main()
