"""A thread that computes pauses now and then, and for longer where someone waits."""

import pytest

from headwater import courtesy
from headwater.courtesy import LONG_SECONDS, SHORT_SECONDS, WORK_SECONDS, Courtesy


class Clocks:
    """Time passes when it is said to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.worked = self.now = 0.0
        self.others_take = 0.0  # of every pause
        self.pauses: list[float] = []
        monkeypatch.setattr(courtesy, "thread_time", lambda: self.worked)
        monkeypatch.setattr(courtesy, "perf_counter", lambda: self.now)
        monkeypatch.setattr(courtesy, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds + self.others_take


def test_who_has_the_processor_alone_pauses_shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    shown = Courtesy()
    for _ in range(5):
        shown.show()
    assert clocks.pauses == []
    for _ in range(3):
        clocks.worked += WORK_SECONDS
        shown.show()
        shown.show()
    assert clocks.pauses == [SHORT_SECONDS] * 3


def test_where_someone_waits_most_of_the_time_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks(monkeypatch)
    clocks.others_take = 0.001
    shown = Courtesy()
    clocks.worked += WORK_SECONDS
    shown.show()
    assert clocks.pauses == [SHORT_SECONDS, LONG_SECONDS]
    assert LONG_SECONDS > 3 * WORK_SECONDS
