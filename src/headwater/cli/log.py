"""`headwater log`: read the log on disk, verify and repair it.

All commands except `repair` only read, and may be used while a broker runs.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from enum import Enum
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import keeping
from headwater.cli.common import (
    ConfigOption,
    DataOption,
    FromOffsetOption,
    ToOffsetOption,
    YesOption,
)
from headwater.cli.configuration import data_directory
from headwater.cli.log_output import (
    READ_BYTES,
    print_batch,
    print_reports,
    print_segments,
    print_summary,
    print_topics,
    write_json,
    write_parquet,
)
from headwater.cli.output import progress_bar, silent
from headwater.errors import HeadwaterError

# The log brings Arrow with it, which takes long to import: only the commands that run need it.
if TYPE_CHECKING:
    from headwater.log.embedded.verify import SegmentReport
    from headwater.log.embedded.view import Progress, View
    from headwater.message import Batch

app = typer.Typer(
    help="Read the log on disk, verify and repair it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_FOLLOW_SECONDS = 0.2

TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="FILTER",
        help="Only topics that match: '+' is one level, '*' at the end one or more levels.",
    ),
]


class Format(Enum):
    JSONL = "jsonl"
    PARQUET = "parquet"


@app.command()
def stat(
    data: DataOption = None,
    config: ConfigOption = None,
    topics: Annotated[
        int, typer.Option("--topics", metavar="N", min=0, help="List the N largest topics.")
    ] = 10,
) -> None:
    """Show the log's offsets, times, segments and largest topics."""
    view = _view(data, config)
    print_summary(view)
    print()
    print_segments(view)
    if topics:
        print()
        print_topics(view, topics)


@app.command()
def tail(
    data: DataOption = None,
    config: ConfigOption = None,
    number: Annotated[
        int, typer.Option("--number", "-n", metavar="N", min=0, help="Show the last N messages.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep running, and show new messages.")
    ] = False,
    topic: TopicOption = None,
) -> None:
    """Show the last messages with offset, time, topic and payload."""
    view, wanted = _view(data, config), _wanted(topic)
    end = view.end
    for batch in _last(view, wanted, number):
        print_batch(batch)
    while follow:
        sys.stdout.flush()
        sleep(_FOLLOW_SECONDS)
        view.refresh()
        begin, end = end, view.end
        for batch in _batches(view, begin, end, wanted, silent):
            print_batch(batch)


@app.command()
def dump(
    data: DataOption = None,
    config: ConfigOption = None,
    form: Annotated[
        Format,
        typer.Option("--format", help="jsonl: one JSON object per line; parquet: a Parquet file."),
    ] = Format.JSONL,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Output file (jsonl: default stdout).",
        ),
    ] = None,
    first: FromOffsetOption = None,
    end: ToOffsetOption = None,
    topic: TopicOption = None,
) -> None:
    """Write messages to a file, one row per message."""
    view, wanted = _view(data, config), _wanted(topic)
    begin = max(first or 0, view.start)
    last = view.end if end is None else min(end, view.end)
    keeping.note_export(data_directory(data, config), begin, last, topic or "")
    if form is Format.PARQUET:
        if output is None:
            raise HeadwaterError("Parquet needs a file: name it with --output")
        write_parquet(view, output, begin, last, wanted)
        return
    target = nullcontext(sys.stdout) if output is None else output.open("w", encoding="utf-8")
    with target as file, progress_bar("dumping") as progress:
        write_json(file, _batches(view, begin, last, wanted, progress))


@app.command()
def verify(data: DataOption = None, config: ConfigOption = None) -> None:
    """Verify every byte of the log. The exit code is 1 if anything is damaged."""
    directory = _directory(data, config)
    damaged = print_reports(_verify(directory))
    if damaged:
        print("'headwater log repair' keeps every message that can still be read.")
        raise typer.Exit(1)


@app.command()
def repair(
    data: DataOption = None,
    config: ConfigOption = None,
    yes: YesOption = False,
) -> None:
    """Repair a damaged log. Every message that can be read is kept, with its offset.

    The broker must be stopped. Messages that cannot be read are lost. The damaged files are kept
    beside the repaired ones.
    """
    from headwater.log.embedded.lock import Lock
    from headwater.log.embedded.repair import repair as repair_log
    from headwater.log.embedded.verify import identify

    directory = _directory(data, config)
    identify(directory)
    Lock(directory).release()  # to fail before the long check, not after it
    if not print_reports(_verify(directory)):
        return
    if not yes:
        typer.confirm("Rewrite the damaged segments without the lost messages?", abort=True)
    with progress_bar("repairing") as progress:
        repaired = list(repair_log(directory, progress))
    for each in repaired:
        lost = sum(end - first for first, end in each.lost)
        where = "the file was missing" if each.damaged is None else f"damaged file: {each.damaged}"
        print(f"{each.name}: {each.kept} messages kept, {lost} lost; {where}")
        if each.dropped:
            print(f"{each.name}: {each.dropped} unreadable bytes at the end were cut off")


# Where things are


def _directory(data: Path | None, config: Path | None) -> Path:
    return data_directory(data, config) / "log"


def _verify(directory: Path) -> "list[SegmentReport]":
    from headwater.log.embedded.verify import verify

    with progress_bar("checking") as progress:
        return list(verify(directory, progress))


def _view(data: Path | None, config: Path | None) -> "View":
    from headwater.log.embedded.view import View

    return View.open(_directory(data, config))


def _wanted(topic: str | None) -> Callable[[str], bool]:
    from headwater.filters import LevelFilter

    return (lambda topic: True) if topic is None else LevelFilter.parse(topic).matches


# Reading


def _batches(
    view: "View", at: int, end: int, wanted: Callable[[str], bool], progress: "Progress"
) -> Iterator["Batch"]:
    first = at
    while at < end:
        batches, at = view.read(at, wanted, READ_BYTES, end)
        yield from batches
        progress(at - first, end - first)


def _last(view: "View", wanted: Callable[[str], bool], number: int) -> list["Batch"]:
    """Batches with the last `number` wanted messages, found by looking further and further back."""
    if not number:
        return []
    end, reach = view.end, number
    while True:
        begin = max(view.start, end - reach)
        batches = list(_batches(view, begin, end, wanted, silent))
        surplus = sum(len(batch.run) for batch in batches) - number
        if surplus >= 0 or begin == view.start:
            return _without_first(batches, surplus)
        reach *= 4


def _without_first(batches: list["Batch"], surplus: int) -> list["Batch"]:
    while surplus > 0 and surplus >= len(batches[0].run):
        surplus -= len(batches.pop(0).run)
    if surplus > 0:
        batches[0] = batches[0].since(batches[0].offset + surplus)
    return batches
