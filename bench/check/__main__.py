"""`make bench-check`, or `python -m bench.check`: fail if a hot path has become dearer."""

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.check import before
from bench.check.before import NOW, NoSuchCommitError, Tree
from bench.check.measuring import Effort
from bench.check.paths import PATHS
from headwater import compiled

LIMIT = 15.0
#: A path that seems dearer is measured so often again: what was in the way may be gone then.
REPEATS = 4
#: Runs in the process of a tree, with its own paths.
MEASURE = """
import sys
from bench.check.measuring import Effort, measure
from bench.check.paths import PATHS
name, rounds, part = sys.argv[1:]
if __name__ == "__main__":
    for path in PATHS:
        if path.name == name:
            print(measure(path, Effort(int(rounds), float(part))))
"""

#: What a path costs in a tree, or None where the tree has no such path.
Measure = Callable[[Tree, str], float | None]


@dataclass(slots=True)
class Cost:
    """Of one path: the least that was measured, before and now."""

    before: float | None
    now: float

    @property
    def change(self) -> float:
        """In percent."""
        return 0.0 if self.before is None else (self.now / self.before - 1) * 100


def measuring(effort: Effort) -> Measure:
    def measure(tree: Tree, name: str) -> float | None:
        said = tree.run("-c", MEASURE, name, str(effort.rounds), str(effort.part))
        return float(said) if said else None

    return measure


def compare(names: Iterable[str], earlier: Tree, measure: Measure, limit: float) -> dict[str, Cost]:
    """What each path costs; one that seems dearer is measured again, in both trees."""
    found: dict[str, Cost] = {}
    for name in names:
        for _ in range(1 + REPEATS):
            then, now = measure(earlier, name), measure(NOW, name)
            assert now is not None
            known = found.setdefault(name, Cost(then, now))
            known.now = min(known.now, now)
            if then is None or known.before is None:
                break
            known.before = min(known.before, then)
            if known.change <= limit:
                break
    return found


def table(found: dict[str, Cost], limit: float, commit: str) -> Table:
    made = Table("path", title=f"CPU µs per message, {compiled.state} modules")
    for heading in (commit, "now", "change"):
        made.add_column(heading, justify="right")
    for name, cost in found.items():
        known = ("", "") if cost.before is None else (f"{cost.before:.3g}", f"{cost.change:+.0f}%")
        style = "red" if cost.change > limit else None
        made.add_row(name, known[0], f"{cost.now:.3g}", known[1], style=style)
    return made


def parse(argv: list[str]) -> argparse.Namespace:
    names = [path.name for path in PATHS]
    parser = argparse.ArgumentParser(prog="bench.check", description=__doc__)
    add = parser.add_argument
    add("--against", metavar="COMMIT", default=before.reference(), help="default: %(default)s")
    add("--limit", type=float, default=LIMIT, help="what is too much, in percent (%(default)s)")
    add("--only", metavar="PATH", action="append", choices=names, help=", ".join(names))
    add("--rounds", type=int, default=Effort().rounds, help="of every measurement (%(default)s)")
    add("--part", type=float, default=1.0, help="of the messages of a round (%(default)s)")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = parse(argv)
    console = Console() if sys.stdout.isatty() else Console(width=100)
    try:
        earlier = before.tree(options.against, kept=before.KEPT)
    except NoSuchCommitError as error:
        console.print(f"nothing to compare with: {error}", markup=False)
        return 0
    names = options.only or [path.name for path in PATHS]
    effort = Effort(options.rounds, options.part)
    found = compare(names, earlier, measuring(effort), options.limit)
    console.print(table(found, options.limit, options.against))
    worse = [name for name, cost in found.items() if cost.change > options.limit]
    if worse:
        console.print(f"more than {options.limit:g} % dearer than before: {'; '.join(worse)}")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
