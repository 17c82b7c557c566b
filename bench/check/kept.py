"""The figures of bench/baseline.toml: for plain Python and for compiled modules, by path."""

import tomllib
from pathlib import Path

from headwater import compiled

FILE = Path(__file__).parents[1] / "baseline.toml"

_HEAD = """\
# What a message costs on the hot paths, in microseconds of CPU time of a nominal machine: see
# bench/check. Written by `make bench-check ARGS=--update`; a change that makes a path dearer for a
# good reason renews its figures, and its commit says the reason.
"""


def state() -> str:
    """Which figures count: those of the modules that are in use."""
    return "compiled" if compiled.state == "compiled" else "plain"


def load(file: Path = FILE) -> dict[str, dict[str, float]]:
    if not file.exists():
        return {}
    return {name: dict(table) for name, table in tomllib.loads(file.read_text()).items()}


def save(figures: dict[str, float], file: Path = FILE) -> None:
    """Those of the modules that are in use; the others stay."""
    tables = {**load(file), state(): figures}
    parts = [_HEAD]
    for name, table in sorted(tables.items()):
        lines = [f'"{path}" = {figure:.3g}' for path, figure in table.items()]
        parts.append("\n".join([f"[{name}]", *lines, ""]))
    file.write_text("\n".join(parts))
