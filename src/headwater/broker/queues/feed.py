"""A feed: a cursor that gives a queue's messages to its consumers, those to be repeated first."""

import asyncio
import logging
from typing import TYPE_CHECKING

from headwater.broker.cursor import READ_BYTES, Cursor, Gaps, Wants
from headwater.broker.queues.ledger import Holdings, Lot, Returned
from headwater.broker.router import OwnedSubscription, Router
from headwater.commands import Outlet
from headwater.errors import Code, LogError, Refusal
from headwater.log.engine import Engine
from headwater.message import Batch

if TYPE_CHECKING:
    from headwater.broker.queues.queue import Queue

logger = logging.getLogger(__name__)


class Consumer:
    """One connection that takes messages from one queue."""

    def __init__(self, queue: "Queue", key: tuple[str, str], outlet: Outlet) -> None:
        self.queue = queue
        self.key = key
        self.outlet = outlet
        self.holdings = Holdings()
        #: It had no room when it was last asked.
        self.blocked = False

    @property
    def room(self) -> int:
        """How many messages it may hold in addition, as far as the queue is concerned."""
        if self.blocked:
            return 0
        prefetch = self.queue.spec.prefetch
        return 1 << 62 if prefetch is None else prefetch - len(self.holdings)

    def take(self, batch: Batch, deliveries: int, most: int) -> int:
        """Deliver the first messages of a batch; returns the offset behind them."""
        offered = self.outlet.offer(batch, self.key, deliveries > 1, min(most, self.room))
        if offered is None:
            self.blocked = True
            return batch.offset
        end, awaited = offered
        if awaited:
            self.holdings.add(self.queue.delivered(self, awaited, deliveries))
        return end

    def take_back(self, lot: Lot) -> list[int]:
        left = self.holdings.take_back(lot)
        self.outlet.retract(self.key, left)
        return left


class Feed(Cursor):
    durable = True

    def __init__(
        self,
        queue: "Queue",
        engine: Engine,
        router: "Router[Cursor]",
        gaps: Gaps,
        position: int,
    ) -> None:
        super().__init__(engine, router, gaps)
        self._queue = queue
        self.name = queue.spec.name
        self._position = position
        self.consumers: list[Consumer] = []
        self.returned = Returned()

    def join(self, consumer: Consumer) -> None:
        if not self.consumers:
            for number, wanted in enumerate(self._queue.spec.filters):
                subscription: OwnedSubscription[Cursor] = OwnedSubscription(
                    (self._queue.spec.name, str(number)), wanted, self, 0
                )
                self.subscriptions[subscription.key] = subscription
                self._router.add(subscription)
        self.consumers.append(consumer)

    def leave(self, consumer: Consumer) -> None:
        self.consumers.remove(consumer)
        if not self.consumers:
            # Nobody is there to be given anything: be no part of any route until someone comes.
            self._stop_reading()
            self._position = self.position
            for subscription in self.subscriptions.values():
                self._router.remove(subscription)
            self.subscriptions.clear()

    def pump(self) -> None:
        """What has to be repeated goes first."""
        while self.returned and not self._closed and self._reading is None and self._has_room():
            batch = self._engine.recent(self.returned.oldest())
            if batch is None:
                self._reading = asyncio.get_running_loop().create_task(self._read_returned())
                return
            self._repeat(batch)
        if self.consumers and not self.returned:
            super().pump()

    def _has_room(self) -> bool:
        return any(consumer.room > 0 for consumer in self.consumers)

    def _give(self, batch: Batch, wants: Wants) -> int:
        return self._distribute(batch, 1)

    def _distribute(self, batch: Batch, deliveries: int) -> int:
        """Spread the messages over the consumers that have room, in turns."""
        position = batch.offset
        while position < batch.end:
            ready = [consumer for consumer in self.consumers if consumer.room > 0]
            if not ready:
                break
            share = -(-(batch.end - position) // len(ready))
            for consumer in ready:
                if position < batch.end:
                    rest = batch.part(position, batch.end)
                    position = consumer.take(rest, deliveries, share)
            if len(self.consumers) > 1:
                self.consumers.append(self.consumers.pop(0))
        if position > batch.offset:
            self._queue.changed()
        return position

    def _repeat(self, batch: Batch) -> None:
        """Deliver again what has to be, as far as it is in this batch."""
        while stretch := self.returned.next_stretch(batch.end):
            first, last, deliveries = stretch
            taken = self._distribute(batch.part(first, last), deliveries + 1)
            self.returned.remove_before(taken)
            if taken < last:
                return

    async def _read_returned(self) -> None:
        """What has to be repeated is not in memory any more: take it from the log."""
        start = self.returned.oldest()
        try:
            batches, end = await self._engine.read(start, self._wanted(), READ_BYTES)
        except LogError as error:
            self._broken(error)
            return
        finally:
            self._done_reading()
        for batch in batches:
            self._forget(batch.offset)
            self._repeat(batch)
            if self.returned and self.returned.oldest() < batch.end:
                return  # no room; the rest is read again later
        self._forget(end)
        self._pump_soon()

    def _forget(self, offset: int) -> None:
        """What is returned from before this place in the log is not there: retention took it, or
        the queue's bindings have changed."""
        if gone := self.returned.remove_before(offset):
            self.lost += gone
            self._gaps.add(gone)
            logger.warning("%d messages of queue %s are no longer in the log", gone, self.name)
            self._queue.changed()

    def _broken(self, error: LogError) -> None:
        logger.error("queue %s cannot read on: %s", self.name, error)
        for consumer in list(self.consumers):
            consumer.outlet.dismiss(Refusal(Code.INTERNAL, "the log is damaged"))
