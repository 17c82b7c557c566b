"""Standard output and standard error: for people, and for one line that says what is wrong."""

import functools
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


# Rich takes longer to import than most commands take to run, so it is imported when needed.
@functools.cache
def out() -> "Console":
    """The console on standard output, for tables and the like."""
    from rich.console import Console

    return Console()


@functools.cache
def err() -> "Console":
    """The console on standard error, for progress and the like."""
    from rich.console import Console

    return Console(stderr=True)


def warn(sentence: str) -> None:
    print(f"headwater: warning: {sentence}", file=sys.stderr)


def complain(sentence: str) -> None:
    print(f"headwater: error: {sentence}", file=sys.stderr)
