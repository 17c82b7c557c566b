"""`headwater spark`: Spark, with the log as a source and a sink."""

import code
import contextlib
import importlib
import sys
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Spark, with the log as a source and a sink.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

EXAMPLE = """\
df = (
    spark.read.format("headwater")
    .option("servers", "{servers}")
    .option("subscribePattern", ".*")
    .load()
)
df.selectExpr("offset", "topic", "CAST(value AS STRING)", "timestamp").show(truncate=False)
"""
BANNER = """\
Spark {version} on Java {java}, as `spark`. To see what is in the log:

{example}
A stream is the same with spark.readStream and df.writeStream.
"""


@app.callback()
def _group() -> None:
    """Keeps `shell` a command of its own while it is the only one."""


@app.command()
def shell(
    servers: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT,...", help="Where the broker listens for Flight; for the example."
        ),
    ] = "localhost:8815",
    master: Annotated[
        str, typer.Option(help="Where Spark runs: local[N] with N cores, or a cluster.")
    ] = "local[*]",
) -> None:
    """Open a Python prompt with a Spark session, and show how to read the log.

    It is IPython where that is installed.
    """
    from headwater.spark import java
    from headwater.spark.session import session

    spark = session("headwater shell", master)
    example = "".join(f"    {line}\n" for line in EXAMPLE.format(servers=servers).splitlines())
    print(BANNER.format(version=spark.version, java=java.chosen(), example=example))
    try:
        _interact({"spark": spark})
    finally:
        spark.stop()


def _interact(names: dict[str, Any]) -> None:
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            importlib.import_module("IPython").start_ipython(["--no-banner"], user_ns=names)
            return
        with contextlib.suppress(ImportError):
            _remember_lines(names)
    code.interact(banner="", local=names, exitmsg="")


def _remember_lines(names: dict[str, Any]) -> None:
    """The arrow keys bring back earlier lines, and Tab completes names."""
    import readline
    import rlcompleter

    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")
