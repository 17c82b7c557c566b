"""`make bench-check` in small: does it measure every path, and does it fail when one is dearer?"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.check import __main__ as check
from bench.check import before
from bench.check.before import NOW, Tree, TreeError
from bench.check.measuring import work
from bench.check.paths import PATHS
from headwater import compiled

pytestmark = pytest.mark.timeout(600)

NAMES = [path.name for path in PATHS]
EARLIER = Tree(Path("earlier"), Path("python"))


def measuring(then: Iterator[float | None], now: Iterator[float]) -> check.Measure:
    """What is measured of one path in both trees, one time after the other."""
    return lambda tree, name: next(now) if tree is NOW else next(then)


def compared(then: list[float | None], now: list[float]) -> tuple[check.Cost, int]:
    """And how often each was measured."""
    measure = measuring(iter(then), left := iter(now))
    (cost,) = check.compare(NAMES[:1], EARLIER, measure, 15).values()
    return cost, len(now) - len(list(left))


@pytest.mark.bench
def test_every_path_is_measured_in_this_tree_and_in_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(before, "KEPT", tmp_path / "before")
    monkeypatch.setattr(compiled, "state", "plain Python")  # compiling takes a minute
    monkeypatch.setattr(check, "REPEATS", 0)
    found: dict[str, check.Cost] = {}
    table = check.table

    def keep(costs: dict[str, check.Cost], limit: float, commit: str) -> object:
        found.update(costs)
        return table(costs, limit, commit)

    monkeypatch.setattr(check, "table", keep)
    small = ["--against", "HEAD", "--rounds", "1", "--part", "0.02"]
    # By much, because so short a measurement is far from the truth.
    assert check.main([*small, "--limit", "10000"]) == 0
    assert list(found) == NAMES
    assert all(cost.now > 0 and cost.before for cost in found.values())
    assert check.main([*small, "--only", NAMES[0], "--limit", "-99"]) == 1
    assert f"more than -99 % dearer than before: {NAMES[0]}" in capsys.readouterr().out


def test_a_path_that_stays_dearer_is_measured_again_and_is_a_failure() -> None:
    often = 1 + check.REPEATS
    cost, measured = compared([1.0] * often, [2.0] * often)
    assert (cost.change, measured) == (100, often)


def test_what_was_in_the_way_once_is_forgotten() -> None:
    cost, measured = compared([1.0, 1.0, 1.0], [2.0, 1.1, 1.0])
    assert (cost.now, measured) == (1.1, 2)


def test_an_earlier_tree_that_was_disturbed_forgives_nothing() -> None:
    cost, _ = compared([1.5, 1.0, 1.0, 1.0, 1.0], [2.0, 1.8, 1.8, 1.8, 1.8])
    assert cost == check.Cost(1.0, 1.8)


def test_a_path_that_the_earlier_tree_does_not_have_is_shown_and_no_failure() -> None:
    cost, measured = compared([None], [5.0])
    assert (cost.change, measured) == (0, 1)


def test_without_the_commit_there_is_nothing_to_compare_with(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check.main(["--against", "0" * 40]) == 0
    assert f"there is no commit {'0' * 40} in this clone" in capsys.readouterr().out


def test_the_reference_is_a_commit() -> None:
    assert re.fullmatch("[0-9a-f]{7,40}", before.reference())


def test_a_tree_is_made_once_and_replaces_that_of_another_commit(tmp_path: Path) -> None:
    root, kept = tmp_path / "project", tmp_path / "before"
    for name in ("src", "bench"):
        (root / name).mkdir(parents=True)
        (root / name / "empty.py").write_text("")

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=root, check=True, capture_output=True)

    def commit(number: int) -> str:
        (root / "src" / "version.py").write_text(f"NUMBER = {number}\n")
        git("add", "-A")
        git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-m", str(number))
        return before.commit("HEAD", root)

    git("init", "-q")
    first, second = commit(1), commit(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "state", "plain Python")
        made = before.tree(first, root=root, kept=kept)
        assert made.run("-c", "import version; print(version.NUMBER)") == "1\n"
        # The packages of this environment are there, and Headwater is that of the tree.
        assert made.run("-c", "import pyarrow") == ""
        with pytest.raises(TreeError, match="No module named 'headwater'"):
            made.run("-c", "import headwater")
        (made.root / "mark").touch()
        assert before.tree(first, root=root, kept=kept) == made
        assert (made.root / "mark").exists()
        other = before.tree(second, root=root, kept=kept)
    assert other.run("-c", "import version; print(version.NUMBER)") == "2\n"
    assert [each.name for each in kept.iterdir()] == [second]


def test_the_fixed_piece_of_work_takes_time() -> None:
    assert work() > 0
