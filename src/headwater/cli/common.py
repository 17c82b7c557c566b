"""What the commands share: options, the configuration, and ways to speak to a person."""

import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater import config

if TYPE_CHECKING:
    from rich.console import Console

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help=f"The configuration file. Without it, {config.FILE_VARIABLE} names the file, "
        f"or {config.DEFAULT_FILE} in the working directory is taken if there is one.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIRECTORY",
        help="The directory of the log. Without it, the configuration says where.",
    ),
]


def load_config(
    file: Path | None = None, flags: Mapping[str, object] | None = None
) -> config.Loaded:
    """Load the configuration and say what was ignored. A flag that is None was not given."""
    given = {key: str(value) for key, value in (flags or {}).items() if value is not None}
    loaded = config.load(file, given)
    for warning in loaded.warnings:
        warn(warning)
    return loaded


def data_directory(data: Path | None = None, file: Path | None = None) -> Path:
    """Where the log is. With the flag, a broken configuration keeps nobody from looking at it."""
    return data if data is not None else load_config(file).config.data


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
