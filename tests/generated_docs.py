"""The parts of the documentation that are made from the code.

    python -m tests.generated_docs      writes them anew

A part stands between `<!-- generated: name -->` and `<!-- end -->`; the rest is written by hand.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from headwater.cli.commands import app
from headwater.config import DECLARED, SETTINGS, Array, Pairs, Setting
from headwater.pipeline.contracts import model
from headwater.pipeline.contracts.model import Key
from headwater.pipeline.project import settings
from headwater.spark import options

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Part:
    file: Path
    name: str
    make: Callable[[], str]

    def renew(self, text: str) -> str:
        """The text of the file with this part made anew."""
        start, end = f"<!-- generated: {self.name} -->\n", "<!-- end -->"
        pattern = re.compile(f"({re.escape(start)}).*?({re.escape(end)})", re.DOTALL)
        content = f"{start}\n{self.make()}\n\n{end}"
        renewed, count = pattern.subn(lambda _: content, text)
        assert count == 1, f"{self.file} needs one part '{self.name}'"
        return renewed


def keys() -> str:
    head = "| Key | Value | Default | Environment variable | Meaning |"
    return "\n".join([head, "| --- " * 5 + "|", *map(_key_row, SETTINGS.values())])


def _key_row(setting: Setting) -> str:
    cells = (
        f"`{setting.key}`",
        setting.kind.words,
        f"`{_written(setting)}`",
        f"`{setting.variable}`",
        setting.meaning,
    )
    return f"| {' | '.join(cells)} |"


def _written(setting: Setting) -> str:
    return json.dumps(setting.kind.write(setting.default))


def entries() -> str:
    """What there can be many of: arrays of tables, and tables with free names."""
    return "\n\n".join(
        _array_section(each) if isinstance(each, Array) else _pairs_section(each)
        for each in DECLARED.values()
        if not isinstance(each, Setting)
    )


def _array_section(array: Array) -> str:
    head = "| Key | Value | Default | Meaning |\n| --- | --- | --- | --- |"
    rows = [
        f"| `{each.key}` | {each.kind.words} | {_default(each)} | {each.meaning} |"
        for each in array.settings.values()
    ]
    return "\n".join([f"### `[[{array.key}]]`\n\n{array.meaning}\n\n{head}", *rows])


def _default(setting: Setting) -> str:
    if setting.inherits is not None:
        return f"that of `{setting.inherits}`"
    return "(required)" if setting.is_required else f"`{_written(setting)}`"


def _pairs_section(pairs: Pairs) -> str:
    title = f"### `[{pairs.key}]`\n\n{pairs.meaning}"
    return f"{title} Each name is {pairs.name.words}, each value {pairs.value.words}."


def commands() -> str:
    return "\n\n".join(
        f"## `{' '.join(['headwater', *path])}`\n\n```text\n{help_of(path)}\n```"
        for path, _ in all_commands()
    )


def all_commands() -> Iterator[tuple[list[str], Any]]:
    """Every command with the words that lead to it, groups before what is in them."""

    def walk(path: list[str], command: Any) -> Iterator[tuple[list[str], Any]]:
        yield path, command
        for name, below in getattr(command, "commands", {}).items():
            if not below.hidden:
                yield from walk([*path, name], below)

    return walk([], get_command(app))


def help_of(path: list[str]) -> str:
    # The runner has a width of its own and no colours, whatever terminal this runs in.
    result = CliRunner().invoke(app, [*path, "--help"], prog_name="headwater")
    assert result.exit_code == 0, result.output
    return "\n".join(line.rstrip() for line in result.stdout.strip().splitlines())


def _keys_table(keys: Sequence[Key]) -> str:
    rows = [f"| `{each.name}` | {each.words} | {each.default} | {each.meaning} |" for each in keys]
    return "\n".join(["| Key | Value | Default | Meaning |", "| --- " * 4 + "|", *rows])


def rules() -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in model.RULES.items()]
    return "\n".join(["| Rule | It is broken if |", "| --- | --- |", *rows])


def project() -> str:
    rows = [f"| `headwater.{name}` | {meaning} |" for name, meaning in settings.KNOWN.items()]
    return "\n".join(["| Setting (`configuration:`) | Meaning |", "| --- | --- |", *rows])


PIPELINE = ROOT / "docs" / "pipeline.md"

PARTS = (
    Part(ROOT / "docs" / "configuration.md", "keys", keys),
    Part(ROOT / "docs" / "configuration.md", "entries", entries),
    Part(ROOT / "docs" / "cli.md", "commands", commands),
    Part(ROOT / "docs" / "spark.md", "options", options.table),
    Part(PIPELINE, "contract", partial(_keys_table, model.CONTRACT)),
    Part(PIPELINE, "field", partial(_keys_table, model.FIELD)),
    Part(PIPELINE, "rules", rules),
    Part(PIPELINE, "project", project),
)


def main() -> None:
    for part in PARTS:
        old = part.file.read_text()
        new = part.renew(old)
        part.file.write_text(new)
        state = "unchanged" if new == old else "written"
        print(f"{part.file.relative_to(ROOT)}: {part.name} {state}")


if __name__ == "__main__":
    main()
