"""A subscriber: one connection's cursor over the log.

At the head, batches are pushed to it. When its connection has no room, it falls behind: nothing is
kept for it but a position. When the connection has sent everything, it reads on from memory
or from the log until it is at the head again. So a slow subscriber costs no memory, loses nothing
that is retained, and delays no one.

    position is None    at the head: the next batch is pushed
    position is a number  behind: everything from there on is still to be sent
"""

import asyncio
import logging
from collections import deque

from headwater.broker.router import Router, Subscription
from headwater.commands import Outlet
from headwater.errors import Code, LogError, Refusal
from headwater.log.engine import Engine, Wanted
from headwater.message import Batch

logger = logging.getLogger(__name__)

# How many batches a subscriber looks at before others get their turn.
BATCHES_PER_TURN = 256
# How much is read from the log at once.
READ_BYTES = 512 * 1024
# With more filters than this, asking each one costs more than decoding what nobody wants.
FILTERS_WORTH_ASKING = 64
# How many stretches of its own messages a connection may leave unskipped while it is behind.
OWN_STRETCHES = 10_000


class Subscriber:
    def __init__(
        self,
        engine: Engine,
        router: "Router[Subscriber]",
        outlet: Outlet,
        name: str | None = None,
    ) -> None:
        self._engine = engine
        self._router = router
        self._outlet = outlet
        #: The name that its position is remembered under, if it is.
        self.name = name
        self.durable = name is not None
        self.subscriptions: dict[tuple[str, str], Subscription[Subscriber]] = {}
        #: Messages that retention took away before they could be sent.
        self.lost = 0
        self._position: int | None = None
        self._own: deque[tuple[int, int]] = deque()  # its own messages, not to be echoed
        self._reading: asyncio.Task[None] | None = None
        self._scheduled = False
        self._closed = False

    @property
    def position(self) -> int:
        """Everything before this offset has been sent, or was not wanted."""
        return self._limit() if self._position is None else self._position

    @property
    def behind(self) -> bool:
        return self._position is not None

    def start_from(self, offset: int) -> None:
        self._position = offset
        self.pump()

    def push(self, batch: Batch, subscriptions: tuple[Subscription["Subscriber"], ...]) -> None:
        """A new batch for a subscriber at the head; one that is behind finds it by itself."""
        if self._position is not None:
            return
        if not self._outlet.deliver(batch, subscriptions):
            self._position = batch.offset

    def skip(self, batch: Batch) -> None:
        """A batch of its own that it does not want back."""
        if self._position is None:
            return
        if self._own and self._own[-1][1] == batch.offset:
            self._own[-1] = (self._own[-1][0], batch.end)
        else:
            self._own.append((batch.offset, batch.end))

    @property
    def overcommitted(self) -> bool:
        """It publishes much and reads little of what others publish: it should do that first."""
        return len(self._own) >= OWN_STRETCHES

    def confirm(self, offset: int) -> None:
        """The client has received everything before `offset`."""
        if self.name is not None and not self._closed:
            self._engine.save_cursor(self.name, offset)

    def rewind(self, end: int) -> None:
        """What came from `end` on was not stored; other messages will take those offsets."""
        if self._position is not None and self._position > end:
            self._position = end
        while self._own and self._own[-1][1] > end:
            self._own.pop()

    def close(self) -> None:
        self._closed = True
        if self._reading is not None:
            self._reading.cancel()

    def pump(self) -> None:
        """Send what there is room for."""
        if self._closed or self._reading is not None:
            return
        for _ in range(BATCHES_PER_TURN):
            if self._position is None:
                return
            if self._position >= self._limit():
                self._position = None
                self._own.clear()
                return
            batch = self._engine.recent(self._position)
            if batch is None:
                self._reading = asyncio.get_running_loop().create_task(self._read())
                return
            if not self._offer(batch):
                return
        self._pump_soon()

    def _limit(self) -> int:
        return self._engine.watermark if self.durable else self._engine.end

    def _pump_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump_again)

    def _pump_again(self) -> None:
        self._scheduled = False
        self.pump()

    def _offer(self, batch: Batch) -> bool:
        """Send a batch if there is room; the position moves behind it."""
        assert self._position is not None
        wanted = tuple(
            subscription
            for subscription in self._router.route(batch.run.topic).by_owner.get(self, ())
            if subscription.since <= batch.offset
        )
        skipped = not wanted or self._is_own(batch)
        if not skipped and not self._outlet.deliver(batch.since(self._position), wanted):
            return False
        self._position = batch.end
        return True

    def _is_own(self, batch: Batch) -> bool:
        while self._own and self._own[0][1] <= batch.offset:
            self._own.popleft()
        return bool(self._own) and self._own[0][0] <= batch.offset

    async def _read(self) -> None:
        """Take the next piece from the log. What there is no room for is read again later."""
        assert self._position is not None
        self._count_lost()
        try:
            batches, end = await self._engine.read(self._position, self._wanted(), READ_BYTES)
        except LogError as error:
            logger.error("a subscriber cannot read on: %s", error)
            self._outlet.dismiss(Refusal(Code.INTERNAL, "the log is damaged"))
            return
        finally:
            self._reading = None
        for batch in batches:
            self._position = max(self._position, batch.offset)
            if self._closed or not self._offer(batch):
                return
        self._position = max(self._position, end)
        self._pump_soon()

    def _count_lost(self) -> None:
        assert self._position is not None
        if (gap := self._engine.start - self._position) > 0:
            self.lost += gap
            logger.warning(
                "retention overtook a subscriber%s: offsets %d to %d are gone",
                f" ({self.name})" if self.name else "",
                self._position,
                self._engine.start - 1,
            )
            self._position = self._engine.start

    def _wanted(self) -> Wanted:
        """A test for the reader's thread, which must not look into the router."""
        filters = tuple(subscription.filter for subscription in self.subscriptions.values())
        if len(filters) > FILTERS_WORTH_ASKING:
            return lambda topic: True
        known: dict[str, bool] = {}

        def wanted(topic: str) -> bool:
            if topic not in known:
                known[topic] = any(f.matches(topic) for f in filters)
            return known[topic]

        return wanted
