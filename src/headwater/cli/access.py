"""`headwater access`: what users, apps, roles and anonymous clients may do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.actions import ACTIONS
from headwater.cli import keeping
from headwater.cli.common import ConfigOption, DataOption, JsonOption
from headwater.cli.configuration import data_directory
from headwater.cli.output import plain_table, tell, tell_list

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    help="Manage rules: who may publish, subscribe, read history and consume queues.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_NAMES = ", ".join(ACTIONS)

WhoArgument = Annotated[
    str,
    typer.Argument(
        metavar="WHO",
        help="A user or an app by name, 'user:NAME', 'app:NAME', 'role:NAME' or 'anonymous'.",
    ),
]
MayArgument = Annotated[
    str, typer.Argument(metavar="ACTIONS", help=f"One or more of {_NAMES}, separated by commas.")
]
TopicsArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPICS",
        help="A topic or a pattern: '+' is one level, a last '*' one or more, '{user}' the name of "
        "the user or app.",
    ),
]


@app.command("list")
def list_rules(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the rules. What no rule allows is refused."""
    rules = keeping.do(data_directory(data, config), "access.list")
    tell_list(as_json, rules, "There are no rules.", _table)


@app.command()
def allow(
    who: WhoArgument,
    actions: MayArgument,
    topics: TopicsArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a rule. It holds at once, for clients that are connected, too."""
    may = _split(actions)
    keeping.do(data_directory(data, config), "access.allow", who=who, may=may, topics=topics)
    said = {"who": who, "may": may, "topics": topics}
    tell(as_json, said, f"{who} may {', '.join(may)} {topics}")


@app.command()
def revoke(
    who: WhoArgument,
    actions: MayArgument,
    topics: TopicsArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back what a rule allows. Other rules may still allow it: see 'explain'."""
    may = _split(actions)
    keeping.do(data_directory(data, config), "access.revoke", who=who, may=may, topics=topics)
    said = {"who": who, "revoked": may, "topics": topics}
    tell(as_json, said, f"no rule allows {who} any more to {', '.join(may)} {topics}")


@app.command()
def explain(
    who: WhoArgument,
    action: Annotated[str, typer.Argument(metavar="ACTION", help=f"One of {_NAMES}.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A topic.")],
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether someone may do something, and why. Exits with 1 if not."""
    directory = data_directory(data, config)
    found = keeping.do(directory, "access.explain", who=who, action=action, topic=topic)
    tell(as_json, found, found["why"])
    if not found["allowed"]:
        raise typer.Exit(1)


def _split(actions: str) -> list[str]:
    return [each.strip() for each in actions.split(",")]


def _table(rules: Sequence[dict[str, Any]]) -> "Table":
    table = plain_table("who", "may", "topics", left=3)
    for each in rules:
        table.add_row(each["who"], ", ".join(each["may"]), each["topics"])
    return table
