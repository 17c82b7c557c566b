"""The process of one target: `python -m fuzz.worker PLAN DIRECTORY`, started by processes.py."""

import asyncio
import sys
from pathlib import Path

from fuzz import branches
from fuzz.outcome import Outcome, Plan
from fuzz.pulse import Pulse

#: Not watched: what is done by threads or by the clock takes its branches at any time.
BESIDES = (
    *("headwater.log", "headwater.server", "headwater.config", "headwater.declare"),
    *("headwater.compiled", "headwater.courtesy", "headwater.admin.loop", "headwater.admin.rates"),
)


def main(plan: Plan, directory: Path) -> None:
    branches.watch("headwater", but=BESIDES)
    # These import the broker, which has to be watched by then.
    from fuzz.campaign import Campaign
    from fuzz.targets import target_named
    from headwater.server.loop import loop_factory

    def tell(outcome: Outcome) -> None:
        (directory / "result").write_text(outcome.to_json())

    campaign = Campaign(plan, target_named(plan.target), Pulse.joined(directory / "pulse"), tell)
    with asyncio.Runner(loop_factory=loop_factory("uvloop")) as runner:
        tell(runner.run(campaign.run()))


if __name__ == "__main__":
    main(Plan.from_json(sys.argv[1]), Path(sys.argv[2]))
