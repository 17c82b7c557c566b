"""The progress of a running pipeline: bars on a terminal, lines of JSON otherwise."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.pipeline.run.report import View

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

_COLOURS = {"running": "green", "waiting": "yellow", "done": "green", "failed": "red"}
_BAR = 16
#: Keys that change all the time, also when no rows are written.
_RESTLESS = ("updated", "rows_per_second")


@contextmanager
def show_progress(console: "Console") -> Iterator[View]:
    """A view of the state that suits where the output goes."""
    if not console.is_terminal:
        yield JsonLines()
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False, transient=False) as live:
        yield lambda state: live.update(picture(state), refresh=True)


class JsonLines:
    """Prints a state as one line of JSON when something has changed."""

    def __init__(self) -> None:
        self._last: Any = None

    def __call__(self, state: dict[str, Any]) -> None:
        tables = [{k: v for k, v in each.items() if k not in _RESTLESS} for each in state["tables"]]
        if (tables, state["log"]) != self._last:
            self._last = (tables, state["log"])
            print(json.dumps(state), flush=True)


def picture(state: dict[str, Any]) -> "Group":
    """The state for a person."""
    from rich.console import Group
    from rich.text import Text

    log = state["log"]
    seconds = (state["updated"] - state["started"]) / 1e6
    where = "no broker answers" if log is None else f"log {log['start']:,} to {log['end']:,}"
    title = Text(f"{state['name']}  {state['mode']}, {seconds:.0f} s, {where}", style="bold")
    notes = [
        Text(f"{each['name']}: {each[key]}", style="red" if key == "error" else "yellow")
        for each in state["tables"]
        for key in ("error", "gap")
        if each.get(key)
    ]
    return Group(title, table(state), *notes)


def table(state: dict[str, Any], now: float | None = None) -> "Table":
    """One line per table."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    lines = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("table", "state", "", "rows", "lag", "rows/s", "last batch"):
        left = name in ("table", "state", "")
        lines.add_column(name, justify="left" if left else "right", no_wrap=True)
    for each in state["tables"]:
        bar = ProgressBar(total=1.0, completed=done_part(each, state["log"]), width=_BAR)
        lines.add_row(
            each["name"],
            Text(each["state"], style=_COLOURS[each["state"]]),
            bar,
            f"{each['rows']:,}",
            "" if each["lag"] is None else f"{each['lag']:,}",
            f"{each['rows_per_second']:,.0f}",
            _ago(each["last_batch"], now or time.time()),
        )
    return lines


def done_part(table: dict[str, Any], log: dict[str, int] | None) -> float:
    """The part of the available records that was read, from 0 to 1."""
    if table["lag"] is None or log is None:
        return 1.0 if table["state"] == "done" else 0.0
    if table["offset"] is None:
        return table["rows"] / max(table["rows"] + table["lag"], 1) if table["lag"] else 1.0
    total = log["end"] - log["start"]
    return 1.0 if total <= 0 else min(1.0, max(0.0, 1 - table["lag"] / total))


def _ago(microseconds: int | None, now: float) -> str:
    if microseconds is None:
        return ""
    age = max(0.0, now - microseconds / 1e6)
    for unit, seconds in (("d", 86400), ("h", 3600), ("m", 60)):
        if age >= 2 * seconds:
            return f"{age / seconds:.0f}{unit} ago"
    return f"{age:.0f}s ago"
