"""All commands, put together."""

from typing import Annotated

import typer

from headwater import __version__, compiled
from headwater.cli import (
    access,
    apps,
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
        print(f"headwater {__version__} ({compiled.state})")
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
app.add_typer(access.app, name="access")
app.add_typer(log.app, name="log")
app.add_typer(spark.app, name="spark")
app.add_typer(pipeline.app, name="pipeline")
pipeline.app.add_typer(pipeline_contracts.app, name="contracts")
pipeline.app.command()(pipeline_contracts.redrive)
pipeline.app.command()(pipeline_proof.audit)
pipeline.app.command()(pipeline_replay.replay)
app.command()(config.config)
app.command()(demo.demo)
