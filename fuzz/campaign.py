"""One target, in a process of its own: inputs, what they find, what they cost.

An input is too slow if it keeps the broker busy for longer than 50 ms without giving others their
turn, or takes longer than a second, each time it is tried again: a machine that does something else
meanwhile is no finding. Memory is looked at where the target is closed and opened again, after a
full garbage collection and with all caches of functions empty, so what is left then is lost.
"""

import asyncio
import ctypes
import functools
import gc
import os
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from fuzz import branches, corpus
from fuzz.findings import Finding
from fuzz.mutation import Mutator
from fuzz.outcome import Outcome, Plan
from fuzz.pulse import Pulse
from fuzz.targets.base import Complaints, Target
from fuzz.turns import Turns

BUSY_SECONDS = 0.05
LONG_SECONDS = 1.0
TRIES = 10
#: Behind so many findings a target has had enough.
MOST_FINDINGS = 10
MOST_GROWTH = 0.05
#: Memory is compared from this part of a run on: until then, pools and tables grow to their size.
WARM = 0.2
#: With fewer openings than this, nothing is said about memory.
LEAST_OPENINGS = 10
#: Garbage is collected between inputs, so that it does not count for one of them.
COLLECTED = 100
MIB = 1024 * 1024


class Campaign:
    """`found` hears of each finding at once: the process may not come to its end."""

    def __init__(
        self, plan: Plan, target: Target, pulse: Pulse, found: Callable[[Outcome], None]
    ) -> None:
        self._plan, self._target, self._pulse, self._found = plan, target, pulse, found
        self._outcome = Outcome(plan.target)
        self._complaints = Complaints()
        self._complaints.install()
        seeds = [*target.seeds(), *corpus.kept(plan.target), *corpus.regressions(plan.target)]
        self._seeds = list(plan.only or dict.fromkeys(seeds))
        self._corpus: list[bytes] = []
        self._mutator = Mutator(self._corpus, target.words(), plan.seed, target.has_json)
        self._slowest = 0.0
        self._longest = 0.0
        self._memory: list[float] = []
        self._caches: list[Any] = []

    async def run(self) -> Outcome:
        asyncio.get_running_loop().set_exception_handler(self._complaints.hear)
        gc.disable()
        began, outcome = time.monotonic(), self._outcome
        while outcome.inputs < self._plan.inputs and len(outcome.findings) < MOST_FINDINGS:
            if time.monotonic() - began > self._plan.seconds:
                break
            await self._opened(self._stretch)
            self._look_at_memory()
        outcome.seconds = time.monotonic() - began
        outcome.corpus = len(self._corpus)
        outcome.taken = branches.taken()
        outcome.slowest_ms = self._slowest * 1000
        self._judge_memory()
        if self._plan.keep:
            await self._opened(self._keep_enough)
        return outcome

    async def _opened(self, work: Callable[[], Awaitable[None]]) -> None:
        with tempfile.TemporaryDirectory(prefix="headwater-fuzz-") as directory:
            await self._target.open(Path(directory) / "data")
            try:
                await work()
            finally:
                await self._target.close()
        self._note(b"", self._complaints.take())

    async def _stretch(self) -> None:
        """As many inputs as one opening is for."""
        outcome = self._outcome
        left = self._plan.inputs - outcome.inputs
        for number in range(min(self._target.inputs_per_opening, left)):
            if outcome.inputs < len(self._seeds):
                data, planned = self._seeds[outcome.inputs], True
            elif self._plan.only:
                return
            else:
                data, planned = self._target.finished(self._mutator.next()), False
            outcome.inputs += 1
            await self._try(data, planned)
            if number % COLLECTED == 0:
                gc.collect(1)
            if len(outcome.findings) >= MOST_FINDINGS:
                return

    async def _try(self, data: bytes, planned: bool) -> None:
        taken = await self._once(data)
        if taken > min(self._longest, BUSY_SECONDS):
            await self._measure(data)
        new = branches.FRESH in branches.hits
        if new and (planned or await self._again(data)):
            branches.know(branches.fresh())
            self._corpus.append(data)
        elif planned:
            self._corpus.append(data)

    async def _once(self, data: bytes) -> float:
        """Returns how long it has taken."""
        self._pulse.beat(data)
        began = time.perf_counter()
        try:
            await self._target.run(data)
        except Exception:
            self._note(data, [traceback.format_exc()])
        taken = time.perf_counter() - began
        if complaints := self._complaints.take():
            self._note(data, complaints)
        return taken

    async def _again(self, data: bytes) -> bool:
        """Whether it takes a new branch each time, and not because of what came before it."""
        new = branches.fresh()
        branches.forget(new)
        await self._once(data)
        seen = set(branches.fresh())
        # What is not taken each time will be again, and is not worth another try then.
        branches.know(new)
        return not seen.isdisjoint(new)

    async def _measure(self, data: bytes) -> None:
        """How long it keeps the broker busy when nothing else gets in its way. (To ask how busy
        that is takes longer than many an input, so it is not asked for each.)"""
        busy = taken = float("inf")
        for _ in range(TRIES):
            began = self._target.clock()
            async with Turns(self._target.clock) as turns:
                taken = min(taken, await self._once(data))
            whole = self._target.clock() - began
            busy = min(busy, turns.longest if self._target.takes_turns else whole)
            if busy <= self._slowest and taken <= LONG_SECONDS:
                break
        self._slowest, self._longest = max(self._slowest, busy), max(self._longest, taken)
        if busy > BUSY_SECONDS:
            self._note(data, [f"it keeps the broker busy for {busy * 1000:.0f} ms"])
        elif taken > LONG_SECONDS:
            self._note(data, [f"it takes {taken:.1f} s"])

    def _note(self, data: bytes, why: list[str]) -> None:
        known = {finding.gist for finding in self._outcome.findings}
        for text in why:
            finding = Finding(self._plan.target, text, data)
            if finding.gist not in known:
                self._outcome.findings.append(finding)
                known.add(finding.gist)
                self._found(self._outcome)

    def _look_at_memory(self) -> None:
        found = [
            each for each in gc.get_objects() if isinstance(each, functools._lru_cache_wrapper)
        ]
        if not self._memory:
            self._caches = found  # those of modules, which are set aside below
        for each in (*self._caches, *found):
            each.cache_clear()
        gc.collect()
        if not self._memory:
            gc.freeze()  # modules stay, and need not be looked through each time
        pa.default_memory_pool().release_unused()
        ctypes.CDLL(None).malloc_trim(0)  # what is free is not lost
        self._memory.append(resident_mib())

    def _judge_memory(self) -> None:
        """The least of some looks, since what a look finds may be let go of a moment later."""
        warm = self._memory[int(len(self._memory) * WARM) :]
        few = max(len(warm) // 5, 1)
        first, last = min(warm[:few]), min(warm[-few:])
        self._outcome.first_mib, self._outcome.last_mib = first, last
        if len(warm) >= LEAST_OPENINGS and last > first * (1 + MOST_GROWTH):
            self._note(b"", [f"memory has grown from {first:.1f} to {last:.1f} MiB"])

    async def _keep_enough(self) -> None:
        """Replace the corpus in the repository by few inputs that do all that this one does."""
        seeds = {data: await self._taken_by(data) for data in self._target.seeds()}
        found = {
            data: await self._taken_by(data)
            for data in self._corpus
            if len(data) <= corpus.MOST_KEPT_BYTES and data not in seeds
        }
        corpus.keep(self._plan.target, corpus.enough(found, frozenset().union(*seeds.values())))

    async def _taken_by(self, data: bytes) -> frozenset[int]:
        branches.forget_all()
        await self._once(data)
        return frozenset(branches.fresh())


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / MIB
