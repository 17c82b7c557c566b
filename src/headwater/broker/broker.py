"""The broker: takes runs, gives them to the log, and to everyone who wants them.

It knows topics, subscriptions and positions, and no protocol. The straight way of a message:

    Peer._publish → Broker.publish → Engine.append        it has an offset
                                   → Subscriber.push      live subscribers have it
                    Broker.committed → Peer._settled      it is durable: answers go out
                                     → Subscriber.push    durable subscribers have it
"""

import logging
from collections.abc import Sequence

from headwater.broker.peer import Peer
from headwater.broker.router import Router, Subscription
from headwater.broker.subscriber import Subscriber
from headwater.commands import Outlet, Subscribe
from headwater.errors import Code, Refusal
from headwater.log.engine import Engine, Settled
from headwater.message import Batch, Run

logger = logging.getLogger(__name__)


class Broker:
    def __init__(self, engine: Engine, subscriptions: int = 100_000) -> None:
        self.engine = engine
        #: How many subscriptions a connection may have.
        self.most_subscriptions = subscriptions
        self.router: Router[Subscriber] = Router()
        self._subscribers: set[Subscriber] = set()
        self._durable: dict[str, tuple[Peer, Subscriber]] = {}  # by the name they are known under
        engine.attach(self)

    def join(self, outlet: Outlet) -> Peer:
        """A connection arrives."""
        return Peer(self, outlet)

    def publish(self, run: Run, settled: Settled, exclude: Subscriber | None) -> Batch:
        batch = self.engine.append(run)
        self.engine.when_durable(batch.end, settled)
        route = self.router.route(run.topic)
        for subscriber, subscriptions in route.live:
            if subscriber is not exclude:
                subscriber.push(batch, subscriptions)
        if route.durable:
            self.engine.hurry()
        return batch

    def committed(self, batches: Sequence[Batch]) -> None:
        if self._durable:
            for batch in batches:
                for subscriber, subscriptions in self.router.route(batch.run.topic).durable:
                    subscriber.push(batch, subscriptions)

    def rewound(self, end: int) -> None:
        for subscriber in self._subscribers:
            subscriber.rewind(end)

    def subscriber(self, peer: Peer, outlet: Outlet, command: Subscribe) -> Subscriber:
        """A new cursor for a connection. A durable name has one holder: the newest."""
        subscriber = Subscriber(self.engine, self.router, outlet, command.durable)
        self._subscribers.add(subscriber)
        if subscriber.name is not None:
            if (holder := self._durable.get(subscriber.name)) is not None:
                self.remove(holder[1])
                holder[0].dismiss(Refusal(Code.UNAVAILABLE, "another connection took over"))
            self._durable[subscriber.name] = (peer, subscriber)
        return subscriber

    def resume(self, subscriber: Subscriber) -> None:
        """Let a durable subscriber go on where it stopped; a new one starts at the beginning."""
        assert subscriber.name is not None
        position = self.engine.load_cursor(subscriber.name)
        if position is None:
            position = self.engine.start
            self.engine.save_cursor(subscriber.name, position)
        subscriber.start_from(position)

    def add(self, subscription: Subscription[Subscriber]) -> None:
        subscription.owner.subscriptions[subscription.key] = subscription
        self.router.add(subscription)

    def drop(self, subscription: Subscription[Subscriber]) -> None:
        del subscription.owner.subscriptions[subscription.key]
        self.router.remove(subscription)

    def remove(self, subscriber: Subscriber) -> None:
        """Forget a subscriber and its subscriptions. Doing so twice is harmless."""
        subscriber.close()
        for subscription in list(subscriber.subscriptions.values()):
            self.drop(subscription)
        self._subscribers.discard(subscriber)
        if subscriber.name is not None:
            holder = self._durable.get(subscriber.name)
            if holder is not None and holder[1] is subscriber:
                del self._durable[subscriber.name]
