"""How long the broker takes to open a large log: after an orderly stop, and after a kill.

The log is built by publishing, so it is what a user would have. Before each start its files are
taken out of the page cache, as after a reboot of the machine. The time is that of the whole
process, from its start to `ready`; that of an empty log is shown for comparison.
"""

import os
import signal
import time
from functools import partial
from pathlib import Path

from bench.brokers import Server, Yard
from bench.contestants import Contestant, aim
from bench.crew import Crew
from bench.figures import Figures, Findings, Metric
from bench.load.acked import window
from bench.load.pairs import Looped
from bench.runner import Scenario
from bench.scale import Scale

NAME = "opening"
EMPTY = "an empty log"
_WHO = ("headwater-psmb",)
_BUILD_SECONDS = 300.0


def stopped(log_bytes: int) -> str:
    return f"{log_bytes / 1e9:g} GB, after a stop"


def killed(log_bytes: int) -> str:
    return f"{log_bytes / 1e9:g} GB, after a kill"


def scenarios(scale: Scale) -> list[Scenario]:
    return [Scenario(NAME, "opening a large log", _WHO, partial(measure, scale=scale))]


def measure(yard: Yard, contestant: Contestant, scale: Scale) -> Findings:
    with yard.server(contestant.kind) as server:
        empty = {Metric.READY: server.ready_seconds}
        _fill(server, contestant, scale)
        after_stop = _reopen(server, signal.SIGTERM)
        _publish(server, contestant, scale)  # so that the kill meets a log that was in use
        after_kill = _reopen(server, signal.SIGKILL)
    return {
        EMPTY: empty,
        stopped(scale.log_bytes): after_stop,
        killed(scale.log_bytes): after_kill,
    }


def _fill(server: Server, contestant: Contestant, scale: Scale) -> None:
    give_up = time.monotonic() + _BUILD_SECONDS
    while size_on_disk(server.home) < scale.log_bytes:
        if time.monotonic() > give_up:
            raise TimeoutError(f"the log did not grow to {scale.log_bytes} bytes in time")
        _publish(server, contestant, scale)


def _publish(server: Server, contestant: Contestant, scale: Scale) -> None:
    with Crew() as crew:
        address = server.address(contestant.wire)
        target = aim(contestant, address, scale.payload_bytes, "bench/log")
        worker = crew.start(window, target, scale.window * 4, scale.seconds)
        worker.wait(str)
        worker.step(Looped)


def _reopen(server: Server, how: signal.Signals) -> Figures:
    restart(server, how)
    return {Metric.READY: server.ready_seconds}


def restart(server: Server, how: signal.Signals = signal.SIGTERM) -> None:
    """Stop it and start it again, as if the machine had been started again as well."""
    server.stop(how)
    for path in _files(server.home):
        _forget(path)
    server.start()


def _forget(path: Path) -> None:
    """Out of the page cache, which only lets go of what has been written."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def size_on_disk(home: Path) -> int:
    return sum(path.stat().st_size for path in _files(home))


def _files(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]
