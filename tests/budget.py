"""Budgets: a run fails when the tests of a marker have taken longer than they may.

The budgets stand in pyproject.toml, a line for each selection of tests:

    budgets = ["test: spark 10, spark_process 8, other 20"]

which means minutes, summed over all workers; `other` are the tests without any of the markers that
say why a test is costly. `--budget NAME` says which line holds. Without it, as when someone runs a
file by hand, there is no budget.

Scripts that are run again because a library took them down (tests/pipeline/scripts.py) are counted
here as well: a few are the library's fault, many would be ours.
"""

from collections import defaultdict
from collections.abc import Generator, Mapping

import pytest

from tests.costs import COSTLY

OTHER = "other"
#: So many scripts may be run again in one run of all tests.
MOST_RETRIES = 5
_RETRIES = "retries of aborting readers"

#: Retries since they were last reported, in this process.
_retries = 0


def count_retry() -> None:
    global _retries
    _retries += 1


def parse(lines: list[str]) -> dict[str, dict[str, float]]:
    """Minutes by marker, by selection."""
    found = {}
    for line in lines:
        name, _, budgets = line.partition(":")
        pairs = [each.split() for each in budgets.split(",")]
        found[name.strip()] = {marker: float(minutes) for marker, minutes in pairs}
    return found


class Reporter:
    """In the process that runs a test: adds what the process that reports has to know."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        global _retries
        report = yield
        if _retries:
            report.user_properties.append((_RETRIES, _retries))
            _retries = 0
        return report


class Budget:
    """In the process that reports: sums over all workers, and a verdict at the end."""

    def __init__(self, minutes: Mapping[str, float]) -> None:
        self._minutes = minutes
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._retries = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        markers = [name for name in COSTLY if name in report.keywords] or [OTHER]
        for name in markers:
            self._seconds[name] += report.duration
        for name, value in report.user_properties:
            if name == _RETRIES and isinstance(value, int):
                self._retries += value

    def complaints(self) -> list[str]:
        found = [
            f"the tests marked {name} took {self._seconds[name] / 60:.1f} min, and may take "
            f"{most:g} min: make them cheaper, or say in pyproject.toml why they may cost more"
            for name, most in self._minutes.items()
            if self._seconds[name] > most * 60
        ]
        if self._retries > MOST_RETRIES:
            found.append(
                f"{self._retries} scripts were run again after an abort; {MOST_RETRIES} are normal"
            )
        return found

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK and self.complaints():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._minutes:
            spent = ", ".join(
                f"{name} {self._seconds[name] / 60:.1f} of {most:g}"
                for name, most in self._minutes.items()
            )
            terminalreporter.write_line(f"minutes spent, summed over the workers: {spent}")
        if self._retries:
            terminalreporter.write_line(f"{_RETRIES}: {self._retries}")
        for complaint in self.complaints():
            terminalreporter.write_line(f"over budget: {complaint}", red=True)
