"""A queue: it owns its consumers and the feeds that give to them.

    shared      one feed for all consumers: a message goes to one of them, and to another one when
                that one leaves it
    broadcast   a feed for each consumer: a message goes to all that are there; what one of them
                leaves goes to the next one that comes

A queue keeps the messages that are open: held by a consumer, returned by one, or on their way to
the dead letters. Messages that wait are in the log.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.broker.queues import ledger
from headwater.broker.queues.consumer import Consumer, Given
from headwater.broker.queues.feed import Feed
from headwater.broker.queues.ledger import Returned, Usage
from headwater.commands import Outlet
from headwater.queue_spec import QueueSpec
from headwater.rights import Allowed

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

# So many messages that consumers have left wait for others; older ones become dead letters.
MOST_RETURNED = 100_000
TOO_MANY = f"more than {MOST_RETURNED:,} messages of the queue were left by consumers"

#: Moves messages to the dead-letter topic: (offset, deliveries) and why.
Bury = Callable[["Queue", Sequence[tuple[int, int]], str], None]


class Queue:
    def __init__(self, broker: "Broker", spec: QueueSpec, bury: Bury) -> None:
        self.spec = spec
        self._broker = broker
        self._engine = broker.engine
        self._notes = broker.engine.notes
        self._bury = bury
        self._loop = asyncio.get_running_loop()
        content = self._notes.load_queue(spec.name)
        #: A crash would make it begin anew, behind what it was to give.
        self.is_unsaved = content is None and not spec.from_start
        if content is None:
            position = self._engine.start if spec.from_start else self._engine.end
            left: list[tuple[int, int]] = []
            self.usage = Usage(int(time.time()), given=False)
        else:
            self.usage = ledger.usage(content)
            position, left = ledger.decode(content, self._engine.end)
        self._position = position  # the furthest that any feed has come
        self._returned = Returned()  # waits for the next consumer (broadcast)
        self._feeds: dict[Consumer, Feed] = {}
        self._shared = self._new_feed() if spec.shared else None
        self.buried: dict[int, int] = {}  # on their way to the dead letters
        self._lots: deque[Given] = deque()  # by their deadline
        self._timer: asyncio.TimerHandle | None = None
        self.deliveries = 0
        self.acknowledged = 0
        #: Messages that waited too long while nobody consumed the queue, since the broker started.
        self.dropped = 0
        self.dropped_at = 0.0  # when the last of them were dropped, in seconds since 1970
        (self._shared.returned if self._shared else self._returned).add(left)

    def begin(self) -> None:
        """It exists from now on. Before that it can only be looked at."""
        if not self.usage.unused_since:
            self._use(False)
        left = (self._shared.returned if self._shared else self._returned).clear()
        self._give_back(left, f"it was delivered {self.spec.max_deliveries} times")

    # What consumers do

    def add(
        self,
        key: tuple[str, str],
        outlet: Outlet,
        prefetch: int | None = None,
        allowed: Allowed | None = None,
    ) -> Consumer:
        """A consumer comes, with a prefetch or that of the queue. It may get what is `allowed`.
        Call `start` when it is ready for messages."""
        consumer = Consumer(key, outlet, prefetch or self.spec.prefetch)
        feed = self._shared or self._new_feed()
        self._feeds[consumer] = feed
        feed.join(consumer, allowed)
        if self.usage.unused_since:
            self._use(True)
            self._changed()
        if feed is not self._shared:
            feed.returned.add(self._returned.clear())
        return consumer

    def start(self, consumer: Consumer) -> None:
        self._feeds[consumer].pump()

    def remove(self, consumer: Consumer) -> None:
        """A consumer is gone; what it holds goes to another one."""
        feed = self._feeds.pop(consumer)
        feed.leave(consumer)
        if not self._feeds:
            self._use(False)
        self._position = max(self._position, feed.position)
        left = consumer.holdings.clear()
        if feed is not self._shared:
            feed.close()
            left += feed.returned.clear()
        self._give_back(left, "its consumer left")

    def acknowledge(self, consumer: Consumer, offsets: Sequence[int]) -> None:
        if consumer in self._feeds:
            self.acknowledged += consumer.holdings.settle(offsets)
            self._drop_settled_lots()
            self._changed()
            self.resume(consumer)

    def resume(self, consumer: Consumer) -> None:
        """There may be room again."""
        consumer.blocked = False
        self._feeds[consumer].pump()

    # What the rest of the broker asks

    @property
    def consumers(self) -> int:
        return len(self._feeds)

    @property
    def in_flight(self) -> int:
        return sum(len(consumer.holdings) for consumer in self._feeds)

    @property
    def to_repeat(self) -> int:
        return len(self._returned) + sum(len(feed.returned) for feed in self._all_feeds())

    @property
    def position(self) -> int:
        """Everything before it was given to a consumer once."""
        return max([self._position, *(feed.position for feed in self._all_feeds())])

    def position_of(self, consumer: Consumer) -> int:
        """How far the feed has come that gives to this consumer."""
        return self._feeds[consumer].position

    @property
    def busy(self) -> bool:
        return any(feed.busy for feed in self._all_feeds())

    def rewind(self, end: int) -> None:
        for feed in self._all_feeds():
            feed.rewind(end)

    def skip_to(self, offset: int) -> int | None:
        """Pass over what waits before an offset, unless someone consumes the queue. Returns where
        it was; None if nothing has changed."""
        if self._shared is None or self._feeds or self._shared.position >= offset:
            return None
        before = self._shared.skip_to(offset)
        self._changed()
        return before

    def note_dropped(self, count: int) -> None:
        self.dropped += count
        self.dropped_at = time.time()

    def settled(self, offsets: Iterable[int]) -> None:
        """Dead letters are where they belong."""
        for offset in offsets:
            self.buried.pop(offset, None)
        self._changed()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for feed in self._all_feeds():
            feed.close()

    # Inside

    def _all_feeds(self) -> Iterable[Feed]:
        return (self._shared,) if self._shared else self._feeds.values()

    def _new_feed(self) -> Feed:
        position = max(self._position, *(feed.position for feed in self._feeds.values()), 0)
        around = self._broker.around
        return Feed(around, spec=self.spec, position=position, report=self._given)

    def _given(self, given: list[Given]) -> None:
        """A feed has given messages to consumers, each of which holds its lot by now."""
        if not self.usage.given:
            self.usage = self.usage._replace(given=True)
        for lot, _ in given:
            self.deliveries += len(lot.offsets)
        if given and self.spec.ack_seconds is not None:
            self._lots += given
            if self._timer is None:
                self._timer = self._loop.call_at(given[0][0].deadline, self._expire)
        self._changed()

    def _use(self, used: bool) -> None:
        self.usage = Usage(0 if used else int(time.time()), self.usage.given)

    def _changed(self) -> None:
        self._notes.save_queue(self.spec.name, self._snapshot)

    def _snapshot(self) -> bytes:
        """Held messages count as to be repeated: after a crash nobody holds them any more."""
        return ledger.encode(
            self.position,
            self._returned.deliveries(),
            self.buried,
            *(feed.returned.deliveries() for feed in self._all_feeds()),
            *(consumer.holdings.deliveries() for consumer in self._feeds),
            usage=self.usage,
        )

    def _give_back(self, items: Sequence[tuple[int, int]], why: str) -> None:
        """Messages come back: to the next consumer, or among the dead letters."""
        most = self.spec.max_deliveries
        dead = [item for item in items if most is not None and item[1] >= most]
        alive = [item for item in items if most is None or item[1] < most]
        self._let_die(dead, why)
        target = self._shared.returned if self._shared else self._returned
        target.add(alive)
        self._let_die(target.take_oldest(len(target) - MOST_RETURNED), TOO_MANY)
        self._changed()
        if self._shared:
            self._shared.pump()

    def _let_die(self, items: Sequence[tuple[int, int]], why: str) -> None:
        if items:
            self.buried.update(items)
            self._bury(self, items, why)

    def _drop_settled_lots(self) -> None:
        while self._lots and not self._lots[0][0].open:
            self._lots.popleft()

    def _expire(self) -> None:
        """Whoever has not acknowledged in time loses what it holds."""
        self._timer = None
        now = self._loop.time()
        why = f"it was not acknowledged within {self.spec.ack_seconds:g} s"
        while self._lots and (not self._lots[0][0].open or self._lots[0][0].deadline <= now):
            lot, consumer = self._lots.popleft()
            if lot.open:
                left = consumer.take_back(lot)
                consumer.blocked = False
                self._give_back([(offset, lot.deliveries) for offset in left], why)
        if self._lots:
            self._timer = self._loop.call_at(self._lots[0][0].deadline, self._expire)
