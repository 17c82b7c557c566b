"""`headwater pipeline`: from topics to tables."""

import contextlib
import json
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import common
from headwater.cli.common import JsonOption, out
from headwater.cli.output import progress_bar, size_of
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.pipeline.care.upkeep import UpkeepResult
    from headwater.pipeline.project.project import Project
    from headwater.pipeline.run.check import CheckReport
    from headwater.spark.flight_client import FlightClient

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
RemoteOption = Annotated[
    str | None,
    typer.Option(
        metavar="sc://HOST:PORT",
        help="A Spark Connect server: it fills tables of its own catalog, with one run after "
        "another. See docs/pipeline.md.",
    ),
]
MISSING = "the pipeline needs more packages: pip install 'headwater[spark]'"


def load(project: Path | None, servers: str | None = None) -> "Project":
    try:
        from headwater.pipeline.project import project as projects
    except ImportError as error:
        raise HeadwaterError(f"{MISSING} ({error.name} is not there)") from None
    return projects.load(project, servers)


def session(project: "Project", master: str, app_name: str = "") -> Any:
    """A Spark for a project, with its own settings."""
    from headwater.pipeline.run.runner import SETTINGS, configure
    from headwater.spark.session import session as spark_session

    given = {k: v for k, v in project.configuration.items() if k.startswith("spark.")}
    with _errors_to(project.state / "spark.log"):
        spark = spark_session(
            app_name or project.name, master, project.storage / "spark", conf={**SETTINGS, **given}
        )
    threading.Thread(target=_end_with, args=(spark,), name="java", daemon=True).start()
    # It would print a traceback when Java is killed.
    spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
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


def broker_of(project: "Project") -> "FlightClient":
    """The broker of a project, for a person who waits: it is not tried for long."""
    from headwater.spark.flight_client import FlightClient
    from headwater.spark.options import SinkOptions, parse

    # In the end it is said once, as an error.
    logging.getLogger("headwater.spark.flight_client").setLevel(logging.ERROR)
    names = ("servers", "token", "tls.enabled", "tls.caFile")
    given = {name: project.setting(name) for name in names}
    options = {name: value for name, value in given.items() if value}
    return FlightClient.of(parse(SinkOptions, {**options, "fetch.numRetries": "2"}))


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
    from headwater.pipeline.project.init import make

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
    remote: RemoteOption = None,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Run the pipeline, and keep its tables current until it is stopped.

    On a terminal it shows a bar per table; elsewhere it prints a line of JSON when something has
    changed. Stopped in any way, it goes on where it was.
    """
    if tables and not full_refresh:
        raise HeadwaterError("tables are named with --full-refresh only")
    loaded = load(project, servers)
    if out().is_terminal:  # the view has it
        logging.getLogger("headwater.pipeline").setLevel(logging.CRITICAL)
    refresh = (tables or []) if full_refresh else None
    if remote is not None:
        well = _run_remotely(loaded, remote, once, refresh)
    else:
        well = _run_here(loaded, master, once, refresh)
    if not well:
        raise HeadwaterError("not all tables are current: `headwater pipeline status` says why")


def _run_here(project: "Project", master: str, once: bool, refresh: list[str] | None) -> bool:
    from headwater.pipeline.run.progress import show_progress
    from headwater.pipeline.run.runner import Runner

    spark = session(project, master)
    try:
        with show_progress(out()) as view:
            runner = Runner(project, spark, once, view)
            _stop_by_signal(runner.stop)
            return runner.run(refresh)
    finally:
        with contextlib.suppress(Exception):  # it may be gone
            spark.stop()


def _run_remotely(project: "Project", address: str, once: bool, refresh: list[str] | None) -> bool:
    from headwater.pipeline.run.progress import show_progress
    from headwater.pipeline.run.remote import RemoteRunner

    _quieten_pyspark()
    with show_progress(out()) as view:
        runner = RemoteRunner(project, address, broker_of(project), once, view)
        _stop_by_signal(runner.stop)
        return runner.run(refresh)


def _quieten_pyspark() -> None:
    """What fails is told in one line."""
    if not os.environ.get("HEADWATER_DEBUG"):
        logging.getLogger("pyspark").setLevel(logging.CRITICAL)


def _stop_by_signal(stop: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())


@app.command()
def check(
    master: MasterOption = "local[1]",
    remote: RemoteOption = None,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Load the definitions and show the graph, without touching data."""
    loaded = load(project, servers)
    report = _check_here(loaded, master) if remote is None else _check_remotely(loaded, remote)
    for line in report.lines:
        print(line)
    if report.errors:
        for error in report.errors:
            print(f"error: {error}")
        raise typer.Exit(1)


