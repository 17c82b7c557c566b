"""What only the embedded engine has to cope with: a disk that fails."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from headwater.errors import LogUnavailable
from headwater.log.embedded import file
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from tests.engines.test_contract import durable, everything, run_of


class FailingDisk:
    """Fails the next syncs; the only part of a disk that cannot be broken for real here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures = 0
        self._sync, self._write = file._sync, os.pwritev
        monkeypatch.setattr(file, "_sync", self.sync)
        monkeypatch.setattr(os, "pwritev", self.write)

    def sync(self, fd: int) -> None:
        self._work()
        self._sync(fd)

    def write(self, fd: int, parts: Sequence[memoryview], position: int, flags: int) -> int:
        if flags:
            self._work()
        return self._write(fd, parts, position, flags)

    def _work(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EIO, "Input/output error")


def test_a_failed_sync_is_told_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        disk = FailingDisk(monkeypatch)
        engine = await EmbeddedEngine.open(tmp_path, LogSettings())
        engine.append(run_of(b"kept"))
        assert await durable(engine, 1) is None
        disk.failures = 1
        engine.append(run_of(b"refused"))
        error = await durable(engine, 2)
        assert error is not None and "Input/output error" in str(error)
        assert (engine.watermark, engine.end) == (1, 1)
        assert engine.recent(1) is None
        while True:
            try:
                engine.append(run_of(b"after"))
                break
            except LogUnavailable:
                await asyncio.sleep(0.05)
        assert await durable(engine, 2) is None
        await engine.close()
        again = await EmbeddedEngine.open(tmp_path, LogSettings())
        stored = await everything(again, lambda topic: True)
        assert [p for batch in stored for p in batch.run.payloads] == [b"kept", b"after"]
        await again.close()

    asyncio.run(check())


def test_everything_queued_behind_a_failure_is_refused_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        disk = FailingDisk(monkeypatch)
        engine = await EmbeddedEngine.open(tmp_path, LogSettings(segment_bytes=64 * 1024))
        disk.failures = 1
        heard: list[LogUnavailable | None] = []
        for _ in range(50):
            engine.when_durable(engine.append(run_of(b"x" * 30_000)).end, heard.append)
        engine.hurry()
        while len(heard) < 50:
            await asyncio.sleep(0.01)
        # A beginning may have become durable with an earlier segment; nothing after a gap has.
        stored = heard.index(next(error for error in heard if error is not None))
        assert all(error is not None for error in heard[stored:])
        assert engine.watermark == engine.end == stored
        await engine.close()
        again = await EmbeddedEngine.open(tmp_path, LogSettings())
        assert again.end == stored
        await again.close()

    asyncio.run(check())
