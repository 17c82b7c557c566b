"""The options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from headwater import config

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help=f"Configuration file (default: {config.FILE_VARIABLE}, else {config.DEFAULT_FILE} "
        "in the working directory if there is one).",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIRECTORY",
        help="Data directory (default: from the configuration).",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
]
FromOffsetOption = Annotated[
    int | None,
    typer.Option(
        "--from", metavar="OFFSET", min=0, help="First offset (default: the oldest in the log)."
    ),
]
ToOffsetOption = Annotated[
    int | None,
    typer.Option(
        "--to", metavar="OFFSET", min=0, help="Stop before this offset (default: the end)."
    ),
]
ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        metavar="DIRECTORY",
        help="Project directory (default: the nearest one with a spark-pipeline.yml, from the "
        "working directory upward).",
    ),
]
ServersOption = Annotated[
    str | None,
    typer.Option(
        "--servers",
        metavar="HOST:PORT,...",
        help="The broker's Flight listener (default: from the project, else from the broker's "
        "configuration, else localhost:8815).",
    ),
]
MasterOption = Annotated[
    str,
    typer.Option(
        "--master", help="Where Spark runs: local[N] with N cores, or the URL of a cluster."
    ),
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="sc://HOST:PORT",
        help="Run on this Spark Connect server, and write to the tables of its catalog.",
    ),
]
