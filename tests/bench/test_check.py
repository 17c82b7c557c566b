"""`make bench-check` in small: does it measure every path, and does it fail when one is dearer?"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.check import __main__ as check
from bench.check import kept
from bench.check.measuring import work
from bench.check.paths import PATHS

pytestmark = pytest.mark.timeout(600)

SMALL = ["--rounds", "1", "--part", "0.02"]
NAMES = [path.name for path in PATHS]


def measuring(*figures: float) -> Iterator[float]:
    """What is measured of one path, one time after the other."""
    yield from figures
    raise AssertionError("measured more often than needed")


@pytest.mark.bench
def test_every_path_is_measured_and_one_that_is_dearer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "UPDATES", 1)
    monkeypatch.setattr(check, "REPEATS", 1)
    file = tmp_path / "baseline.toml"
    assert check.main([*SMALL, "--baseline", str(file), "--update"]) == 0
    figures = kept.load(file)[kept.state()]
    assert list(figures) == NAMES
    assert all(figure > 0 for figure in figures.values())
    only = [*SMALL, "--baseline", str(file), "--only", NAMES[0]]
    # By much, because so short a measurement is far from the truth.
    kept.save({name: figure * 10 for name, figure in figures.items()}, file)
    assert check.main(only) == 0
    kept.save({name: figure / 10 for name, figure in figures.items()}, file)
    assert check.main(only) == 1
    assert f"more than 15% dearer than kept: {NAMES[0]}" in capsys.readouterr().out


def test_a_path_that_costs_twice_as_much_is_measured_again_and_then_dearer() -> None:
    times = measuring(*[2.0] * (1 + check.REPEATS))
    found = check.compare(PATHS[:1], {NAMES[0]: 1.0}, lambda _: next(times))
    assert found == {NAMES[0]: 2.0}
    assert check.dearer(NAMES[0], {NAMES[0]: 1.0}, found)


def test_what_was_in_the_way_once_is_forgotten() -> None:
    times = measuring(2.0, 1.1)
    found = check.compare(PATHS[:1], {NAMES[0]: 1.0}, lambda _: next(times))
    assert found == {NAMES[0]: 1.1}
    assert not check.dearer(NAMES[0], {NAMES[0]: 1.0}, found)


def test_a_path_without_a_figure_is_shown_and_no_failure() -> None:
    found = check.compare(PATHS[:1], {"another": 1.0}, lambda _: 5.0)
    assert not check.dearer(NAMES[0], {"another": 1.0}, found)


def test_without_figures_for_the_modules_in_use_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = {"plain": "compiled", "compiled": "plain"}[kept.state()]
    file = tmp_path / "baseline.toml"
    file.write_text(f'[{other}]\n"{NAMES[0]}" = 1.0\n')
    assert check.main(["--baseline", str(file)]) == 0
    assert "no figures are kept" in capsys.readouterr().out


def test_figures_of_other_modules_stay(tmp_path: Path) -> None:
    other = {"plain": "compiled", "compiled": "plain"}[kept.state()]
    file = tmp_path / "baseline.toml"
    file.write_text(f'[{other}]\n"{NAMES[0]}" = 1.5\n')
    kept.save({NAMES[0]: 0.1234}, file)
    assert kept.load(file) == {other: {NAMES[0]: 1.5}, kept.state(): {NAMES[0]: 0.123}}


def test_the_figures_that_are_kept_are_of_paths_that_exist() -> None:
    for figures in kept.load().values():
        assert set(figures) <= set(NAMES)


def test_the_fixed_piece_of_work_takes_time() -> None:
    assert work() > 0
