"""Tables for people, Markdown for the documentation, JSON for programs.

One table holds everything that was measured: a column that does not apply to a row stays empty,
and what only one scenario measures shares the last column.
"""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.contestants import versions
from bench.figures import Metric, Row
from bench.targets import Verdict

HEADINGS = (
    "scenario",
    "broker",
    Metric.RATE.value,
    "± %",
    Metric.DELIVERIES.value,
    Metric.CPU.value,
    Metric.PEAK.value,
    Metric.P50.value,
    Metric.P99.value,
    "other",
)
_OTHERS = (
    Metric.BYTES,
    Metric.CORE,
    Metric.RSS,
    Metric.PER_CONNECTION,
    Metric.GROWTH,
    Metric.READY,
    Metric.ROUTE,
    Metric.FIRST,
    Metric.AGAIN,
    Metric.BATCH_RATE,
    Metric.CAUGHT_UP,
    Metric.LAG,
    Metric.MOST_LAG,
)
_VERDICTS = {True: "pass", False: "MISS", None: "not measured"}


@dataclass(frozen=True, slots=True)
class Report:
    rows: tuple[Row, ...]
    verdicts: tuple[Verdict, ...]
    machine: dict[str, str]
    command: str
    quotable: bool  # measured long enough to be written down

    def to_json(self) -> str:
        rows = [
            {
                "scenario": row.scenario,
                "case": row.case,
                "broker": row.contestant,
                "rounds": [{m.name.lower(): v for m, v in s.items()} for s in row.samples],
                "failures": list(row.failures),
            }
            for row in self.rows
        ]
        verdicts = [
            {"target": v.target.text, "measured": v.measured, "passed": v.passed}
            for v in self.verdicts
        ]
        return json.dumps({"machine": self.machine, "rows": rows, "targets": verdicts}, indent=2)


def machine(work: Path) -> dict[str, str]:
    """Where this was measured; figures mean nothing without it."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{len(os.sched_getaffinity(0))} cores, {_processor()}",
        "memory": f"{pages * page / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(work),
        "python": platform.python_version(),
        **versions(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _file_system(work: Path) -> str:
    """The type of the mount that holds `work`: the one with the longest path above it."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    above = [m for m in mounts if work.resolve().is_relative_to(m[1])]
    return max(above, key=lambda m: len(m[1]))[2] if above else "unknown"


def cells(row: Row) -> list[str]:
    """One line of the table, without its headings."""
    spread = row.spread(Metric.RATE)
    return [
        f"{row.scenario}: {row.case}" if row.case else row.scenario,
        row.contestant,
        _number(row.median(Metric.RATE)),
        "" if spread is None else f"{spread * 50:.0f}",  # from the middle, so half the width
        _number(row.median(Metric.DELIVERIES)),
        *(_number(row.median(m)) for m in (Metric.CPU, Metric.PEAK, Metric.P50, Metric.P99)),
        _other(row),
    ]


def _other(row: Row) -> str:
    found = [(m, row.median(m)) for m in _OTHERS]
    words = [f"{_number(value)} {m.value}" for m, value in found if value is not None]
    words += [f"failed: {sentence}" for sentence in dict.fromkeys(row.failures)]
    return "; ".join(words)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdict_cells(verdict: Verdict) -> list[str]:
    target = verdict.target
    wanted = f"{'≥' if target.at_least else '≤'} {target.limit:g}{target.unit}"
    measured = "" if verdict.measured is None else f"{verdict.measured:.3g}{target.unit}"
    return [target.text, wanted, measured, _VERDICTS[verdict.passed]]


def show(report: Report, console: Console) -> None:
    table = Table(title="Measured (median of the rounds)")
    for i, heading in enumerate(HEADINGS):
        plain = i < 2 or heading == "other"
        table.add_column(heading, justify="left" if plain else "right", no_wrap=i < 2)
    previous = ""
    for row in report.rows:
        line = cells(row)
        if previous not in ("", line[0]):
            table.add_section()
        # The name of a case stands once, above the brokers that took part in it.
        table.add_row("" if line[0] == previous else line[0], *line[1:])
        previous = line[0]
    console.print(table)
    ratios = Table("target", "wanted", "measured", "verdict", title="Ratios of this run")
    for verdict in report.verdicts:
        style = "red" if verdict.passed is False else None
        ratios.add_row(*verdict_cells(verdict), style=style)
    console.print(ratios)


def to_markdown(report: Report) -> str:
    parts = [f"Measured with `{report.command}`."]
    if not report.quotable:
        parts.append("**A short run: it shows that things work, not how fast they are.**")
    parts.append(_markdown_table(("machine", ""), report.machine.items()))
    parts.append(_markdown_table(HEADINGS, (cells(row) for row in report.rows), numbers=2))
    ratios = (verdict_cells(verdict) for verdict in report.verdicts)
    parts.append(_markdown_table(("target", "wanted", "measured", "verdict"), ratios))
    return "\n\n".join(parts) + "\n"


def _markdown_table(
    headings: Sequence[str], lines: Iterable[Sequence[str]], numbers: int | None = None
) -> str:
    """`numbers`: from this column to the last but one, values stand on the right."""
    right = range(numbers, len(headings) - 1) if numbers is not None else range(0)
    rule = ["---:" if i in right else "---" for i in range(len(headings))]
    table = [headings, rule, *lines]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in table)


def save(report: Report, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.md"
    path.write_text(to_markdown(report))
    return path


def finish(report: Report, console: Console, directory: Path, json_file: Path | None) -> None:
    """Show a report, and keep it."""
    show(report, console)
    console.print(f"written to bench/results/{save(report, directory).name}")
    if json_file is not None:
        json_file.write_text(report.to_json())
