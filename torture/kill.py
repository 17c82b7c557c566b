"""Kill the broker under load, again and again, and account for every message (load.py)."""

import time
from pathlib import Path
from random import Random

from tests.e2e.process import BrokerProcess
from torture.load import Load
from torture.verdict import Verdict, faults_of


def torture(directory: Path, cycles: int, seconds: float, chance: Random) -> Verdict:
    """With SIGKILL, at most so many seconds after the start."""
    data = directory / "data"
    with BrokerProcess(data, HEADWATER_LOG_SEGMENT_BYTES="1MiB") as broker:
        broker.keep_ports()  # clients try all the time, and must not reach a stranger meanwhile
        with Load(broker, chance) as load:
            for _ in range(cycles):
                time.sleep(chance.uniform(0.1, 1.0) * seconds)
                broker.kill()
                broker.start()
            time.sleep(min(seconds, 1.0))
            load.finish()
        faults = faults_of(broker, broker.stop())
    return load.verdict({"broker killed": cycles}, faults)


def cycle(directory: Path, chance: Random) -> Verdict:
    return torture(directory, chance.randint(1, 3), 1.0, chance)
