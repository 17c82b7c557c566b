"""Kill Spark's driver, its workers and the broker while a stream runs; account for every record.

A query copies what is published to `in/…` to the topic `out`. Publishers go on all the time. At a
random moment the driver, one of its Python workers, or the broker is killed with SIGKILL, and
started again. In the end the values of `out` are those of `in/…`: none is missing, none is there
twice.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import IO

from headwater.log.embedded.view import View
from tests.e2e.process import BrokerProcess

VICTIMS = ("driver", "worker", "broker")
START_SECONDS = 90.0


class Publisher:
    """Publishes numbered messages, each acknowledged before the next ones."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.sent = 0

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, EOFError):
                wire = self._broker.publisher(f"in/{random.randrange(5)}")
                with contextlib.closing(wire):
                    while not stop.is_set():
                        numbers = range(self.sent, self.sent + 200)
                        self.sent = numbers.stop
                        wire.messages(*[b"%d" % number for number in numbers])
                        stop.wait(0.02)
            stop.wait(0.05)


class Driver:
    """The query, in a process group of its own, so that all of it can be killed."""

    def __init__(self, broker: BrokerProcess, directory: Path) -> None:
        self._command = [
            sys.executable,
            "-m",
            "torture.spark_job",
            f"127.0.0.1:{broker.ports['flight']}",
            str(directory),
        ]
        self._errors = directory / "driver.log"
        self._process: subprocess.Popen[str] | None = None

    def start(self, mode: str = "on") -> None:
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [*self._command, mode],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def wait_for(self, word: str) -> None:
        assert self._process is not None and self._process.stdout is not None
        stdout: IO[str] = self._process.stdout
        found = threading.Event()

        def read() -> None:
            for line in stdout:
                if line.strip() == word:
                    found.set()

        threading.Thread(target=read, daemon=True).start()
        deadline = time.monotonic() + START_SECONDS
        while not found.wait(0.1):
            ended = self._process.poll() is not None and not found.wait(1)
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"the query did not say {word}: {self.log[-3000:]}")

    @property
    def log(self) -> str:
        return self._errors.read_text()

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def kill_worker(self) -> bool:
        """Kill one of the Python workers, if there is one."""
        assert self._process is not None
        workers = [pid for pid in _descendants(self._process.pid) if _is_worker(pid)]
        if not workers:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(random.choice(workers), signal.SIGKILL)
        return True


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _is_worker(pid: int) -> bool:
    """Forked by pyspark's daemon; the daemon itself is its parent."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        parents = Path(f"/proc/{parent}/cmdline").read_bytes()
        return b"pyspark.daemon" in command and b"pyspark.daemon" in parents
    return False


def torture(directory: Path, cycles: int, seconds: float) -> str:
    """Run it; returns a sentence about what was checked, raises AssertionError on any loss."""
    broker = BrokerProcess(directory / "data", HEADWATER_LOG_SEGMENT_BYTES="1MiB").start()
    broker.keep_ports()
    publisher, stop = Publisher(broker), threading.Event()
    publishing = threading.Thread(target=publisher.run, args=(stop,))
    driver = Driver(broker, directory)
    killed: Counter[str] = Counter()
    publishing.start()
    try:
        driver.start()
        driver.wait_for("ready")
        for cycle in range(cycles):
            time.sleep(random.uniform(0.1, 1.0) * seconds)
            victim = VICTIMS[cycle % len(VICTIMS)]
            if victim == "worker" and not driver.kill_worker():
                victim = "driver"
            if victim == "broker":
                broker.kill()
                broker.start()
            elif victim == "driver":
                driver.kill()
            killed[victim] += 1
            if not driver.running():
                driver.kill()
                driver.start()
                driver.wait_for("ready")
        time.sleep(seconds)
        driver.kill()  # once more, in the middle of something
        stop.set()
        publishing.join()
        driver.start("once")
        driver.wait_for("done")
        assert broker.stop() == 0, broker.log
    finally:
        stop.set()
        publishing.join()
        driver.kill()
        broker.__exit__(None, None, None)
    assert "Traceback" not in broker.log, broker.log
    count = _compare(directory / "data")
    kills = ", ".join(f"{number} of the {name}" for name, number in killed.items())
    return f"kills: {kills}; {count:,} records in, the same {count:,} out, none twice"


def _compare(data: Path) -> int:
    log = View.open(data / "log")
    came: Counter[bytes] = Counter()
    went: Counter[bytes] = Counter()
    offset = log.start
    while offset < log.end:
        batches, offset = log.read(offset, lambda topic: True, 8 << 20, log.end)
        for batch in batches:
            (went if batch.run.topic == "out" else came).update(batch.run.payloads)
    missing, extra = came - went, went - came
    assert not missing, f"{len(missing)} records are missing, such as {list(missing)[:5]}"
    assert not extra, f"{len(extra)} records are there twice, such as {list(extra)[:5]}"
    return came.total()
