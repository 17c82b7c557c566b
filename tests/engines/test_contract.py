"""What every engine has to do. A new engine is one more line in ENGINES."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import LogUnavailable
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.log.engine import Engine
from headwater.message import Batch, Run

Opener = Callable[[Path], Awaitable[Engine]]
Test = Callable[[Opener, Path], Coroutine[Any, Any, None]]


async def _embedded(directory: Path) -> Engine:
    return await EmbeddedEngine.open(directory, LogSettings(segment_bytes=64 * 1024))


#: A bound for what never happens; a busy disk may take long.
PATIENCE = 60
ENGINES: dict[str, Opener] = {"embedded": _embedded}


@pytest.fixture(params=ENGINES)
def opener(request: pytest.FixtureRequest) -> Opener:
    return ENGINES[request.param]


class Recorder:
    """A listener that notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[Batch] = []

    def committed(self, batches: Sequence[Batch]) -> None:
        self.heard += batches

    def rewound(self, end: int) -> None:
        raise AssertionError("nothing failed here")


def run_of(*payloads: bytes, topic: str = "t") -> Run:
    headers = (("k", "v"),)
    return Run(topic, list(payloads), protocol="p", publisher="me", headers=headers)


async def durable(engine: Engine, offset: int) -> LogUnavailable | None:
    done: asyncio.Future[LogUnavailable | None] = asyncio.get_running_loop().create_future()
    engine.when_durable(offset, done.set_result)
    engine.hurry()
    return await asyncio.wait_for(done, PATIENCE)


async def everything(engine: Engine, wanted: Callable[[str], bool], start: int = 0) -> list[Batch]:
    batches: list[Batch] = []
    while start < engine.watermark:
        found, following = await engine.read(start, wanted, 10_000)
        assert following > start
        batches += found
        start = following
    return batches


def test_offsets_have_no_gaps_and_start_at_zero(opener: Opener, tmp_path: Path) -> None:
    async def check() -> None:
        engine = await opener(tmp_path)
        assert (engine.start, engine.watermark, engine.end) == (0, 0, 0)
        first, second = engine.append(run_of(b"a", b"b")), engine.append(run_of(b"c"))
        assert (first.offset, first.end, second.offset, second.end) == (0, 2, 2, 3)
        assert first.timestamp <= second.timestamp
        assert (engine.watermark, engine.end) == (0, 3)
        await durable(engine, 3)
        assert (engine.watermark, engine.end) == (3, 3)
        await engine.close()

    asyncio.run(check())


def test_progress_is_told_in_order(opener: Opener, tmp_path: Path) -> None:
    async def check() -> None:
        engine = await opener(tmp_path)
        listener = Recorder()
        engine.attach(listener)
        settled: list[int] = []

        def note(end: int, error: LogUnavailable | None) -> None:
            settled.append(end)

        batches = [engine.append(run_of(b"x" * n)) for n in range(50)]
        for batch in reversed(batches):
            engine.when_durable(batch.end, partial(note, batch.end))
        assert await durable(engine, engine.end) is None
        assert settled == [batch.end for batch in batches]
        assert listener.heard == batches
        engine.when_durable(1, lambda _: settled.append(-1))  # long past: at once
        assert settled[-1] == -1
        await engine.close()

    asyncio.run(check())


def test_nobody_has_to_hurry(opener: Opener, tmp_path: Path) -> None:
    async def check() -> None:
        engine = await opener(tmp_path)
        batch = engine.append(run_of(b"x"))
        done = asyncio.Event()
        engine.when_durable(batch.end, lambda _: done.set())
        await asyncio.wait_for(done.wait(), PATIENCE)
        await engine.close()

    asyncio.run(check())


def test_what_is_read_is_what_was_appended(opener: Opener, tmp_path: Path) -> None:
    async def check() -> None:
        engine = await opener(tmp_path)
        runs = [run_of(b"%d" % n * 100, b"", topic=f"t/{n % 3}") for n in range(300)]
        for run in runs:
            engine.append(run)
        await durable(engine, engine.end)
        got = await everything(engine, lambda topic: True)
        assert [payload for b in got for payload in b.run.payloads] == [
            payload for run in runs for payload in run.payloads
        ]
        assert got[0].run.headers == (("k", "v"),)
        assert (got[0].run.protocol, got[0].run.publisher) == ("p", "me")
        some = await everything(engine, lambda topic: topic == "t/1")
        assert {b.run.topic for b in some} == {"t/1"}
        assert sum(len(b.run) for b in some) == 200
        (inside, *_), _ = await engine.read(3, lambda topic: True, 1)
        assert inside.offset == 3  # in the middle of a run
        await engine.close()

    asyncio.run(check())


