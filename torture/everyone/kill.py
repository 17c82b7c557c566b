"""Kill the broker again and again while clients of all five protocols and of Flight are at work.

In the end every message that was acknowledged is in the log once and whole, so is every batch; the
durable subscriber and the consumers of queues have received all of it; and no damage is found.
"""

import time
from pathlib import Path
from random import Random

from headwater.log.embedded.verify import verify
from tests.e2e.process import ALL_FIVE, BrokerProcess
from torture.everyone.accounts import DURABLE, PRISM, Accounts
from torture.everyone.checks import Check
from torture.everyone.crowd import Crowd
from torture.log import stored_runs
from torture.verdict import Verdict, faults_about, faults_of

SEGMENT_BYTES = 1 << 20
PAUSE_SECONDS = 0.05
TELL_EVERY = 25


def torture(directory: Path, cycles: int, seconds: float, chance: Random) -> Verdict:
    """With SIGKILL, at most so many seconds after each start."""
    accounts = Accounts()
    broker = BrokerProcess(
        directory / "data", toml=ALL_FIVE, HEADWATER_LOG_SEGMENT_BYTES=str(SEGMENT_BYTES)
    )
    with broker:
        broker.keep_ports()
        with Crowd(broker, accounts, chance, PAUSE_SECONDS) as crowd:
            for number in range(1, cycles + 1):
                time.sleep(chance.random() * seconds)
                broker.kill()
                broker.start()
                if number % TELL_EVERY == 0:
                    print(f"{number}/{cycles} {accounts.summary()}", flush=True)
            crowd.finish()
        faults = faults_of(broker, broker.stop())
    return verdict_of(accounts, broker.data, {"broker killed": cycles}, faults)


def verdict_of(
    accounts: Accounts, data: Path, harm: dict[str, int], faults: tuple[str, ...]
) -> Verdict:
    """Compare what is stored with what clients know, after the broker has stopped."""
    stored = [(0, run.topic, payload) for run in stored_runs(data) for payload in run.payloads]
    check = Check(accounts, 0, stored)
    known = check.offsets.keys()
    missed = {name: known - accounts.received[name].keys() for name in (DURABLE, PRISM)}
    findings = check.findings
    damage = [each for report in verify(data / "log") for each in report.damage]
    return Verdict(
        harm={**harm, "batches": len(accounts.batches)},
        sent=len(accounts.sent),
        acknowledged=len(accounts.acknowledged),
        found=len(check.offsets),
        lost=len(findings.lost.union(*missed.values())),
        twice=len(findings.twice),
        faults=(
            *faults,
            *faults_about(
                acknowledged_and_lost=sorted(findings.lost),
                stored_twice=sorted(findings.twice),
                never_sent=[*findings.foreign, *accounts.foreign],
                missed_by_the_durable_subscriber=sorted(missed[DURABLE]),
                missed_by_the_queue=sorted(missed[PRISM]),
                damage=damage,
                other=findings.other,
            ),
        ),
    )


def cycle(directory: Path, chance: Random) -> Verdict:
    return torture(directory, chance.randint(1, 3), 1.0, chance)
