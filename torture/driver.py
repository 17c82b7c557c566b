"""A program that is to be killed, in a process group of its own, with all that it starts."""

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

# A bound for what hangs. A busy machine takes a minute to start Spark, and longer to catch up.
START_SECONDS = 600.0
READ_SECONDS = 60.0


class Driver:
    def __init__(self, command: list[str], errors: Path) -> None:
        self._command = command
        self._errors = errors
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self, *arguments: str) -> None:
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def wait_for(self, what: str, said: Callable[[str], bool]) -> None:
        """Wait for a line of its output. What it prints is read until its end from now on."""
        assert self._process is not None and self._process.stdout is not None
        stdout: IO[str] = self._process.stdout
        found = threading.Event()

        def read() -> None:
            for line in stdout:
                if said(line):
                    found.set()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        deadline = time.monotonic() + START_SECONDS
        while not found.wait(0.1):
            ended = self._process.poll() is not None
            if ended:
                self._reader.join(READ_SECONDS)  # what it said last may not be read yet
            if (ended and not found.is_set()) or time.monotonic() > deadline:
                raise AssertionError(f"it did not say {what}: {self.log[-3000:]}")

    @property
    def log(self) -> str:
        return self._errors.read_text()

    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ends_within(self, seconds: float) -> bool:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.running()

    def kill(self) -> None:
        """All of it."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._reader is not None:
                self._reader.join(READ_SECONDS)  # it reads from what is closed below
                self._reader = None
            assert self._process.stdout is not None
            self._process.stdout.close()

    def kill_program(self) -> None:
        """Only the program that was started."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def kill_one(self, chosen: Callable[[int], bool]) -> bool:
        """One of the processes that it has started, if there is such a one."""
        assert self._process is not None
        found = [pid for pid in _descendants(self._process.pid) if chosen(pid)]
        if not found:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(random.choice(found), signal.SIGKILL)
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


def is_worker(pid: int) -> bool:
    """Forked by pyspark's daemon; the daemon itself is its parent."""
    with contextlib.suppress(OSError):
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return b"spark.daemon" in _command_of(pid) and b"spark.daemon" in _command_of(parent)
    return False


def is_java(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"org.apache.spark.deploy" in _command_of(pid)
    return False


def _command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
