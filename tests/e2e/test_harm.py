"""Whatever harm is done to a broker, nothing acknowledged is lost or repeated: `make torture`, in
short. Of each kind of harm that is like another one, `make test` has one."""

from pathlib import Path
from random import Random

import pytest

from torture import kill, queues
from torture.cycles import KINDS

pytestmark = pytest.mark.torture

SMOKE = ("EIO", "log-writer", "operators-and-kill", "vanish", "pairs")


@pytest.mark.smoke
def test_kill_under_load(tmp_path: Path) -> None:
    verdict = kill.torture(tmp_path, cycles=4, seconds=1.0, chance=Random())
    assert verdict.good, verdict
    assert verdict.harm == {"broker killed": 4}
    assert 0 < verdict.acknowledged <= verdict.found <= verdict.sent, verdict


@pytest.mark.smoke
def test_kill_while_queues_are_at_work(tmp_path: Path) -> None:
    # Long enough for what is acknowledged in one cycle to be safe when the next one ends.
    verdict = queues.torture(tmp_path, cycles=3, seconds=4.0, chance=Random())
    assert verdict.good, verdict
    # A publish is repeated until it is answered, so all that was sent is there.
    assert 0 < verdict.acknowledged == verdict.found == verdict.sent, verdict


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.smoke] if kind in SMOKE else [])
        for kind in KINDS
        if kind not in ("kill", "queues")
    ],
)
def test_a_cycle(tmp_path: Path, kind: str) -> None:
    verdict = KINDS[kind](tmp_path, Random(1))
    assert verdict.good, verdict
    assert sum(verdict.harm.values()) > 0
    assert 0 < verdict.acknowledged <= verdict.found <= verdict.sent, verdict
