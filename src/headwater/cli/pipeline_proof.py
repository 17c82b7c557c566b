"""`headwater pipeline audit` and `replay`: what proves the tables, and what plays them again."""

import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.common import JsonOption, out
from headwater.cli.output import plain_table, progress_bar
from headwater.cli.pipeline import ProjectOption, ServersOption, broker_of, load
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.pipeline.audit.model import Outcome, Progress, Report

#: So many differences are shown of each comparison.
SHOWN = 20


def audit(
    first: Annotated[
        int | None, typer.Option("--from", metavar="OFFSET", help="Look from this offset on.")
    ] = None,
    end: Annotated[
        int | None, typer.Option("--to", metavar="OFFSET", help="Look at what is before this one.")
    ] = None,
    as_json: JsonOption = False,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Prove that the tables equal the log, or say where they do not.

    Compares counts and checksums of the log and of bronze, then bronze with silver, quarantine and
    late of each contract. Exits with 1 if anything differs. A pipeline may run meanwhile.
    """
    loaded = load(project, servers)
    from headwater.pipeline.audit import Audit
    from headwater.pipeline.contracts import load as load_contracts

    directory = Path(loaded.setting("contracts"))
    contracts = load_contracts(directory) if directory.is_dir() else ()
    prepared = Audit(broker_of(loaded), loaded.tables, contracts, first, end)
    with _counted("comparing", prepared.steps) as progress:
        report = prepared.run(progress)
    if as_json:
        print(json.dumps(as_dict(report)))
    else:
        _show(report)
    if not report.well:
        raise typer.Exit(1)


def as_dict(report: "Report") -> dict[str, Any]:
    content = asdict(report)
    for name in ("gaps", "duplicates", "others", "records", "well"):
        content[name] = getattr(report, name)
    return content


def _show(report: "Report") -> None:
    table = plain_table("compared", "records", "missing", "repeated", "other")
    for each in report.outcomes:
        others = each.count("changed", "strange")
        numbers = (each.records, each.count("missing"), each.count("repeated"), others)
        table.add_row(each.what, *map(str, numbers))
    out().print(table)
    for each in report.outcomes:
        _explain(each)
    rate = report.records / max(report.seconds, 1e-3)
    print(
        f"offsets {report.first} to {report.last}: {report.records} records in "
        f"{report.seconds:.1f} s ({rate:,.0f}/s)"
    )
    more = f", others {report.others}" if report.others else ""
    print(f"gaps {report.gaps}, duplicates {report.duplicates}{more}")


def _explain(outcome: "Outcome") -> None:
    for remark in outcome.remarks:
        print(f"{outcome.what}: {remark}")
    for each in outcome.differences[:SHOWN]:
        where = str(each.first) if each.first == each.last else f"{each.first} to {each.last}"
        print(f"{outcome.what}: {each.kind}: {where} ({each.count})")
    if len(outcome.differences) > SHOWN:
        print(f"{outcome.what}: and {len(outcome.differences) - SHOWN} more")


def replay(
    source: Annotated[
        str,
        typer.Option("--from", metavar="log|TABLE", help="What to publish: the log or a table."),
    ] = "log",
    topic: Annotated[
        str | None, typer.Option(metavar="PCRE", help="Only topics that match as a whole.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="From this offset (42), time (2030-01-01T10:00Z) or age (2h) on."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="WHEN", help="What is before this one.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help='Only rows for which this is so: "price > 20".'),
    ] = None,
    to: Annotated[
        str, typer.Option(metavar="TOPIC", help="Where to; {topic} stands for the topic it had.")
    ] = "replay/{topic}",
    pace: Annotated[
        str,
        typer.Option(metavar="PACE", help="original, max, 10x (ten times as fast) or 500/s."),
    ] = "max",
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What to call it, so that it can be resumed."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the replay of this name.")
    ] = False,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Publish a part of the log, or rows of a table, into topics again, exactly once.

    The end is fixed at the start. Killed at any moment, --resume goes on without losing or
    repeating a message. Rows of bronze, quarantine and late are the messages they were; rows of
    other tables are published as JSON.
    """
    loaded = load(project, servers)
    from headwater.pipeline.replay import Pace, Replay, Wish

    if resume and name is None:
        raise HeadwaterError("say which one to resume with --name NAME")
    parsed = Pace.parse(pace)
    made = Replay(name or f"replay-{secrets.token_hex(4)}", loaded.storage, broker_of(loaded))
    if not resume:
        made.begin(Wish(source, topic, since, until, where, to))
    try:
        with progress_bar("publishing") as progress:
            result = made.run(parsed, progress)
    except KeyboardInterrupt:
        again = f"headwater pipeline replay --name {made.name} --resume --pace {pace}"
        print(f"to go on: {again}")
        raise
    rate = result.rows / max(result.seconds, 1e-3)
    print(f"{result.name}: {result.rows} messages in {result.seconds:.1f} s ({rate:,.0f}/s)")


@contextmanager
def _counted(what: str, total: int) -> Iterator["Progress"]:
    """A bar that several threads move on."""
    lock, done = threading.Lock(), 0
    with progress_bar(what) as show:

        def progress(rows: int) -> None:
            nonlocal done
            with lock:
                done += rows
                show(min(done, total), total)

        yield progress
