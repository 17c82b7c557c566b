"""A clock that jumps deletes nothing, unless it means it."""

import pytest

from headwater import clock
from headwater.clock import PATIENCE_SECONDS, SettledClock

HOUR, YEAR = 3600.0, 365 * 24 * 3600.0


class Clocks:
    def __init__(self) -> None:
        self.steady, self.ahead = 1000.0, 1e9
        self.settled = SettledClock(lambda: self.steady + self.ahead, lambda: self.steady)

    def now(self, passed: float = 0.0, ahead: float = 0.0) -> float:
        """How much time has passed, by the settled clock."""
        self.steady += passed
        self.ahead = 1e9 + ahead
        return self.settled.now() - 1e9 - 1000.0


@pytest.mark.parametrize("jump", [2 * HOUR, 10 * YEAR])
def test_a_jump_ahead_is_not_believed_for_an_hour(jump: float) -> None:
    clocks = Clocks()
    assert clocks.now(10) == 10
    assert clocks.now(10, ahead=jump) == 20
    assert clocks.now(PATIENCE_SECONDS / 2, ahead=jump) == 20 + PATIENCE_SECONDS / 2
    assert clocks.now(10) == 30 + PATIENCE_SECONDS / 2  # it is back
    assert clocks.now(10, ahead=jump) == 40 + PATIENCE_SECONDS / 2
    assert clocks.now(PATIENCE_SECONDS, ahead=jump) == 40 + 1.5 * PATIENCE_SECONDS + jump


def test_another_jump_begins_anew() -> None:
    clocks = Clocks()
    clocks.now(10, ahead=HOUR)
    assert clocks.now(PATIENCE_SECONDS, ahead=2 * HOUR) == 10 + PATIENCE_SECONDS
    assert clocks.now(PATIENCE_SECONDS, ahead=2 * HOUR) == 10 + 2 * PATIENCE_SECONDS + 2 * HOUR


def test_back_and_small_corrections_are_believed_at_once() -> None:
    clocks = Clocks()
    assert clocks.now(10, ahead=30) == 40
    assert clocks.now(10, ahead=-YEAR) == 20 - YEAR
    assert clocks.now(10) == 30 - YEAR  # back again is a jump ahead


def test_it_is_the_time_of_day() -> None:
    import time

    assert abs(clock.believed() - time.time()) < 1
