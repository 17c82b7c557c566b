"""`headwater pipeline`: keep tables of the topics, with Spark."""

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

from headwater.cli import streams
from headwater.cli.common import (
    DryRunOption,
    JsonOption,
    MasterOption,
    ProjectOption,
    RemoteOption,
    ServersOption,
)
from headwater.cli.output import progress_bar, size_of
from headwater.cli.streams import out
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from subprocess import Popen

    from headwater.pipeline.care.upkeep import UpkeepResult
    from headwater.pipeline.project.project import Project
    from headwater.pipeline.run.check import CheckReport
    from headwater.spark.flight_client import FlightClient

app = typer.Typer(
    help="Keep tables of the topics, with Spark.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MISSING = "the pipeline needs more packages: pip install 'headwater[spark]'"


def load(project: Path | None, servers: str | None = None) -> "Project":
    try:
        from headwater.pipeline.project import project as projects
    except ImportError as error:
        raise HeadwaterError(f"{MISSING} ({error.name} is missing)") from None
    return projects.load(project, servers)


def session(project: "Project", master: str, app_name: str = "") -> Any:
    """A Spark session with the settings of a project."""
    from headwater.pipeline.run.runner import SETTINGS, configure
    from headwater.spark import jvm
    from headwater.spark.session import session as spark_session

    given = {k: v for k, v in project.configuration.items() if k.startswith("spark.")}
    with _errors_to(project.state / "spark.log"):
        spark = spark_session(
            app_name or project.name, master, project.storage / "spark", conf={**SETTINGS, **given}
        )
    java = jvm.java_process(spark)
    threading.Thread(target=_end_with, args=(java,), name="java", daemon=True).start()
    jvm.silence(spark)
    configure(spark, project)
    if not os.environ.get("HEADWATER_DEBUG"):
        # The command prints one line for a failure; Spark would print a hundred.
        spark.sparkContext.setLogLevel("OFF")
    return spark


def _end_with(java: "Popen[bytes]") -> None:
    """End this process with Spark's Java process, which may be killed or run out of memory: calls
    to it would wait for long. Nothing is lost, because a run may be killed at any moment."""
    java.wait()
    streams.complain("Spark's Java process has ended; run the command again to continue")
    os._exit(1)


def broker_of(project: "Project") -> "FlightClient":
    """A client of the project's broker that tries only briefly, because a person waits."""
    from headwater.pipeline.project.settings import CONNECTION
    from headwater.spark.flight_client import FlightClient
    from headwater.spark.options import SinkOptions, parse

    # The command prints the failure itself, as an error.
    logging.getLogger("headwater.spark.flight_client").setLevel(logging.ERROR)
    given = {name: project.setting(name) for name in CONNECTION}
    options = {name: value for name, value in given.items() if value}
    return FlightClient.of(parse(SinkOptions, {**options, "fetch.numRetries": "2"}))


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Programs that are started meanwhile (Java, and the programs it starts) write their errors to
    this file, unless HEADWATER_DEBUG is set."""
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
    directory: Annotated[Path, typer.Argument(help="A new directory for the project.")],
) -> None:
    """Create a project with definitions and a sample contract."""
    from headwater.pipeline.project.init import make

    for file in make(directory):
        print(f"created {file}")
    print(f"\nNext:\n  cd {directory}\n  headwater pipeline run")


@app.command()
def run(
    once: Annotated[
        bool, typer.Option("--once", help="Read the log to its end, and stop.")
    ] = False,
    full_refresh: Annotated[
        bool,
        typer.Option(
            "--full-refresh",
            help="Drop the named tables, or all, and rebuild them from the log.",
        ),
    ] = False,
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Tables to refresh (default: all)."),
    ] = None,
    master: MasterOption = "local[*]",
    remote: RemoteOption = None,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Run the pipeline, and keep its tables current.

    It runs until Ctrl-C or SIGTERM. On a terminal it shows a bar per table; elsewhere it prints a
    line of JSON for each change. However it was stopped, the next run continues where it ended.
    """
    if tables and not full_refresh:
        raise HeadwaterError("naming tables needs --full-refresh")
    loaded = load(project, servers)
    if out().is_terminal:  # the view shows failures
        logging.getLogger("headwater.pipeline").setLevel(logging.CRITICAL)
    refresh = (tables or []) if full_refresh else None
    if remote is not None:
        well = _run_remotely(loaded, remote, once, refresh)
    else:
        well = _run_here(loaded, master, once, refresh)
    if not well:
        raise HeadwaterError("some tables are not current: `headwater pipeline status` says why")


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
    """The command prints one line for a failure, instead of PySpark's many."""
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
    """Load the definitions and show the graph of tables."""
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
        print("The pipeline is not running; these are its last figures.")


@app.command()
def compact(
    table: Annotated[str | None, typer.Argument(help="Table (default: all).")] = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
    project: ProjectOption = None,
) -> None:
    """Merge small files, and delete rows past their retention.

    Files that are no longer needed are removed. A running pipeline does all this by itself, and may
    run at the same time. Definitions set the retention of a table (headwater.retention).
    """
    loaded = load(project)
    from headwater.pipeline.care.upkeep import keep_all, tables_of
    from headwater.pipeline.tables.store import OURS

    if (kind := loaded.setting("format", OURS)) != OURS:
        raise HeadwaterError(f"headwater.format is {kind}: compact works with {OURS} only")
    found = [each for each in tables_of(loaded) if table in (None, each.name)]
    if not found:
        raise HeadwaterError(f"there is no table {table}" if table else "there are no tables yet")
    retentions, done = _retentions(loaded), []
    with progress_bar("compacting") as progress:
        for each in keep_all(found, retentions, dry=dry_run):
            done.append(each)
            progress(len(done), len(found))
    if as_json:
        print(json.dumps([asdict(each) for each in done]))
    else:
        for each in done:
            print(_upkeep_words(each, retentions.get(each.table), dry_run))
    if failed := [each.table for each in done if each.error]:
        raise HeadwaterError(f"these tables failed: {', '.join(failed)}")


def _retentions(project: "Project") -> dict[str, str]:
    """The retention of each table that has one. Spark loads the definitions if it is not noted
    yet."""
    from headwater.pipeline.care.retention import note, noted, retentions_of

    found = noted(project)
    if found is None:
        from headwater.pipeline.run.runner import open_project

        spark = session(project, "local[1]")
        try:
            graph, _, _ = open_project(spark, project)
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
    table: Annotated[str, typer.Argument(help="Table that lacks records.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="WHEN", help="First offset, or a time such as 2026-01-31T12:00."
        ),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="WHEN", help="Stop before this offset or time.")
    ] = None,
    master: MasterOption = "local[*]",
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Add the missing records of an offset range to a table.

    Records that the table has already are not repeated.
    """
    from headwater.pipeline.repair.backfill import backfill as fill

    loaded = load(project, servers)
    spark = session(loaded, master)
    try:
        filled = fill(loaded, spark, table, start, end)
    finally:
        spark.stop()
    print(f"{table}: {filled.rows} rows added from offsets {filled.start} to {filled.end - 1}")
