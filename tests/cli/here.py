"""Commands in the process of the tests: to see what they say and do.

A process for each command costs seconds, most of them for imports. How a command starts and ends as
a program of its own is tested as well, once for each group of commands.
"""

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from headwater.cli import main

#: Commands change how much these say, for the rest of what is otherwise their process.
_LOGGERS = ("headwater.pipeline", "headwater.spark.flight_client", "pyspark")


def headwater_here(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Like `subprocess.run(["headwater", …], capture_output=True, text=True, stdin=DEVNULL)`."""
    out, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        contextlib.chdir(cwd or Path.cwd()),
        _nothing_typed(),
        _levels_kept(),
        _signals_kept(),
    ):
        code = _exit_code(arguments)
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())


def _exit_code(arguments: tuple[str, ...]) -> int:
    try:
        main(arguments)
    except SystemExit as ended:
        assert ended.code is None or isinstance(ended.code, int)
        return ended.code or 0


@contextlib.contextmanager
def _nothing_typed() -> Iterator[None]:
    kept = sys.stdin
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = kept


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """Commands that run until they are stopped take these two."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _levels_kept() -> Iterator[None]:
    kept = {name: logging.getLogger(name).level for name in _LOGGERS}
    try:
        yield
    finally:
        for name, level in kept.items():
            logging.getLogger(name).setLevel(level)
