"""`headwater pipeline contracts` and `redrive`: drafts of contracts, and second tries."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.common import JsonOption
from headwater.cli.output import progress_bar
from headwater.cli.pipeline import (
    MasterOption,
    ProjectOption,
    ServersOption,
    broker_of,
    load,
    session,
)
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.pipeline.project import Project
    from headwater.pipeline.redrive import Outcome

app = typer.Typer(
    help="What records of a topic have to look like.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class Target(StrEnum):
    TABLES = "tables"
    TOPIC = "topic"


@app.callback()
def _group() -> None:
    """Keeps `infer` a command of its own while it is the only one."""


@app.command()
def infer(
    topic: Annotated[str, typer.Argument(help="The topic to look at.")],
    sample: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="How many of its newest messages.")
    ] = 1000,
    write: Annotated[
        bool, typer.Option("--write", help="Write it to the project's contracts.")
    ] = False,
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Draft a contract from what is in a topic.

    It is printed, or written to the project's directory of contracts with --write.
    """
    loaded = load(project, servers)
    from headwater.pipeline.contracts import inference

    with progress_bar("looking") as progress:
        found = inference.sample(broker_of(loaded), topic, sample, progress)
    draft = inference.draft(found)
    if not write:
        print(draft, end="")
        return
    print(f"wrote {_write(loaded, draft)}; read it before you use it")


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
        raise HeadwaterError(f"{file} is there already; remove it first") from None
    return file


def redrive(
    contract: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only records of this contract.")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(metavar="RULE", help="Only records that broke this rule.")
    ] = None,
    to: Annotated[
        Target, typer.Option(help="Into the tables if they fit now, or back to their topic.")
    ] = Target.TABLES,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and do nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
    master: MasterOption = "local[*]",
    servers: ServersOption = None,
    project: ProjectOption = None,
) -> None:
    """Put quarantined records through their contract again, or publish them again.

    Those that fit now become rows and leave quarantine; the others stay, with the reason that holds
    now. It can be stopped and run again at any time, and a pipeline may run meanwhile.
    """
    loaded = load(project, servers)
    from headwater.pipeline.contracts import load as load_contracts
    from headwater.pipeline.redrive import Redrive, Selected

    contracts = load_contracts(loaded.setting("contracts"))
    spark = session(loaded, master, "headwater redrive")
    try:
        work, selected = Redrive(spark, loaded.storage, contracts), Selected(contract, rule)
        count = work.count(selected)
        if dry_run:
            _tell(work.look(selected) if count and to is Target.TABLES else None, count, as_json)
            return
        if count and not yes:
            typer.confirm(f"Redrive {count} records to {_words(to)}?", abort=True, err=True)
        outcome: Outcome | None = None
        with progress_bar("redriving") as progress:
            if to is Target.TOPIC:
                outcome = work.to_topic(selected, broker_of(loaded), progress)
            elif count:
                outcome = work.to_tables(selected, progress)
        _tell(outcome, count, as_json)
    finally:
        spark.stop()


def _words(to: Target) -> str:
    return "their topics" if to is Target.TOPIC else "the tables"


def _tell(outcome: "Outcome | None", count: int, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(outcome) if outcome else {"records": count}))
        return
    if outcome is None:
        print(f"{count} records are in quarantine" if count else "nothing is in quarantine")
        return
    print(f"{outcome.records} records")
    for name, rows in sorted(outcome.silver.items()):
        print(f"  {rows} to silver_{name}")
    for words, rows in (("late", outcome.late), ("repeated, left out", outcome.repeated)):
        if rows:
            print(f"  {rows} {words}")
    if outcome.published:
        print(f"  {outcome.published} published")
    for name, rows in sorted(outcome.stayed.items()):
        print(f"  {rows} stay in quarantine: {name}")
