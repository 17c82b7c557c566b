"""`headwater pipeline`: from topics to tables."""

import contextlib
import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import common
from headwater.cli.common import JsonOption, out
from headwater.cli.output import size_of
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.pipeline.project import Project
    from headwater.spark.broker import Broker

app = typer.Typer(
    help="From topics to tables, on Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        metavar="DIRECTORY",
        help="The directory of the project. Without it, the nearest one that has a "
        "spark-pipeline.yml, from the working directory upward.",
    ),
]
ServersOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT,...",
        help="Where the broker listens for Flight. Without it, the project says it, or Headwater's "
        "configuration (HEADWATER_CONFIG), or it is localhost:8815.",
    ),
]
MasterOption = Annotated[
    str, typer.Option(help="Where Spark runs: local[N] with N cores, or a cluster.")
]
MISSING = "the pipeline needs more packages: pip install 'headwater[spark]'"


def load(project: Path | None, servers: str | None = None) -> "Project":
    try:
        from headwater.pipeline import project as projects
    except ImportError as error:
        raise HeadwaterError(f"{MISSING} ({error.name} is not there)") from None
    return projects.load(project, servers)


def session(project: "Project", master: str, app_name: str = "") -> Any:
    """A Spark for a project, with its own settings."""
    from headwater.pipeline.runner import SETTINGS, configure
    from headwater.spark.session import session as spark_session

    given = {k: v for k, v in project.configuration.items() if k.startswith("spark.")}
    with _errors_to(project.state / "spark.log"):
        spark = spark_session(
            app_name or project.name, master, project.storage / "spark", conf={**SETTINGS, **given}
        )
    threading.Thread(target=_end_with, args=(spark,), name="java", daemon=True).start()
    configure(spark, project)
    if not os.environ.get("HEADWATER_DEBUG"):
        # What fails is told in one line; Spark would tell it in a hundred.
        spark.sparkContext.setLogLevel("OFF")
    return spark


def _end_with(spark: Any) -> None:
    """Spark's Java may be killed, or run out of memory. There is no going on then, and whatever
    waits for it would wait for long. Nothing gets lost: all of it may be killed at any moment."""
    spark.sparkContext._gateway.proc.wait()
    common.complain("Spark's Java process has ended; start it again, and it goes on where it was")
    os._exit(1)


def broker_of(project: "Project") -> "Broker":
    """The broker of a project, for a person who waits: it is not tried for long."""
    from headwater.spark.broker import Broker
    from headwater.spark.options import Sink, parse

    names = ("servers", "token", "tls.enabled", "tls.caFile")
    given = {name: project.setting(name) for name in names}
    options = {name: value for name, value in given.items() if value}
    return Broker.of(parse(Sink, {**options, "fetch.numRetries": "2"}))


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Programs that are started meanwhile (Java, and all that it starts) write there what they have
    to say, unless HEADWATER_DEBUG asks to see it."""
    if os.environ.get("HEADWATER_DEBUG"):
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    kept = os.dup(2)
    try:
        with file.open("ab") as log:
            os.dup2(log.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where to make it; a new directory.")],
) -> None:
    """Make a project: settings, definitions and an example of a contract."""
    from headwater.pipeline.init import make

    for file in make(directory):
        print(f"made {file}")
    print(f"\nNext:\n  cd {directory}\n  headwater pipeline run")


@app.command()
def run(
    once: Annotated[
        bool, typer.Option("--once", help="Read everything there is, and stop.")
    ] = False,
    full_refresh: Annotated[
        bool,
        typer.Option(
            "--full-refresh",
            help="Drop tables and rebuild them from the log: those that are named, or all.",
        ),
    ] = False,
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="With --full-refresh: which.")
    ] = None,
    master: MasterOption = "local[*]",
    remote: Annotated[
        str | None,
        typer.Option(
            metavar="sc://HOST:PORT",
            help="A Spark Connect server, which takes definitions through Spark's own "
            "`spark-pipelines run` only.",
        ),
    ] = None,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Run the pipeline, and keep its tables current until it is stopped.

    On a terminal it shows a bar per table; elsewhere it prints a line of JSON when something has
    changed. Stopped in any way, it goes on where it was.
    """
    if remote is not None:
        raise HeadwaterError(
            "a Spark Connect server cannot call back for each batch: run Spark's own "
            "`spark-pipelines run` with SPARK_REMOTE, or give --master"
        )
    if tables and not full_refresh:
        raise HeadwaterError("tables are named with --full-refresh only")
    from headwater.pipeline.progress import shown
    from headwater.pipeline.runner import Runner

    loaded = load(project, servers)
    if out().is_terminal:  # the view has it
        logging.getLogger("headwater.pipeline").setLevel(logging.CRITICAL)
    spark = session(loaded, master)
    try:
        with shown(out()) as view:
            runner = Runner(loaded, spark, once, view)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: runner.stop())
            well = runner.run((tables or []) if full_refresh else None)
    finally:
        with contextlib.suppress(Exception):  # it may be gone
            spark.stop()
    if not well:
        raise HeadwaterError("not all tables are current: `headwater pipeline status` says why")


@app.command()
def check(
    master: MasterOption = "local[1]",
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Load the definitions and show the graph, without touching data."""
    from headwater.pipeline.checking import check as checked

    loaded = load(project, servers)
    spark = session(loaded, master)
    try:
        report = checked(loaded, spark)
    finally:
        spark.stop()
    for line in report.lines:
        print(line)
    if report.errors:
        for error in report.errors:
            print(f"error: {error}")
        raise typer.Exit(1)


@app.command()
def status(as_json: JsonOption = False, project: ProjectOption = None) -> None:
    """Show each table: rows, lag, rate, last batch, last error."""
    from headwater.pipeline.progress import picture
    from headwater.pipeline.status import status_of

    found = status_of(load(project))
    if as_json:
        print(json.dumps(found))
        return
    out().print(picture(found))
    if not found["running"]:
        print("It is not running: this is how it was left.")


@app.command()
def compact(
    table: Annotated[str | None, typer.Argument(help="Which table; without it, all.")] = None,
    project: ProjectOption = None,
) -> None:
    """Make few large files of many small ones, and remove what is no longer needed.

    A pipeline that runs does this by itself.
    """
    from headwater.pipeline.upkeep import keep, tables_of

    loaded = load(project)
    found = [each for each in tables_of(loaded) if table in (None, each.name)]
    if not found:
        raise HeadwaterError(f"there is no table {table}" if table else "there are no tables yet")
    for each in found:
        done = keep(each)
        size = size_of(sum(file.bytes for file in each.files()))
        print(
            f"{done.table}: {done.files_before} files became {done.files_after} ({size}), "
            f"{done.removed} removed"
        )


@app.command()
def backfill(
    table: Annotated[str, typer.Argument(help="The table that lacks records.")],
    start: Annotated[
        str | None, typer.Option("--from", help="An offset, or a time such as 2026-01-31T12:00.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", help="Before this offset or time.")] = None,
    master: MasterOption = "local[*]",
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Read a range of the log again into a table that lacks some of it, without repeats."""
    from headwater.pipeline.backfill import backfill as fill

    loaded = load(project, servers)
    spark = session(loaded, master)
    try:
        filled = fill(loaded, spark, table, start, end)
    finally:
        spark.stop()
    print(f"{table}: {filled.rows} rows added of the offsets {filled.start} to {filled.end - 1}")
