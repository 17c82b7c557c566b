"""`headwater queue`: queues and their dead letters.

The commands ask a running broker: only it knows the state of its queues.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.common import ConfigOption, DataOption, JsonOption, YesOption
from headwater.cli.configuration import data_directory
from headwater.cli.output import (
    age_of,
    plain_table,
    print_json,
    progress_bar,
    shown,
    size_of,
    tell,
    tell_list,
    time_of,
)
from headwater.cli.streams import out
from headwater.units import format_duration

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer(
    help="Show queues; redrive or delete their dead letters.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the queue, as in `headwater queue list`, with or without the protocol.",
    ),
]


@app.command("list")
def list_queues(
    data: DataOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """List the queues with their consumers and messages."""
    from headwater.control import call

    queues = call(data_directory(data, config), "queue.list")
    none = "There are no queues yet: the first consumer creates one, or the configuration."
    tell_list(as_json, queues, none, _table)


@app.command()
def show(
    name: NameArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one queue and up to 20 of its dead letters."""
    from headwater.control import call

    queue = call(data_directory(data, config), "queue.show", name=name)
    if as_json:
        print_json(queue)
        return
    for title, text in _about(queue):
        print(f"{title:14}{text}")
    if queue["dead_letters"]:
        print()
        _print_dead_letters(queue)


@app.command()
def redrive(
    name: NameArgument,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", min=1, help="Redrive only the oldest N."),
    ] = None,
    yes: YesOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish the dead letters of a queue to their topics again."""
    from headwater.control import call

    directory = data_directory(data, config)
    if _should_ask(yes):
        dead = call(directory, "queue.show", name=name)["dead"]
        number = dead if limit is None else min(dead, limit)
        _ask(f"Redrive {_letters(number)} of {shown(name)}?")
    with progress_bar("redriving") as progress:
        result = call(directory, "queue.redrive", progress, name=name, limit=limit)
    tell(as_json, result, f"{_letters(result['redriven'])} redriven")


@app.command()
def purge(
    name: NameArgument,
    yes: YesOption = False,
    data: DataOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete all dead letters of a queue. Messages that wait in the queue stay."""
    from headwater.control import call

    directory = data_directory(data, config)
    if _should_ask(yes):
        dead = call(directory, "queue.show", name=name)["dead"]
        _ask(f"Delete {_letters(dead)} of {shown(name)}?")
    result = call(directory, "queue.purge", name=name)
    tell(as_json, result, f"{_letters(result['purged'])} deleted")


def _should_ask(yes: bool) -> bool:
    """Only a person on a terminal is asked: a script cannot answer."""
    return not yes and sys.stdin.isatty()


def _ask(question: str) -> None:
    typer.confirm(question, abort=True, err=True)


def _letters(number: int) -> str:
    return "1 dead letter" if number == 1 else f"{number} dead letters"


# Tables


def _table(queues: Sequence[dict[str, Any]]) -> "Table":
    from rich.text import Text

    titles = ("queue", "consumers", "waiting", "in flight", "returned", "dead", "oldest")
    table = plain_table(*titles)
    for each in queues:
        numbers = (each["in_flight"], each["returned"], each["dead"])
        oldest = "" if each["oldest"] is None else age_of(each["oldest"])
        # As Text, because rich takes brackets in a plain string for its markup.
        name = Text(shown(each["name"]))
        table.add_row(name, str(each["consumers"]), _waiting(each), *map(str, numbers), oldest)
    return table


def _waiting(queue: dict[str, Any]) -> str:
    return f"{queue['waiting']}{'+' if queue['waiting_is_partial'] else ''}"


def _about(queue: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "queue", shown(queue["name"])
    yield "protocol", queue["protocol"]
    yield "bindings", shown(", ".join(queue["bindings"])) or "none"
    for each in queue["unmatched_bindings"]:
        yield "note", shown(each["note"])
    yield "consumers", str(queue["consumers"])
    yield "waiting", _waiting(queue)
    yield "in flight", str(queue["in_flight"])
    yield "returned", str(queue["returned"])
    yield "dead", str(queue["dead"])
    yield "position", str(queue["position"])
    yield "oldest", "none" if queue["oldest"] is None else time_of(queue["oldest"])
    yield "prefetch", _prefetch(queue["prefetch"])
    yield "ack seconds", _limit(queue["ack_seconds"])
    yield "deliveries", _limit(queue["max_deliveries"])
    yield "backlog", _backlog(queue["backlog_seconds"])
    yield "dropped", str(queue["dropped"])
    yield "dead letters", shown(queue["dead_topic"]) or "none"


def _limit(value: float | None) -> str:
    return "no limit" if value is None else f"at most {value:g}"


def _backlog(seconds: float | None) -> str:
    return "no limit" if seconds is None else f"at most {format_duration(seconds)} unconsumed"


def _prefetch(value: int | None) -> str:
    return "no limit" if value is None else f"{value}, unless a consumer asks for another"


def _print_dead_letters(queue: dict[str, Any]) -> None:
    from rich.text import Text

    table = plain_table("topic", "reason", "offset", "time", "deliveries", "size", left=2)
    for each in queue["dead_letters"]:
        texts = (Text(shown(each["topic"])), Text(shown(each["reason"])))
        when, size = f"{time_of(each['timestamp'])[:19]}Z", size_of(each["size"])
        table.add_row(*texts, str(each["offset"]), when, str(each["deliveries"]), size)
    out().print(table)
    more = queue["dead"] - len(queue["dead_letters"])
    if more > 0:
        print(f"and {more} more")