def _check_here(project: "Project", master: str) -> "CheckReport":
    from headwater.pipeline.run.check import check as checked

    spark = session(project, master)
    try:
        return checked(project, spark)
    finally:
        spark.stop()


def _check_remotely(project: "Project", address: str) -> "CheckReport":
    from headwater.pipeline.run.check import check_remotely

    _quieten_pyspark()
    return check_remotely(project, address)


@app.command()
def status(as_json: JsonOption = False, project: ProjectOption = None) -> None:
    """Show each table: rows, lag, rate, last batch, last error."""
    from headwater.pipeline.run.progress import picture
    from headwater.pipeline.run.status import status_of

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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and do nothing.")
    ] = False,
    as_json: JsonOption = False,
    project: ProjectOption = None,
) -> None:
    """Make few large files of many small ones, delete rows that are too old (headwater.retention),
    and remove files that are no longer needed.

    A pipeline that runs does this by itself. It may run meanwhile.
    """
    loaded = load(project)
    from headwater.pipeline.care.upkeep import keep_all, tables_of
    from headwater.pipeline.tables.store import OURS

    if (kind := loaded.setting("format", OURS)) != OURS:
        raise HeadwaterError(f"headwater.format is {kind}: files are looked after with {OURS} only")
    found = [each for each in tables_of(loaded) if table in (None, each.name)]
    if not found:
        raise HeadwaterError(f"there is no table {table}" if table else "there are no tables yet")
    retentions, done = _retentions(loaded), []
    with progress_bar("looking after tables") as progress:
        for each in keep_all(found, retentions, dry=dry_run):
            done.append(each)
            progress(len(done), len(found))
    if as_json:
        print(json.dumps([asdict(each) for each in done]))
    else:
        for each in done:
            print(_upkeep_words(each, retentions.get(each.table), dry_run))
    if failed := [each.table for each in done if each.error]:
        raise HeadwaterError(f"not everything was done: {', '.join(failed)}")


def _retentions(project: "Project") -> dict[str, str]:
    """What the definitions say about how long rows are kept. If that is not known, Spark has to
    load them."""
    from headwater.pipeline.care.retention import note, noted, retentions_of

    found = noted(project)
    if found is None:
        from headwater.pipeline.run.runner import open_project

        spark = session(project, "local[1]")
        try:
            with open_project(spark, project) as (graph, _, _):
                found = retentions_of(graph)
        finally:
            spark.stop()
        note(project, found)
    return found


def _upkeep_words(done: "UpkeepResult", retention: str | None, dry: bool) -> str:
    if done.error:
        return f"{done.table}: {done.error}"
    files = f"{done.files_before} files ({size_of(done.bytes_before)})"
    if not done.changed:
        return f"{done.table}: nothing to do, {files}"
    parts, would = [files], "would be " if dry else ""
    if done.files_after != done.files_before:
        became = f"became {done.files_after} ({size_of(done.bytes_after)})"
        parts = [f"{files} {f'would become about {done.files_after}' if dry else became}"]
    if done.expired:
        parts.append(f"{done.expired} rows older than {retention} {would}deleted")
    if done.removed:
        parts.append(f"{done.removed} old files {would}removed")
    return f"{done.table}: {', '.join(parts)}"


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
    from headwater.pipeline.repair.backfill import backfill as fill

    loaded = load(project, servers)
    spark = session(loaded, master)
    try:
        filled = fill(loaded, spark, table, start, end)
    finally:
        spark.stop()
    print(f"{table}: {filled.rows} rows added of the offsets {filled.start} to {filled.end - 1}")
