"""Cursors against a plain list: a subscriber gets every message that it wants, once, in order."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from headwater.broker import broker as broker_module
from headwater.broker import late
from headwater.broker.broker import Broker
from headwater.commands import Confirm, Publish, Subscribe, Subscription
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import LogSettings
from headwater.message import Batch, Run
from tests.broker.client import Client, settle
from tests.broker.failing import FailingEngine, quick_retries
from tests.broker.model import BrokerModel, short

__all__ = ["quick_retries"]

pytestmark = pytest.mark.usefixtures("quick_retries", "small_slices")

TOPICS = ("a", "b")
NAMES = ("one", "two")


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that come together are pushed one by one; one that goes to several, to the first at
    once and to the others later, who have not much kept for them until then."""
    monkeypatch.setattr(broker_module, "PUSHED_AT_ONCE", 1)
    monkeypatch.setattr(broker_module, "ONE_TURN", 0)
    monkeypatch.setattr(broker_module, "PUSHED_UNTIMED", 1)
    monkeypatch.setattr(broker_module, "PUSH_SECONDS", -1.0)
    monkeypatch.setattr(late, "MOST_LATE", 3)


class Slow(Client):
    """A subscriber that takes batches while it has room, which it gets now and then."""

    def __init__(self, broker: Broker, topic: str, since: int, name: str | None, room: int) -> None:
        super().__init__(broker)
        self.topic = topic
        self.since = since  # the first offset that it should get
        self.name = name
        self.room = room
        self.own: set[int] = set()  # it published these and does not want them back
        self.peer.handle(Subscribe(("", topic), LevelFilter.exact(topic), durable=name))

    def deliver(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> int:
        if self.room <= 0:
            return 0
        self.room -= len(batch.run)
        return super().deliver(batch, subscriptions)

    @property
    def got(self) -> list[tuple[int, bytes]]:
        return [(offset, payload) for offset, payload, _ in self.delivered]


class Cursors(BrokerModel):
    """Publish, subscribe, stall, go on, confirm, leave, come back and restart, in any order.

    The model is the list of all messages, and for each durable name what it has confirmed.
    """

    #: With none, all that is durable is read from the files.
    tail_bytes = LogSettings().tail_bytes

    @initialize()
    def start(self) -> None:
        self.clients: list[Slow] = []
        self.published: list[tuple[str, bytes]] = []  # by offset
        self.confirmed: dict[str, int] = {}
        self.begin()

    async def _open(self) -> None:
        log = LogSettings(sync="os", tail_bytes=self.tail_bytes)
        self.engine = await FailingEngine.open(self.directory, log)
        self.broker = Broker(self.engine)

    async def _close(self) -> None:
        for client in self.clients:
            client.leave()
        self.clients.clear()
        self.broker.close()
        await self.engine.close()

    def _run(self, topic: str, count: int) -> Run:
        payloads = [b"%d" % (len(self.published) + number) for number in range(count)]
        self.published += [(topic, payload) for payload in payloads]
        return Run(topic, payloads, protocol="test", publisher="me")

    @rule(
        runs=st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(1, 5)), min_size=1),
        settled=st.booleans(),
    )
    def publish(self, runs: list[tuple[str, int]], settled: bool) -> None:
        """Without waiting for the disk, the next step finds messages that are not durable yet."""

        async def work() -> None:
            publisher = Client(self.broker)
            for topic, count in runs:
                publisher.peer.handle(Publish(self._run(topic, count)))
            publisher.leave()
            if settled:
                await settle(self.broker)

        self.wait(work())

    @rule(
        together=st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(1, 5)), min_size=1),
        behind=st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(1, 5))),
        settled=st.booleans(),
    )
    def publish_in_one_step(
        self, together: list[tuple[str, int]], behind: list[tuple[str, int]], settled: bool
    ) -> None:
        """Others publish before all of that is pushed."""

        async def work() -> None:
            runs = [self._run(topic, count) for topic, count in together]
            self.broker.publish_all(self.broker.prepare(runs))
            publisher = Client(self.broker)
            for topic, count in behind:
                publisher.peer.handle(Publish(self._run(topic, count)))
            publisher.leave()
            if settled:
                await settle(self.broker)

        self.wait(work())

    @precondition(lambda self: any(client.name is None for client in self.clients))
    @rule(data=st.data(), topic=st.sampled_from(TOPICS), count=st.integers(1, 5))
    def publish_and_want_no_echo(self, data: st.DataObject, topic: str, count: int) -> None:
        live = [client for client in self.clients if client.name is None]
        client = data.draw(st.sampled_from(live))

        async def work() -> None:
            first = self.engine.end
            client.own.update(range(first, first + count))
            client.peer.handle(Publish(self._run(topic, count), echo=False))
            await settle(self.broker)

        self.wait(work())

    @precondition(lambda self: len(self.clients) < 5)
    @rule(topic=st.sampled_from(TOPICS), room=st.integers(0, 12))
    def subscribe(self, topic: str, room: int) -> None:
        async def work() -> None:
            self.clients.append(Slow(self.broker, topic, self.engine.end, None, room))
            await settle(self.broker)

        self.wait(work())

    @rule(name=st.sampled_from(NAMES), room=st.integers(0, 12))
    def come_back(self, name: str, room: int) -> None:
        """A durable subscriber: its name decides its topic. Whoever has the name loses it."""

        async def work() -> None:
            holders = [client for client in self.clients if client.name == name]
            topic, since = TOPICS[NAMES.index(name)], self.confirmed.setdefault(name, 0)
            self.clients.append(Slow(self.broker, topic, since, name, room))
            for client in holders:
                assert client.closed, "two have the same name"
                self.clients.remove(client)
                client.leave()
            await settle(self.broker)

        self.wait(work())

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), room=st.integers(1, 12))
    def go_on(self, data: st.DataObject, room: int) -> None:
        client = data.draw(st.sampled_from(self.clients))

        async def work() -> None:
            client.room = room
            client.peer.drained()
            await settle(self.broker)

        self.wait(work())

    @precondition(lambda self: any(client.name and client.got for client in self.clients))
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        durable = [client for client in self.clients if client.name and client.got]
        client = data.draw(st.sampled_from(durable))
        offset, _ = data.draw(st.sampled_from(client.got))
        assert client.name is not None
        self.confirmed[client.name] = offset + 1
        client.peer.handle(Confirm(offset + 1))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        client.leave()

    @rule(count=st.integers(1, 3))
    def let_reads_fail(self, count: int) -> None:
        """The next ones, whenever they come."""
        self.engine.failures = count

    def wanted_by(self, client: Slow) -> list[tuple[int, bytes]]:
        return [
            (offset, payload)
            for offset, (topic, payload) in enumerate(self.published)
            if topic == client.topic and offset >= client.since and offset not in client.own
        ]

    @invariant()
    def everyone_has_the_first_messages_that_it_wants(self) -> None:
        for client in getattr(self, "clients", []):
            assert client.got == self.wanted_by(client)[: len(client.got)]

    async def _check(self) -> None:
        """Everyone has room again, and gets all that is left."""
        for client in self.clients:
            client.room = 1 << 62
            client.peer.drained()
        await settle(self.broker)
        for client in self.clients:
            assert client.got == self.wanted_by(client)


class CursorsOnDisk(Cursors):
    tail_bytes = 0


TestCursors = pytest.mark.property(Cursors.TestCase)
TestCursorsOnDisk = pytest.mark.property(CursorsOnDisk.TestCase)
for machine in (TestCursors, TestCursorsOnDisk):
    machine.settings = short(5, steps=25)
