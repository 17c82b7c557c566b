"""A consumer that takes little at a time does not have the log read again for each message."""

import asyncio
from collections.abc import Hashable
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.broker import read_ahead
from headwater.broker.broker import Broker
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.log.engine import Wanted
from headwater.message import Batch
from headwater.queue_spec import QueueSpec
from tests.broker.client import Client, settle

ONE_BY_ONE = QueueSpec("test/q", (LevelFilter.exact("a"),), from_start=True, prefetch=1)
RUNS, MESSAGES = 20, 10


class CountingEngine(EmbeddedEngine):
    reads = 0

    async def read(
        self, offset: int, wanted: Wanted, max_bytes: int, reader: Hashable = None
    ) -> tuple[list[Batch], int]:
        self.reads += 1
        return await super().read(offset, wanted, max_bytes, reader)


async def filled(directory: Path) -> tuple[CountingEngine, Broker]:
    """A broker with messages that are on disk only: every second run is one that is wanted."""
    engine = await CountingEngine.open(directory, LogSettings(tail_bytes=0))
    broker = Broker(engine)
    client = Client(broker)
    for run in range(RUNS):
        client.publish("a", *[b"%d" % (run * MESSAGES + each) for each in range(MESSAGES)])
        client.publish("b", b"not wanted")
    await settle(broker)
    return engine, broker


async def work_off(broker: Broker, *clients: Client) -> None:
    """Acknowledge all that there is, each message before the next one comes."""
    await settle(broker)
    while any(client.held for client in clients):
        for client in clients:
            client.acknowledge(*list(client.held))
        await settle(broker)


def payloads(client: Client) -> list[bytes]:
    return [payload for _, payload, _ in client.delivered]


ALL = [b"%d" % number for number in range(RUNS * MESSAGES)]


def test_one_read_serves_many_messages(tmp_path: Path) -> None:
    async def check() -> None:
        engine, broker = await filled(tmp_path)
        client = Client(broker)
        client.consume(ONE_BY_ONE)
        await work_off(broker, client)
        assert payloads(client) == ALL
        assert engine.reads <= 3
        broker.close()
        await engine.close()

    asyncio.run(check())


def test_the_next_consumer_goes_on_with_the_right_message(tmp_path: Path) -> None:
    async def check() -> None:
        engine, broker = await filled(tmp_path)
        first = Client(broker)
        first.consume(ONE_BY_ONE)
        await settle(broker)
        first.acknowledge(*list(first.held))
        await settle(broker)
        first.leave()  # with the second message in its hands
        second = Client(broker)
        second.consume(ONE_BY_ONE)
        await work_off(broker, second)
        assert payloads(first) == ALL[:2]
        assert payloads(second) == ALL[1:]
        broker.close()
        await engine.close()

    asyncio.run(check())


def test_only_some_queues_have_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "MOST_CURSORS", 2)

    async def check() -> None:
        engine, broker = await filled(tmp_path)
        clients = [Client(broker) for _ in range(3)]
        for number, client in enumerate(clients):
            client.consume(replace(ONE_BY_ONE, name=f"test/{number}"))
        await work_off(broker, *clients)
        assert [payloads(client) for client in clients] == [ALL] * 3
        broker.close()
        await engine.close()

    asyncio.run(check())
