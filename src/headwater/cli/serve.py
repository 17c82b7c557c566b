"""`headwater serve`: run the broker."""

from typing import Annotated

import typer

from headwater.cli import common, serving
from headwater.cli.serving import LogFormat, ServeOptions


def serve(
    config: common.ConfigOption = None,
    data: common.DataOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log each connection, and why it ended.")
    ] = False,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Format of the lines on standard error.")
    ] = LogFormat.text,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C."""
    options = ServeOptions(config=config, data=data, verbose=verbose, log_format=log_format)
    serving.serve(options)