def test_an_engine_that_rests_keeps_what_is_not_durable(opener: Opener, tmp_path: Path) -> None:
    async def check() -> None:
        engine = await opener(tmp_path)
        engine.append(run_of(b"a", b"b"))
        await durable(engine, engine.end)
        fresh = engine.append(run_of(b"c"))
        engine.rest()
        assert (engine.recent(0), engine.recent(2)) == (None, fresh)
        await durable(engine, engine.end)
        got = await everything(engine, lambda topic: True)
        assert [payload for b in got for payload in b.run.payloads] == [b"a", b"b", b"c"]
        assert engine.recent(engine.append(run_of(b"d")).offset) is not None
        await engine.close()

    asyncio.run(check())


def test_recent_batches_are_in_memory(opener: Opener, tmp_path: Path) -> None:
    async def check() -> None:
        engine = await opener(tmp_path)
        batch = engine.append(run_of(b"a", b"b", b"c"))
        assert engine.recent(1) is batch
        assert engine.recent(3) is None
        await durable(engine, 3)
        assert engine.recent(2) is batch
        big = run_of(b"x" * 1_000_000)
        for _ in range(64):
            engine.append(big)
            await durable(engine, engine.end)
        assert engine.recent(0) is None  # but not for ever
        assert engine.recent(engine.end - 1) is not None
        await engine.close()

    asyncio.run(check())


def test_a_restart_keeps_everything(opener: Opener, tmp_path: Path) -> None:
    async def check() -> None:
        engine = await opener(tmp_path)
        engine.append(run_of(b"1"))
        last = engine.append(run_of(b"2"))
        engine.notes.save_cursor("someone", 1)
        engine.notes.save_number("something", 1 << 60)
        engine.notes.save_queue("some queue", lambda: b"\0state")
        await engine.close()  # without waiting for anything
        again = await opener(tmp_path)
        assert (again.start, again.watermark, again.end) == (0, 2, 2)
        assert again.notes.load_cursor("someone") == 1
        assert again.notes.load_cursor("nobody") is None
        assert again.notes.load_number("something") == 1 << 60
        assert again.notes.warning is None
        assert again.notes.load_queue("some queue") == b"\0state"
        assert again.notes.load_queue("no queue") is None
        assert again.notes.queue_names() == ["some queue"]
        assert again.append(run_of(b"3")).timestamp >= last.timestamp
        await again.close()

    asyncio.run(check())


def test_congestion_is_told_and_relieved(opener: Opener, tmp_path: Path) -> None:
    async def check() -> None:
        engine = await opener(tmp_path)
        big = run_of(b"x" * 1_000_000)
        while not engine.congested:
            engine.append(big)
        relieved = asyncio.Event()
        engine.when_relieved(relieved.set)
        assert not relieved.is_set()
        await asyncio.wait_for(relieved.wait(), PATIENCE)
        assert not engine.congested
        await engine.close()

    asyncio.run(check())


def test_counting_says_what_reading_would(opener: Opener, tmp_path: Path) -> None:
    async def fill(engine: Engine) -> None:
        for number in range(120):
            for topic in ("a", "b", "c")[: number % 3 + 1]:
                engine.append(run_of(*[b"x" * 700] * (number % 5 + 1), topic=topic))
            if number % 7 == 0:
                await durable(engine, engine.end)
        await durable(engine, engine.end)

    async def compare(engine: Engine) -> None:
        def wanted(topic: str) -> bool:
            return topic in ("b", "c")

        for start in range(0, engine.watermark, 37):
            batches = await everything(engine, wanted, start)
            count, counted, oldest = await engine.count(start, wanted, PATIENCE)
            assert count == sum(len(batch.run) for batch in batches)
            assert counted == engine.watermark
            assert oldest == (batches[0].timestamp if batches else None)
            part, reached, _ = await engine.count(start, wanted, PATIENCE, start + 20)
            ends = [batch.part(start, start + 20) for batch in batches if batch.offset < start + 20]
            assert part == sum(len(batch.run) for batch in ends)
            assert reached == min(start + 20, engine.watermark)
        assert (await engine.count(0, lambda topic: False, PATIENCE))[0] == 0
        assert (await engine.count(0, wanted, 0))[1] < engine.watermark, "no time, no count"

    async def check() -> None:
        engine = await opener(tmp_path)
        await fill(engine)
        await compare(engine)
        await engine.close()
        engine = await opener(tmp_path)
        await compare(engine)
        await engine.close()

    asyncio.run(check())
