"""The inputs that are kept: a file for each target, an input on each line as Python writes bytes.

corpus/NAME.txt        few inputs that together take all branches that are known to be taken;
                       `python -m fuzz --keep` makes it anew
regressions/NAME.txt   inputs that have found a fault, each behind a comment that says which;
                       these stay
"""

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parent
#: Nobody reads longer ones, and what they find a shorter one finds as well.
MOST_KEPT_BYTES = 2048


def kept(target: str) -> list[bytes]:
    return _read(ROOT / "corpus" / f"{target}.txt")


def regressions(target: str) -> list[bytes]:
    return _read(ROOT / "regressions" / f"{target}.txt")


def keep(target: str, inputs: Iterable[bytes]) -> None:
    file = ROOT / "corpus" / f"{target}.txt"
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(f"{data!r}\n" for data in sorted(inputs, key=_order)))


def _order(data: bytes) -> tuple[int, bytes]:
    return len(data), data


def _read(file: Path) -> list[bytes]:
    if not file.exists():
        return []
    lines = (line for line in file.read_text().splitlines() if not line.startswith("#"))
    return [read_input(line) for line in lines if line]


def read_input(line: str) -> bytes:
    data = ast.literal_eval(line)
    if not isinstance(data, bytes):
        raise ValueError(f"not an input: {line[:60]}")
    return data


def enough(found: Mapping[bytes, frozenset[int]], known: frozenset[int]) -> list[bytes]:
    """Few inputs that take all branches of all of them besides those that are known anyway: the one
    that adds the most goes first, and of those that add the same the shortest."""
    left = dict(found)
    missing = frozenset[int]().union(*found.values()) - known
    chosen: list[bytes] = []
    while missing:
        best = max(left, key=lambda data: (len(left[data] & missing), -len(data), data))
        missing -= left.pop(best)
        chosen.append(best)
    return chosen
