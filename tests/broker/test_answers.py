"""Answers keep their place among deliveries."""

import asyncio
from pathlib import Path

from headwater.broker.broker import Broker
from headwater.commands import Publish, Subscribe, Subscription
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.message import Batch, Run
from tests.broker.client import Client, settle


class Witness(Client):
    """Notes what comes in the order in which it comes."""

    def __init__(self, broker: Broker) -> None:
        self.seen: list[bytes] = []
        super().__init__(broker)

    def respond(self, answer: bytes) -> None:
        self.seen.append(answer)

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        self.seen += batch.run.payloads
        return len(subscriptions)


def test_deliveries_do_not_overtake_the_answer_to_a_subscribe(tmp_path: Path) -> None:
    """The answer waits until what the client has published before is durable."""

    async def check() -> None:
        engine = await EmbeddedEngine.open(tmp_path, LogSettings())
        broker = Broker(engine)
        one, other = Witness(broker), Client(broker)
        run = Run("b", [b"own"], protocol="test", publisher="me")
        one.peer.handle(Publish(run, b"published"))
        one.peer.handle(Subscribe(("", "a"), LevelFilter.exact("a"), b"subscribed"))
        other.publish("a", b"0")
        other.publish("a", b"1")
        assert one.seen == []
        await settle(broker)
        assert one.seen == [b"published", b"subscribed", b"0", b"1"]
        other.publish("a", b"2")
        await settle(broker)
        assert one.seen[4:] == [b"2"]
        broker.close()
        await engine.close()

    asyncio.run(check())
