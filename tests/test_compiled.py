"""Compiled modules are used when they are of these sources, and never else."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import compiled, compiling

LOOK = """
from headwater import compiled
from headwater.transport import turn
print(compiled.state)
print(turn.__file__.endswith(".py"))
"""


def look(source: Path, **environ: str) -> tuple[str, bool]:
    """What a program says that uses the package there: its state, and whether `turn` is plain."""
    environ = {**os.environ, "PYTHONPATH": str(source), **environ}
    ended = subprocess.run(
        [sys.executable, "-P", "-c", LOOK], capture_output=True, text=True, env=environ, check=True
    )
    state, plain = ended.stdout.splitlines()
    return state, plain == "True"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(
        compiled.SOURCE, tmp_path / "headwater", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


needs_compiled = pytest.mark.skipif(
    compiling.missing() is not None, reason="nothing can be compiled here"
)


@needs_compiled
def test_set_up_has_compiled(copy: Path) -> None:
    """Where a module was edited since, `make .venv/compiled` comes first."""
    assert look(copy) == ("compiled", False)


@needs_compiled
def test_an_edited_module_counts_at_once(copy: Path) -> None:
    with (copy / "headwater" / compiled.MODULES[0]).open("a") as file:
        file.write("\n# something else\n")
    assert look(copy) == ("plain Python; the compiled modules are of other sources", True)


def test_plain_python_if_you_want(copy: Path) -> None:
    state, plain = look(copy, **{compiled.VARIABLE: "1"})
    assert compiled.VARIABLE in state
    assert plain


def test_a_manifest_that_is_broken_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiled, "PLACE", tmp_path)
    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    for text in ("", "{", "{}", '{"digest": 1}'):
        (tmp_path / compiled.MANIFEST).write_text(text)
        state, files = compiled.look()
        assert state.startswith("plain Python")
        assert not files


def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled, "state", "plain Python")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert compiling.main() == 0
    assert "a C compiler (no-such-compiler) is missing" in capsys.readouterr().out


@pytest.mark.parametrize("module", compiled.MODULES)
def test_nothing_in_a_compiled_module_is_different(module: str) -> None:
    """A constant that is marked as final would be copied into other compiled modules, where a
    change of it does not count; those of a protocol's bytes never change. Weak references are not
    safe."""
    tree = ast.parse((compiled.SOURCE / module).read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert "weakref" not in names
    assert "Final" not in names or module.endswith("/wire.py")


def test_nobody_takes_weak_references() -> None:
    for file in compiled.SOURCE.rglob("*.py"):
        assert "import weakref" not in file.read_text(), file
