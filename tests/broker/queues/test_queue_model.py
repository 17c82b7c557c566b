"""Queues against a simple model: whatever happens, nothing is lost and nothing done comes back."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from headwater.broker.broker import Broker
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import LogSettings
from headwater.queue_spec import QueueSpec
from tests.broker.client import Client, settle
from tests.broker.failing import FailingEngine, quick_retries
from tests.broker.model import BrokerModel, short

__all__ = ["quick_retries"]

pytestmark = pytest.mark.usefixtures("quick_retries")

SPEC = QueueSpec("test/q", (LevelFilter.exact("a"),), from_start=True, prefetch=4)


class Queues(BrokerModel):
    """Publish, consume, acknowledge, drop and restart, in any order.

    The model is two sets: what was published to the queue's topic, and what someone acknowledged.
    """

    spec = SPEC
    #: With none, all that is durable is read from the files.
    tail_bytes = LogSettings().tail_bytes

    @initialize()
    def start(self) -> None:
        self.clients: list[Client] = []
        self.published: set[int] = set()
        self.acknowledged: set[int] = set()
        self.begin()

    async def _open(self) -> None:
        self.engine = await FailingEngine.open(
            self.directory, LogSettings(sync="os", tail_bytes=self.tail_bytes)
        )
        self.broker = Broker(self.engine)
        self.broker.queue(self.spec)

    async def _close(self) -> None:
        for client in self.clients:
            client.leave()
        self.clients.clear()
        self.broker.close()
        await self.engine.close()

    @rule(count=st.integers(1, 10), wanted=st.booleans())
    def publish(self, count: int, wanted: bool) -> None:
        async def work() -> None:
            first = self.engine.end
            publisher = Client(self.broker)
            publisher.publish("a" if wanted else "b", *[b"x"] * count)
            publisher.leave()
            if wanted:
                self.published.update(range(first, first + count))
            await settle(self.broker)

        self.wait(work())

    @rule(window=st.integers(1, 6))
    def consume(self, window: int) -> None:
        async def work() -> None:
            client = Client(self.broker, window)
            client.consume(self.spec)
            self.clients.append(client)
            await settle(self.broker)

        if len(self.clients) < 4:
            self.wait(work())

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if client.held:
            done = data.draw(st.lists(st.sampled_from(sorted(client.held)), unique=True))
            self.acknowledged.update(done)
            self.wait(self._after(partial(client.acknowledge, *done)))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """Some leave, at once or one by one, while the broker reads for those that stay."""
        leaving = data.draw(st.lists(st.sampled_from(self.clients), min_size=1, unique_by=id))
        turns = data.draw(st.integers(0, 3))

        async def work() -> None:
            for client in leaving:
                self.clients.remove(client)
                client.leave()
                for _ in range(turns):
                    await asyncio.sleep(0)
            await settle(self.broker)

        self.wait(work())

    async def _after(self, act: Callable[[], None]) -> None:
        act()
        await settle(self.broker)

    @rule(count=st.integers(1, 3))
    def let_reads_fail(self, count: int) -> None:
        """The next ones, whenever they come."""
        self.engine.failures = count

    @invariant()
    def nobody_has_what_is_not_the_queues(self) -> None:
        for client in getattr(self, "clients", []):
            assert client.held.keys() <= self.published
            assert len(client.held) <= min(client.window, 4)

    async def _check(self) -> None:
        """Everyone leaves, and one consumer takes all that is left."""
        for client in self.clients:
            client.leave()
        self.clients.clear()
        client = Client(self.broker)
        client.consume(self.spec)
        await settle(self.broker)
        for _ in range(len(self.published) + 1):
            if not client.held:
                break
            self.verify_drained(client)
            self.acknowledged.update(client.held)
            client.acknowledge(*list(client.held))
            await settle(self.broker)
        client.leave()
        assert self.acknowledged == self.published

    def verify_drained(self, client: Client) -> None:
        assert self.acknowledged.isdisjoint(client.held), "done, and here again"


class SharedQueues(Queues):
    @invariant()
    def a_message_has_one_holder(self) -> None:
        held = [offset for client in getattr(self, "clients", []) for offset in client.held]
        assert len(held) == len(set(held))
        assert self.acknowledged.isdisjoint(held) if held else True


class BroadcastQueues(Queues):
    spec = replace(SPEC, shared=False)

    def verify_drained(self, client: Client) -> None:
        """What one consumer left comes again, even if another one acknowledged it."""


class SharedQueuesOnDisk(SharedQueues):
    tail_bytes = 0


class BroadcastQueuesOnDisk(BroadcastQueues):
    tail_bytes = 0


TestSharedQueues = pytest.mark.property(SharedQueues.TestCase)
TestBroadcastQueues = pytest.mark.property(BroadcastQueues.TestCase)
TestSharedQueuesOnDisk = pytest.mark.property(SharedQueuesOnDisk.TestCase)
TestBroadcastQueuesOnDisk = pytest.mark.property(BroadcastQueuesOnDisk.TestCase)
for machine in (
    *(TestSharedQueues, TestBroadcastQueues),
    *(TestSharedQueuesOnDisk, TestBroadcastQueuesOnDisk),
):
    machine.settings = short(5, steps=25)
