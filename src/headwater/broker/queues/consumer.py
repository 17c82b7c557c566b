"""Consumers: connections that take messages from a queue, and how messages are spread over them."""

from headwater.broker.queues.ledger import Holdings, Lot
from headwater.commands import Outlet
from headwater.message import Batch

_UNBOUNDED = 1 << 62


class Consumer:
    """One connection that takes messages from one queue."""

    def __init__(self, key: tuple[str, str], outlet: Outlet, prefetch: int | None) -> None:
        self.key = key
        self.outlet = outlet
        self.holdings = Holdings()
        #: It had no room when it was last asked.
        self.blocked = False
        self._prefetch = prefetch

    @property
    def room(self) -> int:
        """How many messages it may hold in addition, as far as the queue is concerned."""
        if self.blocked:
            return 0
        return _UNBOUNDED if self._prefetch is None else self._prefetch - len(self.holdings)

    def take(
        self, batch: Batch, deliveries: int, deadline: float, most: int
    ) -> tuple[int, Lot | None]:
        """Deliver the first messages of a batch; returns the offset behind them, and those that
        the consumer has to acknowledge."""
        offered = self.outlet.offer(batch, self.key, deliveries > 1, min(most, self.room))
        if offered is None:
            self.blocked = True
            return batch.offset, None
        end, awaited = offered
        if not awaited:
            return end, None
        lot = Lot(awaited, deliveries, deadline)
        self.holdings.add(lot)
        return end, lot

    def take_back(self, lot: Lot) -> list[int]:
        left = self.holdings.take_back(lot)
        self.outlet.retract(self.key, left)
        return left


#: Messages that a consumer was given and has to acknowledge.
Given = tuple[Lot, Consumer]


def distribute(
    consumers: list[Consumer], batch: Batch, deliveries: int, deadline: float
) -> tuple[int, list[Given]]:
    """Spread messages over the consumers that have room, in turns; returns the offset behind those
    that were taken, and what was given to whom."""
    position, given = batch.offset, []
    while position < batch.end:
        ready = [consumer for consumer in consumers if consumer.room > 0]
        if not ready:
            break
        share = -(-(batch.end - position) // len(ready))
        for consumer in ready:
            if position < batch.end:
                rest = batch.part(position, batch.end)
                position, lot = consumer.take(rest, deliveries, deadline, share)
                if lot is not None:
                    given.append((lot, consumer))
        if len(consumers) > 1:
            consumers.append(consumers.pop(0))
    return position, given
