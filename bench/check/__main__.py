"""`make bench-check`, or `python -m bench.check`: fail if a hot path has become dearer."""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path as File

from rich.console import Console
from rich.table import Table

from bench.check import kept
from bench.check.measuring import Effort, measure
from bench.check.paths import PATHS, Path

LIMIT = 1.15
#: A path that seems dearer is measured so often again: what was in the way may be gone then.
REPEATS = 3
UPDATES = 3

Measure = Callable[[Path], float]


def compare(
    paths: Iterable[Path], figures: Mapping[str, float], measured: Measure
) -> dict[str, float]:
    """What each path costs now; of those that seem dearer, the best of some more measurements."""
    found = {path.name: measured(path) for path in paths}
    for _ in range(REPEATS):
        for path in (path for path in paths if dearer(path.name, figures, found)):
            found[path.name] = min(found[path.name], measured(path))
    return found


def dearer(name: str, figures: Mapping[str, float], found: Mapping[str, float]) -> bool:
    return name in figures and found[name] > figures[name] * LIMIT


def table(figures: Mapping[str, float], found: Mapping[str, float]) -> Table:
    made = Table("path", title=f"CPU µs per message, nominal, {kept.state()} modules")
    for heading in ("kept", "measured", "change"):
        made.add_column(heading, justify="right")
    for name, figure in found.items():
        before = figures.get(name)
        known = ("", "") if before is None else (f"{before:.3g}", f"{figure / before - 1:+.0%}")
        style = "red" if dearer(name, figures, found) else None
        made.add_row(name, known[0], f"{figure:.3g}", known[1], style=style)
    return made


def update(paths: Iterable[Path], measured: Measure, file: File) -> dict[str, float]:
    """Keep what is measured now: the middle one of some measurements, neither lucky nor unlucky."""
    found = {path.name: statistics.median(measured(path) for _ in range(UPDATES)) for path in paths}
    kept.save(found, file)
    return found


def parse(argv: list[str]) -> argparse.Namespace:
    names = [path.name for path in PATHS]
    parser = argparse.ArgumentParser(prog="bench.check", description=__doc__)
    add = parser.add_argument
    add("--update", action="store_true", help="keep what is measured now")
    add("--only", metavar="PATH", action="append", choices=names, help=", ".join(names))
    add("--rounds", type=int, default=Effort().rounds, help="of every measurement (%(default)s)")
    add("--part", type=float, default=1.0, help="of the messages of a round (%(default)s)")
    add("--baseline", type=File, default=kept.FILE, metavar="FILE", help="bench/baseline.toml")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = parse(argv)
    console = Console() if sys.stdout.isatty() else Console(width=100)
    effort = Effort(options.rounds, options.part)
    paths = [path for path in PATHS if options.only is None or path.name in options.only]
    figures = kept.load(options.baseline).get(kept.state(), {})
    if options.update:
        found = update(paths, lambda path: measure(path, effort), options.baseline)
        console.print(table(figures, found))
        return 0
    if not figures:
        console.print(f"no figures are kept for {kept.state()} modules; --update keeps some")
        return 0
    found = compare(paths, figures, lambda path: measure(path, effort))
    console.print(table(figures, found))
    worse = [name for name in found if dearer(name, figures, found)]
    if worse:
        console.print(f"more than {LIMIT - 1:.0%} dearer than kept: {'; '.join(worse)}")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
