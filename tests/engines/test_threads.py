"""A thread of the log that ends although it must not is heard of: nobody waits for nothing."""

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import LogUnavailable
from headwater.log.embedded import sealer
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.log.embedded.file import LogFile
from headwater.log.embedded.store import LogStore
from headwater.log.embedded.syncer import Resume, Syncer
from headwater.log.embedded.writer import LogWriter
from headwater.message import Batch, Run

Check = Callable[[EmbeddedEngine], Awaitable[None]]

# With so much, the writer does not wait for the disk by itself.
MUCH = b"much" * 100_000


def run_on(directory: Path, check: Check, settings: LogSettings) -> None:
    async def everything() -> None:
        engine = await EmbeddedEngine.open(directory, settings)
        try:
            async with asyncio.timeout(60):
                await check(engine)
        finally:
            async with asyncio.timeout(60):
                await engine.close()

    asyncio.run(everything())


def run_of(*payloads: bytes) -> Run:
    return Run("a", list(payloads), protocol="test", publisher="me")


async def settled(engine: EmbeddedEngine, *payloads: bytes) -> LogUnavailable | None:
    """What the publisher of these hears."""
    heard: asyncio.Future[LogUnavailable | None] = asyncio.get_running_loop().create_future()
    engine.when_durable(engine.append(run_of(*payloads)).end, heard.set_result)
    engine.hurry()
    return await heard


async def dead(engine: EmbeddedEngine) -> str:
    heard: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    engine.when_dead(heard.set_result)
    return await heard


def stored(directory: Path) -> list[bytes]:
    """What a broker finds that is started again."""
    found: list[bytes] = []

    async def read(engine: EmbeddedEngine) -> None:
        batches, _ = await engine.read(0, lambda topic: True, 1 << 20)
        found.extend(payload for batch in batches for payload in batch.run.payloads)

    run_on(directory, read, LogSettings())
    return found


def die(*_: Any) -> Any:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("of", "method", "name"),
    [(LogWriter, "_write", "log-writer"), (Syncer, "_cover", "log-syncer")],
)
def test_publishers_are_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: type, method: str, name: str
) -> None:
    async def check(engine: EmbeddedEngine) -> None:
        assert await settled(engine, b"kept") is None
        ended = asyncio.ensure_future(dead(engine))
        await asyncio.sleep(0)
        monkeypatch.setattr(of, method, die)
        refused = await settled(engine, MUCH)
        assert str(refused) == f"the log has failed: {name} ended by RuntimeError (a bug)"
        assert await ended == engine.refusal == str(refused)
        with pytest.raises(LogUnavailable, match="the log has failed"):
            engine.append(run_of(b"too late"))
        assert engine.end == engine.watermark == 1

    run_on(tmp_path, check, LogSettings())
    monkeypatch.undo()
    assert stored(tmp_path) == [b"kept"]


