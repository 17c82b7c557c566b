"""Cursors that have much to give take turns: with each other, and with everyone else."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.broker import cursor
from headwater.broker.broker import Broker
from headwater.commands import Subscribe, Subscription
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.message import Batch
from tests.broker.client import Client, settle

MESSAGES = 100


class Clock:
    """Someone else who takes turns, and counts them."""

    def __init__(self, broker: Broker) -> None:
        self.turns = 0
        self._going = True
        broker.chores.add(self._count())

    def stop(self) -> None:
        self._going = False

    def _count(self) -> Iterator[None]:
        while self._going:
            self.turns += 1
            yield


class Reader(Client):
    """Reads all that there is, and notes in which turn it was given something."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        super().__init__(broker)
        self.turns: set[int] = set()
        self.clock = clock
        topic = LevelFilter.exact("a")
        self.peer.handle(Subscribe(("", "a"), topic, durable="reader", from_start=True))

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        self.turns.add(self.clock.turns)
        return super().deliver(batch, subscriptions)


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20], ids=["from files", "from memory"])
def test_a_reader_of_history_lets_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail_bytes: int
) -> None:
    monkeypatch.setattr(cursor, "SLICE_SECONDS", 0.0)  # one batch at a time

    async def check() -> None:
        engine = await EmbeddedEngine.open(tmp_path, LogSettings(tail_bytes=tail_bytes))
        broker = Broker(engine)
        publisher = Client(broker)
        for number in range(MESSAGES):
            publisher.publish("a", b"%d" % number)
        await settle(broker)
        clock = Clock(broker)
        reader = Reader(broker, clock)
        await settle(broker)
        clock.stop()
        assert [payload for _, payload, _ in reader.delivered] == [
            b"%d" % number for number in range(MESSAGES)
        ]
        assert len(reader.turns) >= MESSAGES - 1
        broker.close()
        await engine.close()

    asyncio.run(check())
