"""CPU time per message, in microseconds of a nominal machine.

A core is not as fast in one minute as in the next. So between the rounds a fixed piece of work is
measured, with about the mix of what a broker does: calls and look-ups in Python, bytes that are cut
and joined, checksums, system calls. The nominal machine takes `NOMINAL_SECONDS` for it. Of both the
best counts: whatever comes in between costs time, and nothing gives any back.
"""

import asyncio
import gc
import multiprocessing
import os
import struct
import tempfile
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path as File

from bench.check.paths import Path
from bench.check.stand import PATIENCE, a_stand
from headwater.server.loop import loop_factory

NOMINAL_SECONDS = 0.01
# The processes begin as copies of one that has imported everything, and done nothing.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([__name__])
_HEAD = struct.Struct(">HBBI")
_STEPS = 19_000
_BLOCK = bytes(range(256)) * 80


@dataclass(frozen=True, slots=True)
class Effort:
    rounds: int = 12
    part: float = 1.0  # of the messages of a round


def measure(path: Path, effort: Effort) -> float:
    """In a process of its own. How memory is given back and taken again depends on what lay where
    before, and with it up to a third of the cost; what is repeated must not inherit it."""
    with ProcessPoolExecutor(1, _CONTEXT) as pool:
        return pool.submit(_alone, path, effort).result()


def _alone(path: Path, effort: Effort) -> float:
    """On one core. On two, the threads get in each other's way as often as the other core happens
    to be free, and that is up to a quarter of the cost. Which one it is, the number of the process
    says: a repetition may be on another."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[os.getpid() % len(cores)]})
    return measure_here(path, effort)


def measure_here(path: Path, effort: Effort) -> float:
    # As the broker does it (`headwater.server.server.run`).
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=loop_factory("auto")) as runner,
    ):
        return runner.run(_measure(path, effort, File(directory)))


async def _measure(path: Path, effort: Effort, directory: File) -> float:
    costs, units = list[float](), list[float]()
    async with asyncio.timeout(PATIENCE), a_stand(directory / "data") as stand:
        drive = await path.prepare(stand, int(path.messages * effort.part))
        answers = await stand.learn(drive.act)
        for _ in range(effort.rounds):
            units.append(work())
            began, before = time.process_time(), stand.received
            await drive.act()
            await stand.until(before + answers)
            await stand.durable()
            costs.append((time.process_time() - began) / drive.messages)
        units.append(work())
    return min(costs) / min(units) * NOMINAL_SECONDS * 1e6


def work() -> float:
    """The CPU time of the fixed piece of work."""
    began = time.process_time()
    table, parts = dict[str, int](), list[bytes]()
    with open(os.devnull, "wb", buffering=0) as sink:
        for step in range(_STEPS):
            name = f"bench/{step & 63}"
            table[name] = table.get(name, 0) + _size(step)
            parts.append(_BLOCK[step : step + 128])
            if len(parts) == 64:
                data = b"".join(parts)
                sink.write(data)
                table["check"] = zlib.crc32(data)
                parts.clear()
            if step % 16 == 0:
                os.getppid()
    return time.process_time() - began


def _size(step: int) -> int:
    headers, _, _, size = _HEAD.unpack(_HEAD.pack(step & 0xFFFF, 1, 0, step))
    return int(headers + size)
