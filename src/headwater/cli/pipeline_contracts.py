"""`headwater pipeline contracts` and `headwater pipeline redrive`."""

import json
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.common import (
    DryRunOption,
    JsonOption,
    ProjectOption,
    ServersOption,
    YesOption,
)
from headwater.cli.output import progress_bar
from headwater.cli.pipeline import broker_of, load
from headwater.errors import HeadwaterError
from headwater.units import did_you_mean

if TYPE_CHECKING:
    from headwater.pipeline.project.project import Project
    from headwater.pipeline.repair.redrive import QuarantineSelection, RedriveOutcome

app = typer.Typer(
    help="Contracts: the fields that records of a topic must have.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class RedriveTarget(StrEnum):
    TABLES = "tables"
    TOPIC = "topic"


@app.callback()
def _group() -> None:
    """Keeps `infer` a command of its own while it is the only one."""


@app.command()
def infer(
    topic: Annotated[str, typer.Argument(help="Topic to sample.")],
    sample: Annotated[
        int, typer.Option(min=1, max=1_000_000, metavar="N", help="Sample the newest N messages.")
    ] = 1000,
    write: Annotated[
        bool, typer.Option("--write", help="Write the draft to the project's contracts.")
    ] = False,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Draft a contract from the newest messages of a topic, and print it."""
    loaded = load(project, servers)
    from headwater.pipeline.contracts import inference

    with progress_bar("sampling") as progress:
        found = inference.sample(broker_of(loaded), topic, sample, progress)
    draft = inference.draft(found)
    if not write:
        print(draft, end="")
        return
    print(f"wrote {_write(loaded, draft)}; review it before you use it")


def _write(project: "Project", draft: str) -> Path:
    from headwater.pipeline.contracts.reading import parse

    directory = Path(project.setting("contracts"))
    name = parse(draft, Path("draft.yml")).name
    file = directory / f"{name}.yml"
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x") as written:
            written.write(draft)
    except FileExistsError:
        raise HeadwaterError(f"{file} exists already; remove it first") from None
    return file


def redrive(
    contract: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only records of this contract.")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(metavar="RULE", help="Only records that broke this rule.")
    ] = None,
    to: Annotated[
        RedriveTarget,
        typer.Option(help="tables: records that fit now become rows; topic: publish them again."),
    ] = RedriveTarget.TABLES,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Redrive quarantined records, into tables or to their topics.

    Records that fit now become rows and leave quarantine; the others stay, with their new reason.
    The command can be stopped and run again at any time, also beside a running pipeline.
    """
    loaded = load(project, servers)
    from headwater.pipeline.repair.redrive import QuarantineSelection, RedriveOutcome

    selected = QuarantineSelection(contract, rule)
    count = _count(loaded, selected)
    if not count or (dry_run and to is RedriveTarget.TOPIC):
        _tell(RedriveOutcome(count), as_json)
        return
    if to is RedriveTarget.TOPIC:
        broker_of(loaded).log()  # fails before anyone is asked
    if not (dry_run or yes) and sys.stdin.isatty():  # a script cannot answer
        typer.confirm(f"Redrive {count} records to {_words(to)}?", abort=True, err=True)
    _tell(_redriven(loaded, selected, to, dry_run), as_json)


def _count(project: "Project", selected: "QuarantineSelection") -> int:
    """How many quarantined records are selected; an unknown name is an error."""
    from headwater.pipeline.contracts import load as load_contracts
    from headwater.pipeline.contracts.model import RULES
    from headwater.pipeline.contracts.source import QUARANTINE
    from headwater.pipeline.tables.stored import StoredTable

    if selected.rule is not None and selected.rule not in RULES:
        raise HeadwaterError(
            f'there is no rule "{selected.rule}"{did_you_mean(selected.rule, RULES)}'
        )
    quarantine = StoredTable(project.tables / QUARANTINE)
    found = quarantine.dataset() if quarantine.exists else None
    # Records of a contract that is gone are in quarantine still.
    names = [each.name for each in load_contracts(project.setting("contracts"))]
    gone = selected.contract not in (None, *names)
    if gone and not _rows(found, contract=selected.contract):
        near = did_you_mean(str(selected.contract), names)
        raise HeadwaterError(f'there is no contract "{selected.contract}"{near}')
    return _rows(found, contract=selected.contract, rule=selected.rule)


def _rows(quarantine: Any, **wanted: str | None) -> int:
    """How many rows have these values; None stands for any."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from headwater.pipeline.repair.conditions import column_of

    if quarantine is None:
        return 0
    condition = pc.scalar(True)
    for name, value in wanted.items():
        if value is not None:
            condition = condition & (column_of(name, pa.string()) == value)
    count: int = quarantine.count_rows(filter=condition)
    return count


def _redriven(
    project: "Project", selected: "QuarantineSelection", to: RedriveTarget, dry_run: bool
) -> "RedriveOutcome":
    from headwater.pipeline.contracts import load as load_contracts
    from headwater.pipeline.repair.redrive import QuarantineRedrive

    work = QuarantineRedrive(project.storage, load_contracts(project.setting("contracts")))
    if dry_run:
        return work.look(selected)
    with progress_bar("redriving") as progress:
        if to is RedriveTarget.TOPIC:
            return work.to_topic(selected, broker_of(project), progress)
        return work.to_tables(selected, progress)


def _words(to: RedriveTarget) -> str:
    return "their topics" if to is RedriveTarget.TOPIC else "the tables"


def _tell(outcome: "RedriveOutcome", as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(outcome)))
        return
    print(f"{outcome.records} records" if outcome.records else "no such records are in quarantine")
    for name, rows in sorted(outcome.silver.items()):
        print(f"  {rows} to silver_{name}")
    for words, rows in (("late", outcome.late), ("repeated, left out", outcome.repeated)):
        if rows:
            print(f"  {rows} {words}")
    if outcome.published:
        print(f"  {outcome.published} published")
    for name, rows in sorted(outcome.stayed.items()):
        print(f"  {rows} stay in quarantine: {name}")