def test_a_writer_that_ends_settles_first_what_it_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is refused whose message is there after a restart."""
    syncing, taken = threading.Event(), threading.Event()
    sync, take = LogFile.sync, LogWriter._take

    def slow(self: LogFile) -> None:
        syncing.set()
        taken.wait(60)
        sync(self)

    def dying(self: LogWriter) -> Any:
        if syncing.is_set():
            taken.set()
            raise RuntimeError("a bug")
        return take(self)

    async def check(engine: EmbeddedEngine) -> None:
        monkeypatch.setattr(LogFile, "sync", slow)
        monkeypatch.setattr(LogWriter, "_take", dying)
        assert await settled(engine, MUCH) is None
        assert "log-writer ended" in await dead(engine)

    run_on(tmp_path, check, LogSettings())
    monkeypatch.undo()
    assert stored(tmp_path) == [MUCH]


def test_a_sealer_that_ends_is_heard_of_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer, "LOOK_SECONDS", 0.001)

    async def check(engine: EmbeddedEngine) -> None:
        assert await settled(engine, b"kept") is None
        monkeypatch.setattr(LogStore, "unsealed", die)
        assert "log-sealer ended by RuntimeError" in await dead(engine)

    run_on(tmp_path, check, LogSettings())
    monkeypatch.undo()
    assert stored(tmp_path) == [b"kept"]


def test_a_segment_that_cannot_be_sealed_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sealer, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(LogStore, "seal", die)

    async def check(engine: EmbeddedEngine) -> None:
        for number in range(5):
            assert await settled(engine, bytes(1000), b"%d" % number) is None
        while "stays unsealed" not in caplog.text:
            await asyncio.sleep(0.01)
        assert engine.refusal is None

    run_on(tmp_path, check, LogSettings(segment_bytes=4096))


@pytest.mark.parametrize(("sync", "method"), [("interval", "sync"), ("os", "cut")])
def test_a_late_sync_that_fails_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: Any, method: str
) -> None:
    """The next one would succeed, and what the first did not write may be gone: reported as stored
    by then. With "os" it is the beginning of a new segment that syncs the one before it."""

    def fail(self: LogFile, *length: int) -> None:
        monkeypatch.undo()  # the next one works
        raise OSError(errno.EIO, "Input/output error")

    async def check(engine: EmbeddedEngine) -> None:
        ended = asyncio.ensure_future(dead(engine))
        await asyncio.sleep(0)
        monkeypatch.setattr(LogFile, method, fail)
        while not ended.done():
            if engine.refusal is None:
                await settled(engine, bytes(1000))
            await asyncio.sleep(0.001)
        assert "SyncFailed (Input/output error)" in ended.result()

    run_on(tmp_path, check, LogSettings(sync=sync, sync_interval=0.01, segment_bytes=4096))


def test_a_sync_meets_the_beginning_of_a_segment(tmp_path: Path) -> None:
    """As with `log.sync = "interval"`, where the timer's sync does not wait for the writer."""
    store = LogStore.open(tmp_path / "log", segment_bytes=1)  # a segment for each group
    store.append([Batch(0, 0, run_of(b"x"))])
    active = store._segments[-1]

    class Meanwhile:
        """The active segment; while a sync asks for its file, the writer begins another one."""

        @property
        def held(self) -> Any:
            if store._segments[-1] is self:  # type: ignore[comparison-overlap]
                store._segments = (*store._segments[:-1], active)
                store.append([Batch(1, 1, run_of(b"y"))])
            return active.held

        def __getattr__(self, name: str) -> Any:
            return getattr(active, name)

    store._segments = (*store._segments[:-1], Meanwhile())  # type: ignore[arg-type]
    store.sync()
    assert len(store._segments) == 2
    store.sync()
    assert store.durable == 2
    store.close()


def test_positions_are_saved_once_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.log.embedded import notes
    from headwater.log.embedded.state import StateDatabase

    monkeypatch.setattr(notes, "RETRY_SECONDS", 0.01)
    save = StateDatabase.save

    async def check(engine: EmbeddedEngine) -> None:
        monkeypatch.setattr(StateDatabase, "save", die)
        engine.notes.save_cursor("someone", 0)
        engine.notes.save_number("something", 7)
        while engine.notes.fault is None:
            await asyncio.sleep(0.001)
        assert "a bug" in engine.notes.fault
        with pytest.raises(LogUnavailable, match="positions cannot be saved"):
            await engine.notes.flush()
        monkeypatch.setattr(StateDatabase, "save", save)
        while engine.notes.fault is not None:
            await asyncio.sleep(0.001)

    async def again(engine: EmbeddedEngine) -> None:
        assert engine.notes.load_cursor("someone") == 0
        assert engine.notes.load_number("something") == 7

    run_on(tmp_path, check, LogSettings())
    run_on(tmp_path, again, LogSettings())


def test_the_writer_goes_on_when_the_syncer_does(tmp_path: Path) -> None:
    """After a failure both hear where to go on. What the writer took meanwhile would be dropped as
    if it had been refused, and its publisher would wait for ever."""

    class SlowSyncer(Syncer):
        def settle(self) -> None:
            self.failing = False  # it has come to that

    store = LogStore.open(tmp_path)
    syncer = SlowSyncer(
        store,
        sync="always",
        interval=1.0,
        committed=lambda batches: None,
        failed=lambda error: None,
        died=lambda name, error: None,
    )
    syncer.failing = True
    writer = LogWriter(store, syncer, lambda: None, lambda name, error: None)
    writer._go_on(Resume(0))
    assert not syncer.failing
    store.close()
