"""A disk that is full, or fails, at every single operation.

`days`: each operation of a small day of a broker's files fails, one after the other
(disk/failing.py).

`crowd`: a real broker with clients of all kinds, whose next operations fail, again and again, at
moments that are left to chance; then there is room again. Publishers are refused in their
protocol's way or cut off; the broker goes on by itself, or ends and says why where a thread of its
log has met what it must not go on from. In the end the log holds all that was acknowledged, once,
and nothing that was refused.
"""

import errno
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from tests.e2e.process import ALL_FIVE, PATIENCE, BrokerProcess, eventually
from torture.disk.memory import in_memory
from torture.disk.shim import Shim
from torture.everyone.accounts import Accounts
from torture.everyone.checks import Check
from torture.everyone.crowd import Crowd
from torture.log import stored_runs
from torture.verdict import Verdict

SEGMENT_BYTES = 64 << 10
PAUSE_SECONDS = 0.02
WORKERS = 2
SHOWN = 10
#: How a broker may end that cannot go on, and what it says then.
ENDED = "the log has failed: "


@dataclass
class Days:
    """What became of them."""

    operations: int = 0
    days: int = 0
    failed: int = 0
    refused: int = 0
    acknowledged: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    #: Held by the one that takes a line: there are several workers.
    taking: threading.Lock = field(default_factory=threading.Lock)

    def take(self, line: str) -> None:
        told = json.loads(line)
        self.wrong += [f"operation {told.get('number')}: {each}" for each in told["wrong"]]
        if "total" in told:
            self.operations = told["total"]
            return
        self.days += 1
        for name in ("failed", "refused", "acknowledged"):
            setattr(self, name, getattr(self, name) + told[name])
        self.endings["ended" if told["ended"] else "went on"] += 1


def days(*, every: int = 1, tell: Callable[[str], None] = print) -> Verdict:
    """Every `every`th operation fails."""
    found = Days()
    with in_memory() as place:
        workers = [_worker(place / f"{n}", every * WORKERS, n * every) for n in range(WORKERS)]
        with ThreadPoolExecutor(WORKERS) as readers:
            list(readers.map(partial(_follow, found, tell), workers))
    return Verdict(
        harm={"days": found.days, "operations failed": found.failed, **found.endings},
        sent=found.acknowledged + found.refused,
        acknowledged=found.acknowledged,
        found=found.acknowledged,
        lost=sum("lost" in each for each in found.wrong),
        twice=sum("twice" in each for each in found.wrong),
        faults=tuple(found.wrong[:SHOWN]),
    )


def _follow(found: Days, tell: Callable[[str], None], worker: "subprocess.Popen[str]") -> None:
    assert worker.stdout is not None
    for line in worker.stdout:
        with found.taking:
            found.take(line)
            if found.days % 200 == 0:
                tell(f"{found.days:,} days, {found.failed:,} failures")
    if worker.wait():
        found.wrong.append(f"a worker ended with {worker.returncode}")
    worker.stdout.close()


def _worker(place: Path, step: int, offset: int) -> "subprocess.Popen[str]":
    (place / "disk").mkdir(parents=True)
    shim = Shim(place, place / "disk")
    command = [sys.executable, "-m", "torture.disk.failing", str(place), str(step), str(offset)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | shim.environment
    )


def crowd(*, rounds: int, chance: Random, tell: Callable[[str], None] = print) -> Verdict:
    with in_memory() as place:
        (place / "disk").mkdir()
        shim = Shim(place, place / "disk")
        broker = BrokerProcess(
            shim.root / "data",
            toml=ALL_FIVE,
            HEADWATER_LOG_SEGMENT_BYTES=str(SEGMENT_BYTES),
            **shim.environment,
        )
        accounts, harm = Accounts(), Counter[str]()
        faults: list[str] = []
        with broker:
            broker.keep_ports()
            with Crowd(broker, accounts, chance, PAUSE_SECONDS) as everyone:
                for number in range(1, rounds + 1):
                    _fail(shim, chance)
                    faults += _go_on(broker, accounts, harm)
                    if number % 20 == 0:
                        tell(f"{number}/{rounds}: {dict(harm)}, {shim.failed:,} failures")
                everyone.finish()
            if code := broker.stop():
                faults.append(f"the broker ended with {code}: {broker.log[-2000:]}")
            if "Traceback" in broker.log:
                at = broker.log.index("Traceback")
                faults.append(f"the broker logged a traceback: {broker.log[at - 300 : at + 2000]}")
            stored = list(_stored(broker.data))
        harm["operations failed"] = shim.failed
    findings = Check(accounts, 0, stored).findings
    there = {payload.partition(b" ")[0] for _, _, payload in stored}
    if refused := sorted(accounts.refused & there):
        faults.append(f"refused and stored: {refused[:5]}")
    if not findings.good:
        faults.append(str(findings))
    return Verdict(
        harm=harm,
        sent=len(accounts.sent),
        acknowledged=len(accounts.acknowledged),
        found=len(accounts.acknowledged) - len(findings.lost),
        lost=len(findings.lost),
        twice=len(findings.twice),
        faults=tuple(faults[:SHOWN]),
    )


def _fail(shim: Shim, chance: Random) -> None:
    """Soon, once or for a while; heals when it has failed."""
    failed = shim.failed
    shim.fail(
        chance.choice((errno.ENOSPC, errno.ENOSPC, errno.EIO, errno.EMFILE)),
        errno.EIO,
        after=chance.randrange(20),
        count=chance.choice((1, 1, 3, 20)),
    )
    for _ in eventually(PATIENCE):
        if shim.failed > failed:
            break
    shim.heal()


def _go_on(broker: BrokerProcess, accounts: Accounts, harm: Counter[str]) -> list[str]:
    """Wait until something is acknowledged again, by a broker that went on or was started again."""
    before = len(accounts.acknowledged)
    for _ in eventually(PATIENCE):
        if len(accounts.acknowledged) > before:
            harm["went on"] += 1
            return []
        if broker.ended:
            code = broker.finish()
            harm["ended"] += 1
            wrong = code != 1 or ENDED not in broker.log
            said = [f"the broker ended with {code}: {broker.log[-2000:]}"] if wrong else []
            broker.errors.clear()
            broker.start()
            return said
    return []


def _stored(data: Path) -> list[tuple[int, str, bytes]]:
    return [(0, run.topic, payload) for run in stored_runs(data) for payload in run.payloads]


def torture(*, rounds: int, chance: Random, every: int = 1) -> Verdict:
    """Both, as one verdict."""
    one, other = days(every=every), crowd(rounds=rounds, chance=chance)
    print(f"days: {one}\ncrowd: {other}")
    return one.plus(other)
