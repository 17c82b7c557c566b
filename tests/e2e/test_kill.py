"""kill -9 under load loses nothing acknowledged, repeats nothing: the short `make torture`."""

from pathlib import Path

import pytest

from torture import kill, queues

pytestmark = [pytest.mark.smoke, pytest.mark.torture]


def test_kill_under_load(tmp_path: Path) -> None:
    verdict = kill.torture(tmp_path, cycles=4, seconds=1.0)
    assert verdict.good, verdict
    assert verdict.kills == {"broker": 4}
    assert 0 < verdict.acknowledged <= verdict.found <= verdict.sent, verdict


def test_kill_while_queues_are_at_work(tmp_path: Path) -> None:
    # Long enough for what is acknowledged in one cycle to be safe when the next one ends.
    verdict = queues.torture(tmp_path, cycles=3, seconds=4.0)
    assert verdict.good, verdict
    # A publish is repeated until it is answered, so all that was sent is there.
    assert 0 < verdict.acknowledged == verdict.found == verdict.sent, verdict
