"""The tree of an earlier commit, set up to be measured beside this one.

    .venv/before/<commit>/           the tree itself
    .venv/before/<commit>/.venv/     an environment of its own, with the packages of this one

It has an environment so that its modules are compiled apart from those of this tree
(`headwater.compiled`). Making it takes a minute, so it is kept until another commit is asked for.
"""

import io
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path

from headwater import compiled

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "bench" / "reference.txt"
KEPT = Path(sys.prefix) / "before"


class NoSuchCommitError(Exception):
    """There is no such commit in this clone."""


class TreeError(Exception):
    """What a tree was to do failed; the end of what it said."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree whose code can be run: this one, or one of an earlier commit."""

    root: Path
    python: Path

    def run(self, *arguments: str) -> str:
        """What a run of Python prints, with the code of this tree."""
        path = f"{self.root / 'src'}{os.pathsep}{self.root}"
        plain = {} if compiled.state == "compiled" else {compiled.VARIABLE: "1"}
        ended = subprocess.run(
            [self.python, *arguments],
            cwd=self.root,
            env={**os.environ, **plain, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise TreeError("\n".join((ended.stdout + ended.stderr).splitlines()[-20:]))
        return ended.stdout


NOW = Tree(ROOT, Path(sys.executable))


def reference(file: Path = REFERENCE) -> str:
    """The commit to compare with, if nobody names another."""
    (line,) = (line for line in file.read_text().splitlines() if not line.startswith("#"))
    return line.strip()


def commit(name: str, root: Path = ROOT) -> str:
    """The full name of a commit of this repository."""
    asked = ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    try:
        ended = subprocess.run(asked, cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoSuchCommitError("there is no git on this machine") from None
    if ended.returncode:
        raise NoSuchCommitError(f"there is no commit {name} in this clone")
    return ended.stdout.strip()


def tree(name: str, *, kept: Path, root: Path = ROOT) -> Tree:
    """Its modules are compiled if those of this tree are."""
    full = commit(name, root)
    made = _tree(kept / full)
    if not made.python.exists():
        # What is there is of another commit, or was not finished.
        shutil.rmtree(kept, ignore_errors=True)
        fresh = kept / "unfinished"
        _unpack(full, root, fresh)
        _surround(fresh)
        fresh.rename(made.root)
    if compiled.state == "compiled":
        made.run("-m", "headwater.compiling")
    return made


def _tree(root: Path) -> Tree:
    return Tree(root, root / ".venv" / "bin" / "python")


def _unpack(full: str, root: Path, into: Path) -> None:
    into.mkdir(parents=True)
    packed = subprocess.run(
        ["git", "archive", full, "src", "bench"], cwd=root, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(into, filter="data")


def _surround(root: Path) -> None:
    """The packages come by a path. Headwater itself does not: it is installed as a path, too, and
    a path that comes by a path is not followed."""
    venv.create(root / ".venv", symlinks=True, with_pip=False)
    place = sysconfig.get_path("purelib", vars={"base": str(root / ".venv")})
    (Path(place) / "packages.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
