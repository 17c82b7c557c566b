"""Kill a pipeline's driver, its Java and the broker while records arrive; then let it prove itself.

A new project, as `headwater pipeline init` makes it, runs on a broker that takes orders all the
time: most fit the example's contract, some are broken, some come twice. At a random moment one
process is killed with SIGKILL and started again. In the end `headwater pipeline audit` compares the
tables with the log.
"""

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from tests.e2e.process import BrokerProcess
from torture.driver import Driver, is_java
from torture.publisher import Publisher
from torture.verdict import Verdict, faults_about, faults_of

VICTIMS = ("driver", "java", "broker", "all")
TOPIC = "shop/orders"
# How long a driver may take to notice that its Java is gone. Otherwise it would go on.
NOTICE_SECONDS = 120.0


class Shop:
    """Orders, some of them broken or repeated."""

    def __init__(self) -> None:
        self.sent = 0

    def burst(self) -> list[bytes]:
        return [self._order() for _ in range(100)]

    def _order(self) -> bytes:
        self.sent += 1
        if self.sent % 50 == 0:
            return random.choice((b"not json", b'{"id": 5}', b"\xff\xfe", b"[" * 5000))
        number = self.sent - 1 if self.sent % 20 == 0 else self.sent  # one in twenty comes twice
        order = {
            "order_id": f"o-{number}",
            "customer": f"c-{number % 7}",
            "amount": number % 100 + 0.5,
            "quantity": number % 9 + 1,
            "currency": "EUR",
            "status": "paid",
            "placed_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        return json.dumps(order).encode()


def torture(directory: Path, cycles: int, seconds: float) -> Verdict:
    broker = BrokerProcess(directory / "data", HEADWATER_LOG_SEGMENT_BYTES="1MiB").start()
    broker.keep_ports()
    project = directory / "project"
    _headwater("init", str(project))
    at = ("--project", str(project), "--servers", f"127.0.0.1:{broker.ports['flight']}")
    command = [sys.executable, "-m", "headwater", "pipeline", "run", *at, "--master", "local[2]"]
    driver = Driver(command, directory / "driver.log")
    shop, stop = Shop(), threading.Event()
    publisher = Publisher(broker, TOPIC, shop.burst, 0.1)
    selling = threading.Thread(target=publisher.run, args=(stop,))
    killed: Counter[str] = Counter()
    selling.start()
    try:
        _start(driver)
        for cycle in range(cycles):
            time.sleep(random.uniform(0.1, 1.0) * seconds)
            victim = VICTIMS[cycle % len(VICTIMS)]
            _kill(victim, driver, broker)
            killed[f"{victim} killed"] += 1
            if victim != "broker":
                driver.kill()
                _start(driver)
        time.sleep(seconds)
        driver.kill()
        stop.set()
        selling.join()
        _headwater("run", "--once", *at)
        proof = json.loads(_headwater("audit", "--json", *at, accepted=(0, 1)))
    finally:
        stop.set()
        selling.join()
        driver.kill()
        broker.__exit__(None, None, None)
    wrong = [] if proof["well"] else [json.dumps(each) for each in proof["outcomes"]]
    return Verdict(
        harm=killed,
        sent=shop.sent,
        acknowledged=publisher.acknowledged,
        found=proof["records"],
        lost=proof["gaps"] + max(0, publisher.acknowledged - proof["records"]),
        twice=proof["duplicates"],
        faults=faults_of(broker) + faults_about(comparisons_of_the_audit=wrong),
    )


def _kill(victim: str, driver: Driver, broker: BrokerProcess) -> None:
    if victim == "broker":
        broker.kill()
        broker.start()
    elif victim == "driver":
        driver.kill_program()
    elif victim == "java":
        assert driver.kill_one(_is_java)
        assert driver.ends_within(NOTICE_SECONDS), "it goes on without its Java"
    else:
        driver.kill()


def _is_java(pid: int) -> bool:
    """Not what Java has just forked, which looks like Java until it runs another program."""
    return is_java(pid) and not is_java(_parent(pid))


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):  # it may have ended meanwhile
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _start(driver: Driver) -> None:
    driver.start()
    driver.wait_for("that bronze has rows", _is_at_work)


def _is_at_work(line: str) -> bool:
    with contextlib.suppress(ValueError):
        tables = {each["name"]: each for each in json.loads(line).get("tables", ())}
        return bool(tables.get("bronze", {}).get("rows"))
    return False


def _headwater(*arguments: str, accepted: tuple[int, ...] = (0,)) -> str:
    command = [sys.executable, "-m", "headwater", "pipeline", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode in accepted, f"{arguments}: {done.stdout[-3000:]} {done.stderr[-3000:]}"
    return done.stdout
