"""What pipelines say of themselves."""

import pytest

from headwater.admin.pipelines import MOST_PIPELINES, STALE_SECONDS, PipelineReports
from headwater.errors import Refusal


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_last_report_of_each_pipeline_is_kept() -> None:
    clock = Clock()
    kept = PipelineReports(clock)
    kept.report("b", {"rows": 1})
    kept.report("a", {"rows": 2})
    clock.now += STALE_SECONDS + 1
    kept.report("b", {"rows": 3})
    assert [report.as_dict() for report in kept.reports()] == [
        {"pipeline": "a", "reported": 1_000_000_000, "stale": True, "state": {"rows": 2}},
        {"pipeline": "b", "reported": 1_016_000_000, "stale": False, "state": {"rows": 3}},
    ]


def test_only_so_many_pipelines_are_kept() -> None:
    kept = PipelineReports()
    for number in range(MOST_PIPELINES + 1):
        kept.report(f"p{number:02}", {})
        kept.report("p00", {})
    names = {report.pipeline for report in kept.reports()}
    assert len(names) == MOST_PIPELINES
    assert "p00" in names, "it has just reported"
    assert "p01" not in names


@pytest.mark.parametrize(
    ("name", "state"), [("", {}), ("x" * 300, {}), ("p", {"x": "y" * 70_000}), ("p", {"x": 1e999})]
)
def test_reports_that_cannot_be_shown_are_refused(name: str, state: dict[str, object]) -> None:
    with pytest.raises(Refusal):
        PipelineReports().report(name, state)
