"""Markers, groups and budgets, as a run of pytest sees them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import budget
from tests.costs import COSTLY
from tests.generated_docs import ROOT

#: A bound for what hangs: pytest is started, and with it Python, up to three times.
pytestmark = pytest.mark.timeout(600)

CONFTEST = "from tests.conftest import *\nfrom tests.conftest import pytest_configure\n"
SETTINGS = """
[pytest]
markers =
    smoke: kept
    spark: shared
    spark_process: own
    torture: kills
    bench: measures
    browser: looks
budgets =
    tight: bench 0, other 60
    wide: bench 60, other 60
"""
TESTS = """
import pytest
from tests.budget import count_retry

@pytest.fixture
def spark():
    return "shared"

@pytest.mark.bench
def test_measured():
    pass

def test_plain():
    pass

def test_of_spark(spark):
    pass

@pytest.mark.smoke
def test_of_spark_that_is_kept(spark):
    pass

def test_with_retries():
    for _ in range(RETRIES):
        count_retry()
"""


def run(place: Path, *arguments: str, retries: int = 0) -> subprocess.CompletedProcess[str]:
    """pytest with the plugins of this project, in a directory of its own."""
    (place / "conftest.py").write_text(CONFTEST)
    (place / "pytest.ini").write_text(SETTINGS)
    (place / "test_some.py").write_text(TESTS.replace("RETRIES", str(retries)))
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command, cwd=place, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )


def test_what_is_exceeded_fails_the_run(tmp_path: Path) -> None:
    """Although all tests pass; and whoever of the workers ran them."""
    retries = budget.MOST_RETRIES + 1
    found = run(tmp_path, "--budget", "tight", "-n", "2", "--dist", "loadgroup", retries=retries)
    assert found.returncode == 1, found.stdout + found.stderr
    assert "over budget: the tests marked bench took 0.0 min, and may take 0 min" in found.stdout
    assert "over budget: 6 scripts were run again after an abort; 5 are normal" in found.stdout
    assert "5 passed" in found.stdout


def test_what_is_kept_is_told(tmp_path: Path) -> None:
    found = run(tmp_path, "--budget", "wide", retries=2)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "minutes spent, summed over the workers: bench 0.0 of 60, other 0.0" in found.stdout
    assert "retries of aborting readers: 2" in found.stdout
    assert "over budget" not in found.stdout


def test_without_a_selection_there_is_no_budget(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert (found.returncode, "minutes spent" in found.stdout) == (0, False), found.stdout
    wrong = run(tmp_path, "--budget", "none")
    assert wrong.returncode == pytest.ExitCode.USAGE_ERROR
    assert "there is no budget none, only tight, wide" in wrong.stderr


def test_whoever_uses_the_shared_spark_is_marked_and_goes_first(tmp_path: Path) -> None:
    found = run(tmp_path, "--collect-only", "-q", "-m", "smoke or not spark")
    names = [line.rpartition("::")[2] for line in found.stdout.splitlines() if "::" in line]
    assert names == [
        "test_of_spark_that_is_kept",
        "test_measured",
        "test_plain",
        "test_with_retries",
    ]


def test_every_selection_has_a_budget_for_every_marker(pytestconfig: pytest.Config) -> None:
    budgets = budget.parse(pytestconfig.getini("budgets"))
    assert list(budgets) == ["test", "rest", "all"]
    for minutes in budgets.values():
        assert set(minutes) == {*COSTLY, budget.OTHER}
    makefile = (ROOT / "Makefile").read_text()
    for name in budgets:
        assert f"--budget {name} " in makefile
    (costly,) = [line for line in makefile.splitlines() if line.startswith("COSTLY := ")]
    assert set(costly.partition("(")[2].rstrip(")").split(" or ")) == set(COSTLY)
