"""`make hostile` in small: each attack comes to its end, and the well-behaved clients beside it get
all that they send.

How long they wait is not asked here: a test machine may be busy with anything. A broker that is
stopped by an attack makes the watchers give up.
"""

from pathlib import Path

import pytest

from bench.brokers import Yard
from hostile.attacks import ATTACKS
from hostile.stage import GROWTH_MIB, QUIET_SECONDS, RATE, WELL_BEHAVED, perform

SMOKE = ("many patterns",)


@pytest.mark.bench
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.smoke] if name in SMOKE else []) for name in ATTACKS],
)
def test_everyone_else_goes_on(tmp_path: Path, name: str) -> None:
    verdict = perform(Yard(tmp_path), name, [name], few=True, settle_seconds=0.0)
    assert verdict.done > 0
    assert verdict.delivered == len(WELL_BEHAVED) * RATE * QUIET_SECONDS
    assert verdict.growth_mib <= GROWTH_MIB, verdict
