"""Cursors that have much to give take turns: with each other, and with everyone else."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.broker import cursor
from headwater.broker.broker import Broker
from headwater.commands import Publish, Subscribe, Subscription
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.message import Batch, Run
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


TOGETHER = 3000


def test_a_large_group_is_pushed_in_slices_and_in_order(tmp_path: Path) -> None:
    async def check() -> None:
        engine = await EmbeddedEngine.open(tmp_path, LogSettings())
        broker = Broker(engine)
        clock = Clock(broker)
        live, durable, late = Client(broker), Reader(broker, clock), Client(broker)
        everything = LevelFilter.parse("*")
        live.peer.handle(Subscribe(("", "*"), everything))
        runs = [Run("a", [b"%d" % number], protocol="p") for number in range(TOGETHER)]
        group = await asyncio.to_thread(broker.prepare, runs)
        assert len(broker.publish_all(group)) == TOGETHER
        assert len(live.delivered) < TOGETHER, "the rest is for later"
        late.peer.handle(Subscribe(("", "*"), everything))
        live.publish("a", b"behind them")
        await settle(broker)
        clock.stop()
        payloads = [*(b"%d" % number for number in range(TOGETHER)), b"behind them"]
        assert [payload for _, payload, _ in live.delivered] == payloads
        assert [payload for _, payload, _ in durable.delivered] == payloads
        assert [payload for _, payload, _ in late.delivered] == payloads[-1:]
        assert len(durable.turns) > 100
        broker.close()
        await engine.close()

    asyncio.run(check())


def test_who_publishes_behind_a_large_group_gets_no_echo(tmp_path: Path) -> None:
    async def check() -> None:
        engine = await EmbeddedEngine.open(tmp_path, LogSettings())
        broker = Broker(engine)
        client = Client(broker)
        client.peer.handle(Subscribe(("", "a"), LevelFilter.exact("a")))
        runs = [Run("a", [b"x"], protocol="p") for _ in range(TOGETHER)]
        broker.publish_all(broker.prepare(runs))
        for _ in range(10):
            own = Run("a", [b"own"], protocol="p")
            client.peer.handle(Publish(own, echo=False))
        await settle(broker)
        assert [payload for _, payload, _ in client.delivered] == [b"x"] * TOGETHER
        broker.close()
        await engine.close()

    asyncio.run(check())
