"""The command line. One file per group of commands; this one only puts them together.

Rules that hold here:

- An error is one line that says what is wrong. HEADWATER_DEBUG=1 shows its traceback.
- `headwater --help` is quick: a slow import is made by the command that needs it.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from headwater import __version__
from headwater.cli import (
    apps,
    common,
    config,
    demo,
    log,
    pipeline,
    pipeline_contracts,
    pipeline_proof,
    pipeline_replay,
    pubsub,
    queue,
    serve,
    spark,
    user,
)
from headwater.errors import HeadwaterError

app = typer.Typer(
    name="headwater",
    help="A message broker for five publish/subscribe protocols, with one durable log.",
    no_args_is_help=True,
    add_completion=False,
    # Plain help looks the same everywhere, in the documentation too.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"headwater {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


app.command()(serve.serve)
app.command()(pubsub.pub)
app.command(help=pubsub.SUB_HELP)(pubsub.sub)
app.add_typer(apps.app, name="app")
app.add_typer(queue.app, name="queue")
app.add_typer(user.app, name="user")
app.add_typer(log.app, name="log")
app.add_typer(spark.app, name="spark")
app.add_typer(pipeline.app, name="pipeline")
pipeline.app.add_typer(pipeline_contracts.app, name="contracts")
pipeline.app.command()(pipeline_contracts.redrive)
pipeline.app.command()(pipeline_proof.audit)
pipeline.app.command()(pipeline_replay.replay)
app.command()(config.config)
app.command()(demo.demo)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit."""
    try:
        try:
            app(args=arguments, prog_name="headwater")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output has closed it. Python flushes once more at its exit; let it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if os.environ.get("HEADWATER_DEBUG"):
            raise
        common.complain(_sentence(error))
    sys.exit(1)


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).splitlines())
    if isinstance(error, HeadwaterError):
        return text
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    name = type(error).__name__
    return f"unexpected error ({name}: {text}); HEADWATER_DEBUG=1 shows the traceback"
