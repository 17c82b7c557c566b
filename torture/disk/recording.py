"""A real broker at work for all kinds of clients, with everything recorded that it does to its
files; beside it an operator, who adds users, rules and apps. In the middle of it the broker is
killed.
Segments are small and retention keeps few of them, so that they begin, are sealed and are removed
all the time.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.e2e.faults import SMALL_PIECES, injected
from tests.e2e.process import ALL_FIVE, BrokerProcess, eventually
from torture.disk.shim import Shim
from torture.disk.trace import Operation, operations
from torture.everyone.accounts import Accounts
from torture.everyone.crowd import Crowd

SEGMENT_BYTES = 64 << 10
RETENTION_BYTES = 4 * SEGMENT_BYTES
#: Each sync takes so much longer: who relies on one before it has ended is found out.
SYNC_SECONDS = 0.001
PAUSE_SECONDS = 0.05


@dataclass
class Change:
    """Something that an operator did."""

    what: str
    name: str
    begun: int
    done: int


@dataclass
class Recording:
    """What happened to the files, and what clients and operators know of it."""

    place: Path
    accounts: Accounts
    changes: list[Change]
    #: Processes that were killed did no more after these.
    kills: list[int] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.place / "disk"

    @property
    def data(self) -> Path:
        return self.root / "data"

    def operations(self) -> Iterator[Operation]:
        return operations(self.place / "trace")

    def save(self) -> Path:
        file = self.place / "recording"
        self.accounts.now = int  # nothing counts any more
        file.write_bytes(pickle.dumps(self))
        return file

    @staticmethod
    def load(file: Path) -> "Recording":
        loaded: Recording = pickle.loads(file.read_bytes())
        return loaded


class Administrator:
    """The operator's process (administrator.py)."""

    def __init__(self, data: Path, shim: Shim, environment: dict[str, str]) -> None:
        self._shim = shim
        self.changes: list[Change] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torture.disk.administrator", str(data)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def do(self, what: str, name: str) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        begun = self._shim.operations
        self._process.stdin.write(f"{what} {name}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"
        self.changes.append(Change(what, name, begun, self._shim.operations))

    def leave(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


def record(
    place: Path, chance: Random, *, operations: int, kills: int = 2, sync: str = "always"
) -> Recording:
    """About so many operations, from the first start of a broker to its end."""
    root = place / "disk"
    root.mkdir(parents=True)
    shim = Shim(place, root, record=True)
    shim.slow_syncs(SYNC_SECONDS)
    broker = BrokerProcess(
        root.resolve() / "data",
        toml=ALL_FIVE,
        HEADWATER_LOG_SEGMENT_BYTES=str(SEGMENT_BYTES),
        HEADWATER_LOG_RETENTION_BYTES=str(RETENTION_BYTES),
        HEADWATER_LOG_SYNC=sync,
        **shim.environment,
        # A batch of small rows is in several frames, as a large one would be.
        **injected(place, SMALL_PIECES),
    )
    accounts = Accounts(now=lambda: shim.operations)
    ended = []
    with broker:
        broker.keep_ports()
        administrator = Administrator(broker.data, shim, os.environ | shim.environment)
        with Crowd(broker, accounts, chance, PAUSE_SECONDS) as crowd:
            for stretch in range(kills + 1):
                _reach(shim, operations * (stretch * 3 + 1) // (kills + 1) // 3)
                for what in ("user", "token", "rule", "app"):
                    administrator.do(what, f"{what if what == 'app' else 'user'}{stretch}")
                _reach(shim, operations * (stretch + 1) // (kills + 1))
                if stretch < kills:
                    shim.die(after=chance.randrange(50))
                    broker.finish()
                    ended.append(shim.operations)
                    broker.start()
            crowd.finish()
        administrator.leave()
        code = broker.stop()
        assert code == 0 and "Traceback" not in broker.log, broker.log[-3000:]
    return Recording(place, accounts, administrator.changes, ended)


def _reach(shim: Shim, operations: int) -> None:
    for _ in eventually(300):
        if shim.operations >= operations:
            return
