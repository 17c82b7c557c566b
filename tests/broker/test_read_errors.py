"""A read of the log that fails is tried again, or ends the connection: nobody is left behind."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.broker import cursor
from headwater.broker.broker import Broker
from headwater.commands import Subscribe
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import LogSettings
from headwater.log.embedded.file import LogFile
from headwater.queue_spec import QueueSpec
from tests.broker.client import Client, settle
from tests.broker.failing import FailingEngine, quick_retries

__all__ = ["quick_retries"]

pytestmark = pytest.mark.usefixtures("quick_retries")

QUEUE = QueueSpec("test/q", (LevelFilter.exact("a"),), from_start=True, prefetch=10)

Join = Callable[[Client], None]


def subscribe(client: Client) -> None:
    client.peer.handle(Subscribe(("", "a"), LevelFilter.exact("a"), durable="someone"))


def consume(client: Client) -> None:
    client.consume(QUEUE)


everyone = pytest.mark.parametrize("join", [subscribe, consume])


def run(directory: Path, check: Callable[[Broker, FailingEngine], Awaitable[None]]) -> None:
    async def everything() -> None:
        engine = await FailingEngine.open(directory, LogSettings(sync="os", tail_bytes=0))
        broker = Broker(engine)
        publisher = Client(broker)
        publisher.publish("a", b"0", b"1")
        await settle(broker)
        try:
            await check(broker, engine)
        finally:
            broker.close()
            await engine.close()

    asyncio.run(everything())


@everyone
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_it_is_tried_again(tmp_path: Path, join: Join, number: int) -> None:
    async def check(broker: Broker, engine: FailingEngine) -> None:
        engine.failures, engine.error = 5, OSError(number, "no luck")
        client = Client(broker)
        join(client)
        await settle(broker)
        assert [payload for _, payload, _ in client.delivered] == [b"0", b"1"]
        assert not client.closed
        assert (broker.read_errors.count, broker.read_errors.last) == (5, "no luck")

    run(tmp_path, check)


@everyone
def test_a_file_that_cannot_be_read_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, join: Join
) -> None:
    read, failures = LogFile.read, [OSError(errno.EIO, "no luck")] * 5

    def failing(self: LogFile, position: int, length: int) -> bytes:
        if failures:
            raise failures.pop()
        return read(self, position, length)

    async def check(broker: Broker, engine: FailingEngine) -> None:
        monkeypatch.setattr(LogFile, "read", failing)
        client = Client(broker)
        join(client)
        await settle(broker)
        assert [payload for _, payload, _ in client.delivered] == [b"0", b"1"]
        assert not client.closed and broker.read_errors.count == 5
        place = "segment 00000000000000000000.log, offsets 0 to 1"
        assert broker.read_errors.last == f"no luck ({place})"

    run(tmp_path, check)


@everyone
@pytest.mark.parametrize("error", [OSError(errno.EIO, "no luck"), KeyError("a fault of ours")])
def test_who_cannot_be_served_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, join: Join, error: Exception
) -> None:
    monkeypatch.setattr(cursor, "RETRY_FOR_SECONDS", 0.01)

    async def check(broker: Broker, engine: FailingEngine) -> None:
        engine.failures, engine.error = 1 << 30, error
        client = Client(broker)
        join(client)
        await settle(broker)
        assert client.closed and not client.delivered
        assert broker.read_errors.count
        client.leave()
        # Whoever comes when it can be read again gets all of it.
        engine.failures = 0
        another = Client(broker)
        join(another)
        await settle(broker)
        assert [payload for _, payload, _ in another.delivered] == [b"0", b"1"]

    run(tmp_path, check)


def test_who_comes_later_has_the_whole_time_for_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue stays when its consumers leave, and so does what it knows of reads that failed."""

    async def check(broker: Broker, engine: FailingEngine) -> None:
        engine.failures, began = 1 << 30, asyncio.get_running_loop().time()
        client = Client(broker)
        consume(client)
        while not broker.read_errors.count:
            await asyncio.sleep(0)
        client.leave()
        # As if that had been long ago.
        passed = asyncio.get_running_loop().time() - began
        monkeypatch.setattr(cursor, "RETRY_FOR_SECONDS", passed)
        while asyncio.get_running_loop().time() < began + 2 * passed:
            await asyncio.sleep(0)
        engine.failures = 1
        another = Client(broker)
        consume(another)
        await settle(broker)
        assert [payload for _, payload, _ in another.delivered] == [b"0", b"1"]
        assert not another.closed

    run(tmp_path, check)


@everyone
def test_who_leaves_meanwhile_is_not_read_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, join: Join
) -> None:
    for pause in ("FIRST_PAUSE_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(cursor, pause, 3600.0)

    async def check(broker: Broker, engine: FailingEngine) -> None:
        engine.failures = 1
        client = Client(broker)
        join(client)
        while not broker.read_errors.count:
            await asyncio.sleep(0)
        assert broker.busy
        client.leave()
        assert not broker.busy

    run(tmp_path, check)
