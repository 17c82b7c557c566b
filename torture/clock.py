"""The clock of a broker jumps, by hours and years, ahead and back, while clients of all kinds are
at work, and retention by age is on.

Nothing is lost, twice or deleted for it, and the broker goes on. Clients of Prism Notify sign with
the time and are refused while the broker's is another one; they come back when it does.
"""

import time
from pathlib import Path
from random import Random

from tests.e2e.process import ALL_FIVE, BrokerProcess, eventually
from torture.disk.shim import Shim
from torture.everyone.accounts import Accounts
from torture.everyone.crowd import Crowd
from torture.everyone.kill import verdict_of
from torture.verdict import Verdict, faults_of

SEGMENT_BYTES = 64 << 10
RETENTION_AGE = "30m"
PAUSE_SECONDS = 0.02
HOUR = 3600.0
YEARS = 10 * 365 * 24 * HOUR
JUMPS = (2 * HOUR, 24 * HOUR, YEARS, -2 * HOUR, -24 * HOUR, -YEARS)
#: What retention by age says of a clock that is ahead, when it has looked: it waits, or it acts.
LOOKED = ("the clock has jumped ahead", "retention dropped the offsets")
#: So many segments that retention could drop; otherwise a jump would prove nothing.
SEGMENTS = 3
MORE = 50


def torture(
    directory: Path, cycles: int, seconds: float, chance: Random, **settings: str
) -> Verdict:
    """So many jumps; each lasts until retention has looked, and at most `seconds` longer."""
    (directory / "disk").mkdir()
    shim = Shim(directory, directory / "disk")
    accounts = Accounts()
    broker = BrokerProcess(
        shim.root / "data",
        toml=ALL_FIVE,
        HEADWATER_LOG_SEGMENT_BYTES=str(SEGMENT_BYTES),
        HEADWATER_LOG_RETENTION_AGE=RETENTION_AGE,
        **shim.environment,
        **settings,
    )
    with broker:
        broker.keep_ports()
        with Crowd(broker, accounts, chance, PAUSE_SECONDS) as crowd:
            for number in range(cycles):
                _wait_for_segments(broker)
                jump, looks = JUMPS[number % len(JUMPS)], _looks(broker)
                shim.shift_clock(jump)
                _more(accounts)
                for _ in eventually():
                    if jump < 0 or _looks(broker) > looks:
                        break
                time.sleep(chance.random() * seconds)
                shim.shift_clock(0.0)
            _more(accounts)
            crowd.finish()
        faults = faults_of(broker, broker.stop())
    return verdict_of(accounts, broker.data, {"clock jumped": cycles}, faults)


def _wait_for_segments(broker: BrokerProcess) -> None:
    for _ in eventually():
        if len(list((broker.data / "log").glob("*.log"))) > SEGMENTS:
            return


def _looks(broker: BrokerProcess) -> int:
    return sum(broker.log.count(each) for each in LOOKED)


def _more(accounts: Accounts) -> None:
    """Wait until more is acknowledged."""
    before = len(accounts.acknowledged)
    for _ in eventually():
        if len(accounts.acknowledged) >= before + MORE:
            return
