"""A process for each target, so many at a time.

A process that crashes or hangs cannot say what it was busy with: that is in the memory which it
shares with this one (`pulse.py`).
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from fuzz.findings import Finding
from fuzz.outcome import Outcome, Plan
from fuzz.pulse import Pulse

#: A process that is busy with one input for so long hangs.
HANGS_SECONDS = 60.0
LOOK_SECONDS = 0.2
#: Opening a target and closing it is no input, and may take some time on a busy machine.
ROOT = Path(__file__).parent.parent


class Worker:
    """One target in a process of its own."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._stack = ExitStack()
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fuzz-")))
        self._result, self._errors = directory / "result", directory / "errors"
        self._pulse = Pulse.begun(directory / "pulse")
        self._seen, self._still_seconds, self._looked_at = 0, 0.0, time.monotonic()
        errors = self._stack.enter_context(self._errors.open("wb"))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", plan.to_json(), str(directory)],
            stdout=errors,
            stderr=errors,
            cwd=ROOT,
            env=environment(),
        )

    def outcome(self) -> Outcome | None:
        """What came of it, or None while it runs."""
        code = self._process.poll()
        if code is None and self._hangs():
            self._process.kill()
            self._process.wait()
            return self._ended_badly(f"it hangs for more than {HANGS_SECONDS:g} s")
        if code is None:
            return None
        if code == 0:
            return Outcome.from_json(self._result.read_text())
        said = self._errors.read_text(errors="replace")[-4000:]
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        return self._ended_badly(f"{said}\nthe process has ended with {name}")

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._stack.close()

    @property
    def inputs(self) -> int:
        """How many it has been given so far, with those that were tried again."""
        return self._pulse.count

    def _hangs(self) -> bool:
        passed, self._looked_at = time.monotonic() - self._looked_at, time.monotonic()
        # If this process was stopped, so were the others.
        self._still_seconds += min(passed, 1.0)
        if self.inputs != self._seen:
            self._seen, self._still_seconds = self.inputs, 0.0
        return self._still_seconds > HANGS_SECONDS

    def _ended_badly(self, why: str) -> Outcome:
        outcome = Outcome(self._plan.target)
        if self._result.exists():  # it has found something before
            outcome = Outcome.from_json(self._result.read_text())
        outcome.inputs = self.inputs
        outcome.findings.append(Finding(self._plan.target, why, self._pulse.data))
        return outcome


def environment() -> dict[str, str]:
    """Plain modules, for compiled ones cannot be watched; sets in the same order each time; and one
    pool of memory for all threads, of which it is known sooner how large it gets."""
    return {
        **os.environ,
        "HEADWATER_PURE": "1",
        "PYTHONHASHSEED": "0",
        "MALLOC_ARENA_MAX": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }


def run_all(plans: Sequence[Plan], jobs: int, progress: Callable[[str], None]) -> Iterator[Outcome]:
    """The outcomes, as they come."""
    waiting, running = list(plans), dict[str, Worker]()
    told_at = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                plan = waiting.pop(0)
                running[plan.target] = Worker(plan)
            for name, worker in list(running.items()):
                outcome = worker.outcome()
                if outcome is not None:
                    running.pop(name).close()
                    yield outcome
            if time.monotonic() - told_at > 30:
                told_at = time.monotonic()
                progress(", ".join(f"{name} {each.inputs:,}" for name, each in running.items()))
            time.sleep(LOOK_SECONDS)
    finally:
        for worker in running.values():
            worker.close()
