"""`headwater pipeline audit`: compare the tables with the log."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from headwater.cli.common import (
    FromOffsetOption,
    JsonOption,
    ProjectOption,
    ServersOption,
    ToOffsetOption,
)
from headwater.cli.output import plain_table, progress_bar
from headwater.cli.pipeline import broker_of, load
from headwater.cli.streams import out

if TYPE_CHECKING:
    from headwater.pipeline.audit.model import AuditOutcome, AuditReport, Progress

#: Differences shown of each comparison.
SHOWN = 20


def audit(
    first: FromOffsetOption = None,
    end: ToOffsetOption = None,
    as_json: JsonOption = False,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Prove that the tables equal the log, or say where they do not.

    The audit compares counts and checksums of the log and of bronze, then bronze with the silver,
    quarantine and late records of each contract. The exit code is 1 if anything differs. A pipeline
    may run at the same time.
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


def as_dict(report: "AuditReport") -> dict[str, Any]:
    content = asdict(report)
    for name in ("gaps", "duplicates", "others", "records", "well"):
        content[name] = getattr(report, name)
    return content


def _show(report: "AuditReport") -> None:
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


def _explain(outcome: "AuditOutcome") -> None:
    for remark in outcome.remarks:
        print(f"{outcome.what}: {remark}")
    for each in outcome.differences[:SHOWN]:
        where = str(each.first) if each.first == each.last else f"{each.first} to {each.last}"
        print(f"{outcome.what}: {each.kind}: {where} ({each.count})")
    if len(outcome.differences) > SHOWN:
        print(f"{outcome.what}: and {len(outcome.differences) - SHOWN} more")


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
