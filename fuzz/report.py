"""The figures of a run: a table for the terminal, and the same in Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.table import Table

from fuzz.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Row:
    cells: tuple[str, ...]
    good: bool


HEADS = (
    *("target", "inputs", "a second", "corpus", "branches"),
    *("slowest input, ms", "memory, MiB", "growth", "findings"),
)


def row(outcome: Outcome) -> Row:
    grown = outcome.last_mib / outcome.first_mib - 1 if outcome.first_mib else 0.0
    cells = (
        outcome.target,
        f"{outcome.inputs:,}",
        f"{outcome.per_second:,.0f}",
        f"{outcome.corpus:,}",
        f"{outcome.taken:,}",
        f"{outcome.slowest_ms:.1f}",
        f"{outcome.first_mib:.0f} → {outcome.last_mib:.0f}",
        f"{grown * 100:+.1f} %",
        str(len(outcome.findings)),
    )
    return Row(cells, not outcome.findings)


def table(outcomes: Iterable[Outcome]) -> Table:
    made = Table(*HEADS)
    for each in map(row, outcomes):
        made.add_row(*each.cells, style="" if each.good else "red")
    return made


def markdown(outcomes: Sequence[Outcome]) -> str:
    rules = ("---", *("---:" for _ in HEADS[1:]))
    rows = (HEADS, rules, *(row(each).cells for each in outcomes))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
