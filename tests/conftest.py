"""Hypothesis profiles: quick by default, long for `make fuzz` (HYPOTHESIS_PROFILE=fuzz). And what
fails is named at once: a whole run takes long."""

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadline: what is slow once, on a busy machine, is no failure. Not derandomized, on CI neither:
# every run looks at other examples.
settings.register_profile(
    "default",
    max_examples=60,
    deadline=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("fuzz", parent=settings.get_profile("default"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


class _AtOnce:
    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write(f"\n{report.nodeid}: {report.when} failed\n")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):  # in the process that reports
        config.pluginmanager.register(_AtOnce(terminal))
