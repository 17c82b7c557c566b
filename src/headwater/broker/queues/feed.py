"""A feed: a cursor that gives a queue's messages to its consumers, those to be repeated first."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import perf_counter

from headwater.broker.cursor import (
    SLICE_SECONDS,
    Cursor,
    Surroundings,
    Wants,
    has_expired,
)
from headwater.broker.queues.consumer import Consumer, Given, distribute
from headwater.broker.queues.ledger import Returned
from headwater.broker.router import OwnedSubscription
from headwater.errors import Code, Refusal
from headwater.message import Batch
from headwater.queue_spec import QueueSpec
from headwater.rights import Allowed

logger = logging.getLogger(__name__)

NEVER = float("inf")

#: Hears what a feed gave to whom; of nothing, when it only forgot messages that are gone.
Report = Callable[[list[Given]], None]


def _to_nobody(given: list[Given]) -> None:
    """The queue is gone."""


class Feed(Cursor):
    def __init__(
        self, around: Surroundings, *, spec: QueueSpec, position: int, report: Report
    ) -> None:
        super().__init__(around)
        self.durable = True
        self._loop = asyncio.get_running_loop()
        self._spec = spec
        self._report = report
        self.name = spec.name
        self._position = position
        self.consumers: list[Consumer] = []
        self.returned = Returned()

    def join(self, consumer: Consumer, allowed: Allowed | None = None) -> None:
        """All consumers of a queue are of one owner, so the first one's rights are those of all."""
        if not self.consumers:
            for number, wanted in enumerate(self._spec.filters):
                subscription: OwnedSubscription[Cursor] = OwnedSubscription(
                    (self._spec.name, str(number)), wanted, self, 0, allowed
                )
                self.subscriptions[subscription.key] = subscription
                self._router.add(subscription)
        self.consumers.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        if not self.consumers:
            # Nobody is there to be given anything: be no part of any route until someone comes.
            self._stop_reading()
            self._late = None
            self._position = self.position
            for subscription in self.subscriptions.values():
                self._router.remove(subscription)
            self.subscriptions.clear()

    def close(self) -> None:
        super().close()
        self._report = _to_nobody  # nothing of a queue that is gone may lead back to it

    def skip_to(self, offset: int) -> int:
        """Pass over what waits, while there is no consumer. Returns where it was."""
        self._count_lost()  # that is not what is passed over here
        before, self._position = self.position, offset
        return before

    def _keep_ahead(self, batches: Sequence[Batch]) -> None:
        self._read_ahead.keep(self, batches)

    def pump(self) -> None:
        """What has to be repeated goes first."""
        stop = perf_counter() + SLICE_SECONDS
        while self.returned and not self._closed and self._has_room():
            if self._waits_for_log:
                return
            batch = self._engine.recent(self.returned.oldest())
            if batch is None:
                self._reading = asyncio.get_running_loop().create_task(self._read_returned())
                return
            self._repeat(batch)
            if perf_counter() >= stop:
                self._pump_soon()
                return
        if self.consumers and not self.returned:
            super().pump()

    def _has_room(self) -> bool:
        return any(consumer.room > 0 for consumer in self.consumers)

    def _give(self, batch: Batch, wants: Wants) -> int:
        return self._distribute(batch, 1)

    def _distribute(self, batch: Batch, deliveries: int) -> int:
        patience = self._spec.ack_seconds
        deadline = NEVER if patience is None else self._loop.time() + patience
        end, given = distribute(self.consumers, batch, deliveries, deadline)
        if end > batch.offset:
            self._report(given)
        return end

    def _repeat(self, batch: Batch) -> None:
        """Deliver again what has to be, as far as it is in this batch."""
        while stretch := self.returned.next_stretch(batch.end):
            first, last, deliveries = stretch
            if batch.run.headers and has_expired(batch.run.headers):
                taken = last
                self._report([])
            else:
                taken = self._distribute(batch.part(first, last), deliveries + 1)
            self.returned.remove_before(taken)
            if taken < last:
                return

    async def _read_returned(self) -> None:
        """What has to be repeated is not in memory any more: take it from the log."""
        start = self.returned.oldest()
        found = await self._try_to_read(start)
        if found is None:
            return
        batches, end = found
        reached, stop = start, perf_counter() + SLICE_SECONDS
        for batch in batches:
            if perf_counter() >= stop:
                await self._let_others()
                stop = perf_counter() + SLICE_SECONDS
            if self._left_before(reached):
                return
            self._forget(batch.offset)
            self._repeat(batch)
            if self.returned and self.returned.oldest() < batch.end:
                return  # no room; the rest is read again later
            reached = batch.end
        if self._left_before(reached):
            return
        self._forget(end)
        self._pump_soon()

    def _left_before(self, offset: int) -> bool:
        """Whether a consumer left some from before an offset meanwhile: these were not read."""
        if self.returned and self.returned.oldest() < offset:
            self._pump_soon()
            return True
        return False

    async def _let_others(self) -> None:
        """Have their turn."""
        self._reading = asyncio.current_task()
        await asyncio.sleep(0)
        self._done_reading()

    def _forget(self, offset: int) -> None:
        """What is returned from before this place in the log is not there: retention took it, or
        the queue's bindings have changed."""
        if gone := self.returned.remove_before(offset):
            self.lost += gone
            self._gaps.add(gone)
            logger.warning("%d messages of queue %s are no longer in the log", gone, self.name)
            self._report([])

    @property
    def _reader(self) -> int:
        """A client may consume very many queues, and is one reader all the same."""
        return id(self.consumers[0].outlet if self.consumers else self)

    @property
    def _described(self) -> str:
        return f"queue {self.name}"

    def _broken(self, sentence: str) -> None:
        for consumer in list(self.consumers):
            consumer.outlet.dismiss(Refusal(Code.INTERNAL, sentence))
