"""The output of commands: tables, times, sizes and progress for a person; JSON for a program."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from headwater.cli.streams import err, out

if TYPE_CHECKING:
    from rich.table import Table

#: Called with the amount done and the total.
Progress = Callable[[int, int], None]

Item = TypeVar("Item")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def tell(as_json: bool, content: object, sentence: str) -> None:
    """Print a result: as JSON for a program, or as a sentence for a person."""
    if as_json:
        print_json(content)
    else:
        print(sentence)


def tell_list(
    as_json: bool, items: Sequence[Item], none: str, table: Callable[[Sequence[Item]], "Table"]
) -> None:
    """Print a list: as JSON for a program, or as a table; `none` is the sentence for no items."""
    if as_json:
        print_json(items)
    elif not items:
        print(none)
    else:
        out().print(table(items))


def print_json(content: object) -> None:
    print(json.dumps(content, indent=2, ensure_ascii=False))


def plain_table(*titles: str, left: int = 1) -> "Table":
    """A table that fits into 80 columns. The first columns are texts, the others numbers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, title in enumerate(titles):
        table.add_column(title, justify="left" if number < left else "right", overflow="fold")
    return table


def shown(text: str) -> str:
    """Text that cannot do anything to a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def time_of(microseconds: int) -> str:
    when = _EPOCH + timedelta(microseconds=microseconds)
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def age_of(microseconds: int) -> str:
    """How long ago something was, in a few characters."""
    age = max(0, int(time.time() - microseconds / 1e6))
    for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60)):
        if age >= 2 * seconds:
            return f"{age // seconds}{unit}"
    return f"{age}s"


def size_of(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


@contextmanager
def progress_bar(what: str) -> Iterator[Progress]:
    """A bar on standard error, if someone is looking."""
    if not err().is_terminal:
        yield silent
        return
    from rich import progress as rich

    columns = (
        rich.TextColumn(what),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, console=err(), transient=True) as bar:
        task = bar.add_task(what, total=None)
        shown = 0

        def progress(done: int, total: int) -> None:
            nonlocal shown
            if done == total or (done - shown) * 500 > total:  # each update costs some time
                shown = done
                bar.update(task, completed=done, total=total)

        yield progress


def silent(done: int, total: int) -> None:
    pass
