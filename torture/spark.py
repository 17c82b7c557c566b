"""Kill Spark's driver, its workers and the broker while a stream runs; account for every record.

A query copies what is published to `in/…` to the topic `out`. Publishers go on all the time. At a
random moment the driver, one of its Python workers, or the broker is killed with SIGKILL, and
started again. In the end the values of `out` are those of `in/…`: none is missing, none is there
twice.
"""

import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from tests.e2e.process import BrokerProcess
from torture.driver import Driver, is_worker
from torture.log import stored_runs
from torture.publisher import Publisher
from torture.verdict import Verdict, faults_about, faults_of

VICTIMS = ("driver", "worker", "broker")


class Numbers:
    """Messages that are all different."""

    def __init__(self) -> None:
        self.sent = 0

    def burst(self) -> list[bytes]:
        numbers = range(self.sent, self.sent + 200)
        self.sent = numbers.stop
        return [b"%d" % number for number in numbers]


def torture(directory: Path, cycles: int, seconds: float) -> Verdict:
    broker = BrokerProcess(directory / "data", HEADWATER_LOG_SEGMENT_BYTES="1MiB").start()
    broker.keep_ports()
    numbers, stop = Numbers(), threading.Event()
    publisher = Publisher(broker, "in", numbers.burst, 0.02)
    publishing = threading.Thread(target=publisher.run, args=(stop,))
    servers = f"127.0.0.1:{broker.ports['flight']}"
    command = [sys.executable, "-m", "torture.spark_job", servers, str(directory)]
    driver = Driver(command, directory / "driver.log")
    killed: Counter[str] = Counter()
    publishing.start()
    try:
        _start(driver, "on", "ready")
        for cycle in range(cycles):
            time.sleep(random.uniform(0.1, 1.0) * seconds)
            victim = VICTIMS[cycle % len(VICTIMS)]
            if victim == "worker" and not driver.kill_one(is_worker):
                victim = "driver"
            if victim == "broker":
                broker.kill()
                broker.start()
            elif victim == "driver":
                driver.kill()
            killed[f"{victim} killed"] += 1
            if not driver.running():
                driver.kill()
                _start(driver, "on", "ready")
        time.sleep(seconds)
        driver.kill()  # once more, in the middle of something
        stop.set()
        publishing.join()
        _start(driver, "once", "done")
        faults = faults_of(broker, broker.stop())
    finally:
        stop.set()
        publishing.join()
        driver.kill()
        broker.__exit__(None, None, None)
    came, went = _copied(directory / "data")
    missing, extra = came - went, went - came
    return Verdict(
        harm=killed,
        sent=numbers.sent,
        acknowledged=publisher.acknowledged,
        found=went.total(),
        lost=missing.total() + max(0, publisher.acknowledged - came.total()),
        twice=extra.total(),
        faults=faults + faults_about(missing_records=missing, repeated_records=extra),
    )


def _start(driver: Driver, mode: str, word: str) -> None:
    driver.start(mode)
    driver.wait_for(word, lambda line: line.strip() == word)


def _copied(data: Path) -> tuple[Counter[bytes], Counter[bytes]]:
    """What came to the query, and what it has written."""
    came: Counter[bytes] = Counter()
    went: Counter[bytes] = Counter()
    for run in stored_runs(data):
        (went if run.topic == "out" else came).update(run.payloads)
    return came, went
