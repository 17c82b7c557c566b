"""Hypothesis profiles: quick by default, long for `make fuzz-properties` (HYPOTHESIS_PROFILE=fuzz).
What tests cost, and may cost (costs.py, budget.py). And what fails is named at once: a whole run
takes long.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

from tests import budget, costs
from tests.spark import class_archive

# No deadline: what is slow once, on a busy machine, is no failure. The same examples in every run,
# so that a failure says something about the change at hand; `make fuzz-properties` finds others.
settings.register_profile(
    "default",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz", parent=settings.get_profile("default"), derandomize=False, max_examples=20_000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

class_archive.use()  # inherited by all programs that the tests start


class _AtOnce:
    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write(f"\n{report.nodeid}: {report.when} failed\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("budgets", "minutes that the tests of a marker may take", type="linelist")
    parser.addoption("--budget", help="the line of `budgets` that holds for this run")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(budget.Reporter())
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):  # in the process that reports
        config.pluginmanager.register(_AtOnce(terminal))
        chosen = config.getoption("--budget")
        budgets = budget.parse(config.getini("budgets"))
        if chosen is not None and chosen not in budgets:
            raise pytest.UsageError(f"there is no budget {chosen}, only {', '.join(budgets)}")
        config.pluginmanager.register(budget.Budget(budgets[chosen] if chosen else {}))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    costs.mark(items)
    items.sort(key=costs.rank)
