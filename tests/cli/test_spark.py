"""`headwater spark shell`, as a person sees it."""

import code
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headwater.cli import spark

NO_SPARK = "import sys; sys.modules['pyspark'] = None; "
MAIN = "from headwater.cli import main; main()"


def run(
    *arguments: str, typed: str = "", before: str = "", directory: Path
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"HEADWATER_SPARK_DIR": str(directory)}
    return subprocess.run(
        [sys.executable, "-c", before + MAIN, "spark", *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=directory,
        env=environment,
    )


@pytest.mark.spark_process
def test_the_shell_has_a_session_and_shows_an_example(tmp_path: Path) -> None:
    typed = "print('version', spark.version, spark.range(7).count())\nquit()\n"
    result = run(
        "shell", "--master", "local[2]", "--servers", "other:1234", typed=typed, directory=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert "version 4." in result.stdout
    assert '    .option("servers", "other:1234")\n' in result.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["spark"]


def test_the_example_is_python() -> None:
    """And can be pasted: a prompt ends a statement at an empty line."""
    example = spark.EXAMPLE.format(servers="localhost:8815")
    compile(example, "example", "exec")
    assert "\n\n" not in example


def test_without_pyspark_one_line_says_what_to_install(tmp_path: Path) -> None:
    result = run("shell", before=NO_SPARK, directory=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "headwater: error: PySpark is not installed; get it with pip install 'headwater[spark]'\n"
    )


class Terminal:
    def isatty(self) -> bool:
        return True


def test_ipython_is_used_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    module = ModuleType("IPython")
    module.start_ipython = lambda argv, user_ns: started.append(user_ns)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setattr(sys, "stdin", Terminal())
    names = {"spark": object()}
    spark._interact(names)
    assert started == [names]


def test_a_plain_prompt_does_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts: list[Any] = []
    monkeypatch.setitem(sys.modules, "IPython", None)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(code, "interact", lambda **given: prompts.append(given["local"]))
    spark._interact({"spark": 1})
    assert prompts == [{"spark": 1}]
