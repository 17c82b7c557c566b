"""Dead letters against a simple model: whatever operators do, and whatever fails meanwhile, every
message is acknowledged, dead or deleted, and only one of these."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from headwater.broker.broker import Broker
from headwater.broker.queues import dead
from headwater.errors import Code, Refusal
from headwater.log.embedded.engine import LogSettings
from tests.broker.client import Client, settle
from tests.broker.failing import FailingEngine, quick_retries
from tests.broker.model import BrokerModel, short
from tests.broker.queues.test_queue_model import SPEC

__all__ = ["quick_retries"]

MORTAL = replace(SPEC, max_deliveries=1, dead_topic="dead/q")

OPERATIONS = ("redrive", "redrive one", "redrive two", "purge")
operations = st.sampled_from(OPERATIONS)


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch, quick_retries: None) -> None:
    """So that something can happen between two of them."""
    monkeypatch.setattr(dead, "CHUNK", 2)
    monkeypatch.setattr(dead, "RETRY_SECONDS", 0.0005)


class DeadLetterModel(BrokerModel):
    @initialize(tail_bytes=st.sampled_from([0, 1 << 20]))
    def start(self, tail_bytes: int) -> None:
        self.tail_bytes = tail_bytes
        self.published = 0
        self.acknowledged: Counter[bytes] = Counter()
        self.purged = 0
        self.begin()

    async def _open(self) -> None:
        log = LogSettings(sync="os", tail_bytes=self.tail_bytes)
        self.engine = await FailingEngine.open(self.directory, log)
        self.broker = Broker(self.engine)
        await self.broker.recall()
        self.queue = self.broker.queue(MORTAL)

    async def _close(self) -> None:
        self.broker.close()
        await self.engine.close()

    async def _settle(self) -> None:
        await settle(self.broker)
        while self.queue.buried or self.broker.busy:
            await asyncio.sleep(0.0005)

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        async def work() -> None:
            publisher = Client(self.broker)
            new = range(self.published, self.published + count)
            publisher.publish("a", *[b"%d" % number for number in new])
            self.published += count
            await self._settle()
            publisher.leave()

        self.wait(work())

    @rule(window=st.integers(1, 4), good=st.booleans())
    def consume(self, window: int, good: bool) -> None:
        """Somebody takes some messages, and acknowledges them or dies with them."""
        self.wait(self._consume(window, good))

    async def _consume(self, window: int, good: bool) -> int:
        client = Client(self.broker, window)
        client.consume(MORTAL)
        await self._settle()
        if good:
            self.acknowledged.update(client.held.values())
            client.acknowledge(*list(client.held))
        taken = len(client.delivered)
        client.window = 0  # no more of them
        client.leave()
        await self._settle()
        return taken

    @rule(first=operations, second=operations, turns=st.integers(0, 5))
    def operate(self, first: str, second: str, turns: int) -> None:
        """Two operators, the second a moment after the first."""

        async def work() -> None:
            one = asyncio.ensure_future(self._operate(first))
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.gather(one, self._operate(second))
            await self._settle()

        self.wait(work())

    @rule(what=operations, turns=st.integers(0, 30), failures=st.integers(0, 2))
    def operate_and_restart(self, what: str, turns: int, failures: int) -> None:
        """The broker stops in the middle of it."""

        async def work() -> None:
            self.engine.failures = 0
            dead, purged = await self._count(), self.purged
            self.engine.failures = failures
            task = asyncio.ensure_future(self._operate(what))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.engine.failures = 0
            await self._settle()
            await self._close()
            await self._open()
            if what == "purge":  # it may have been done, and nobody heard of it
                self.purged = purged + dead - await self._count()

        self.wait(work())

    async def _operate(self, what: str) -> None:
        try:
            if what == "purge":
                self.purged += await self.broker.dead.purge(self.queue)
            else:
                limit = {"redrive one": 1, "redrive two": 2}.get(what)
                await self.broker.dead.redrive(self.queue, limit, lambda done, total: None)
        except Refusal as error:
            assert error.code is Code.BUSY
        except OSError:
            pass  # the operator is told, and tries again

    async def _count(self) -> int:
        return await self.broker.dead.count(self.queue)

    @rule(count=st.integers(1, 3))
    def let_reads_fail(self, count: int) -> None:
        self.engine.failures = count

    async def _check(self) -> None:
        self.engine.failures = 0
        while await self._consume(4, good=True):
            pass
        letters: Counter[bytes] = Counter()
        async for batch in self.broker.dead.letters(self.queue):
            letters.update(batch.run.payloads)
        found = self.acknowledged + letters
        twice = {each: (self.acknowledged[each], letters[each]) for each in found}
        assert {each: both for each, both in twice.items() if sum(both) > 1} == {}
        assert self.published - len(found) == self.purged


def with_letters(tail_bytes: int) -> DeadLetterModel:
    """The model, led by hand: its own choices seldom meet dead letters."""
    model = DeadLetterModel()
    model.start(tail_bytes=tail_bytes)
    model.publish(count=7)
    model.consume(window=4, good=False)
    return model


@pytest.mark.parametrize("second", OPERATIONS)
@pytest.mark.parametrize("first", OPERATIONS)
def test_two_operators(first: str, second: str) -> None:
    for turns in (0, 1, 4):
        model = with_letters(0)
        model.operate(first=first, second=second, turns=turns)
        model.teardown()


@pytest.mark.parametrize("failures", [0, 1])
@pytest.mark.parametrize("what", OPERATIONS)
def test_a_stop_in_the_middle_of_an_operation(what: str, failures: int) -> None:
    for turns in (0, 1, 3, 10, 30):
        model = with_letters(0)
        model.operate_and_restart(what=what, turns=turns, failures=failures)
        model.operate(first="redrive", second="redrive", turns=0)
        model.teardown()


TestDeadLetters = pytest.mark.property(DeadLetterModel.TestCase)
TestDeadLetters.settings = short(1, steps=30)
