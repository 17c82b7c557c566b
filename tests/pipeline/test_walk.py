"""The page about the pipeline, played as it stands: a new user in an empty directory.

All blocks before the section on contracts are run, in their order:

    sh        a script
    console   commands after `$`, each followed by what it prints, or by nothing if that is not told
    python    a script, and the `text` behind it is what it prints

A line with nothing but `…` stands for lines that were left out. How long something took, and how
fast it was, differs each time; so does how far a table is behind: a query that had to begin again
(see `play`) has read what was published meanwhile. Everything else has to be as the page says.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.process import BrokerProcess
from tests.generated_docs import ROOT
from tests.pipeline.scripts import run_reading

PAGE = ROOT / "docs" / "pipeline.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: How long ago something was, how many seconds it took, and how many a second it did.
MEASURED = re.compile(r"\d+[smhd](?= ago)|\d[\d,.]*(?= s\b|/s\b)")
#: The bar, the rows and the lag of a table that is done; of bronze, which reads first, all is told.
LAG = re.compile(r"(?<!^bronze) done ━+ ([\d,]+) [\d,]+(?= [\d,]+ 0 ago$)")
LEFT_OUT = "…"


@dataclass(frozen=True, slots=True)
class Step:
    """What is typed, and the lines that it prints, if the page shows them."""

    program: str
    script: str
    shown: list[str] = field(default_factory=list)


def steps(text: str) -> Iterator[Step]:
    found: list[Step] = []
    for language, block in FENCE.findall(text):
        if language in ("sh", "python"):
            found.append(Step("bash" if language == "sh" else sys.executable, block))
        elif language == "text":
            found[-1].shown.extend(block.splitlines())
        elif language == "console":
            found += _typed(block)
        else:
            raise AssertionError(f"nobody knows how to play a block of {language}")
    yield from found


def _typed(block: str) -> Iterator[Step]:
    step: Step | None = None
    for line in block.splitlines():
        if line.startswith("$ "):
            if step is not None:
                yield step
            step = Step("bash", line[2:])
        else:
            assert step is not None, "a block of the console begins with a command"
            step.shown.append(line)
    if step is not None:
        yield step


def comparable(line: str) -> str:
    """A line without what differs each time, and without the blanks that this moves."""
    return LAG.sub(r" done \1", " ".join(MEASURED.sub("0", line).split()))


def is_as_shown(shown: list[str], printed: str) -> bool:
    parts = [
        r"(?:.*\n)*" if line == LEFT_OUT else re.escape(comparable(line)) + r"\n" for line in shown
    ]
    lines = [comparable(line) + "\n" for line in printed.rstrip().splitlines()]
    return re.fullmatch("".join(parts), "".join(lines)) is not None


class User:
    """Someone at a terminal, beside a broker on the usual ports, or so it seems to them."""

    def __init__(self, place: Path, broker: BrokerProcess) -> None:
        self._directory, self._place = place / "home", place
        self._directory.mkdir()
        self._bpsp = f"localhost:{broker.ports['bpsp']}"
        config = place / "user.toml"
        config.write_text(f'[listen]\nflight = "127.0.0.1:{broker.ports["flight"]}"\n')
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        known = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
        known.pop("COLUMNS", None)
        self._environment = known | {"HEADWATER_CONFIG": str(config), "PATH": path}

    def play(self, step: Step) -> str:
        """Returns what was printed. Where a command leads to (`cd`), the next one begins."""
        script = step.script.replace("bpsp://localhost/", f"bpsp://{self._bpsp}/")
        where = self._place / "where"
        if step.program == "bash":
            script = f"set -e\n{script}\npwd > {where}"
        command = [step.program, "-c", script]
        options: dict[str, Any] = {
            "cwd": self._directory,
            "env": self._environment,
            "timeout": 600,
        }
        done: subprocess.CompletedProcess[str]
        if step.program == "bash":  # only once: it may change something
            done = subprocess.run(command, capture_output=True, text=True, **options)
        else:
            done = run_reading(command, **options)
        # A query that Spark has no process for on a busy machine says so, and tries again.
        assert done.returncode == 0 and "Traceback" not in done.stderr, f"{script}: {done.stderr}"
        self._directory = Path(where.read_text().strip())
        return done.stdout


@pytest.mark.spark_process
@pytest.mark.timeout(1500)
def test_the_page_is_true(tmp_path: Path) -> None:
    text = PAGE.read_text().partition("\n## Contracts\n")[0]
    while time.time() % 60 > 40:  # traffic has a row for each minute, and the page one for all
        time.sleep(0.5)
    with BrokerProcess(tmp_path / "data") as broker:
        user = User(tmp_path, broker)
        wrong = []
        for step in steps(text):
            printed = user.play(step)
            if step.shown and not is_as_shown(step.shown, printed):
                wrong.append(f"{step.script}\nprints\n{printed}")
    assert not wrong, "\n".join(wrong)


def test_a_page_that_is_not_true_is_found_out() -> None:
    """Otherwise a mistake in this file would make the page true."""
    console = "```console\n$ a\nrows 9 in 0.1 s (5/s)\n…\nend\n$ cd b\n```\n"
    first, second, third = steps(f"{console}```python\nc\n```\n```text\nd\n```\n")
    assert (first.script, second.shown, third.shown) == ("a", [], ["d"])
    assert is_as_shown(first.shown, "rows  9 in 12.0 s (1,234/s)\nmore\nand more\nend\n")
    assert is_as_shown(first.shown, "rows 9 in 0.1 s (5/s)\nend\n")
    assert not is_as_shown(first.shown, "rows 8 in 0.1 s (5/s)\nend\n")
    assert not is_as_shown(first.shown, "rows 9 in 0.1 s (5/s)\nend\nmore\n")
    assert is_as_shown(["9 rows 2m ago"], "9 rows 59s ago\n")
    assert is_as_shown(["late done  ━━━ 5 1 0 4s ago"], "late done ━━━━ 5 0 0 59s ago\n")
    assert not is_as_shown(["late done  ━━━ 5 1 0 4s ago"], "late done ━━━━ 6 0 0 59s ago\n")
    assert not is_as_shown(["bronze done ━━━ 5 1 0 4s ago"], "bronze done ━━━━ 5 0 0 59s ago\n")
    assert not is_as_shown(["gaps 0"], "gaps 1\n")


def test_the_walk_begins_with_two_commands() -> None:
    """A new user has tables two commands after `make run`; `make pipeline` is these two."""
    start = PAGE.read_text().partition("## Start\n")[2].partition("\n## ")[0]
    typed = [step.script for step in steps(start) if step.script.startswith("headwater pipeline")]
    assert typed == ["headwater pipeline init myproject", "headwater pipeline run --once"]
    made = subprocess.run(
        ["make", "--dry-run", "pipeline"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"headwater pipeline init pipeline\n.*headwater pipeline run", made)
