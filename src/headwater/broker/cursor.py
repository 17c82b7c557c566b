"""A cursor: a place in the log, and the way to go on from there.

At the head, batches are pushed to it. When whom it serves has no room, it falls behind: nothing is
kept for it but a position. When there is room again, it reads on from memory or from the log until
it is at the head once more. So a slow reader costs no memory, loses nothing that is retained, and
delays no one.

    position is None    at the head: the next batch is pushed
    position is a number  behind: everything from there on is still to be given
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod

from headwater.broker.router import OwnedSubscription, Router
from headwater.errors import LogError
from headwater.filters import wanting
from headwater.log.engine import Engine, Wanted
from headwater.message import Batch

logger = logging.getLogger(__name__)

# How many batches a cursor looks at before others get their turn.
BATCHES_PER_TURN = 256
# How much is read from the log at once.
READ_BYTES = 512 * 1024
# With more filters than this, asking each one costs more than decoding what nobody wants.
FILTERS_WORTH_ASKING = 64

Wants = tuple[OwnedSubscription["Cursor"], ...]


class Gaps:
    """Messages that retention took away before any cursor of a broker could give them."""

    def __init__(self) -> None:
        self.count = 0
        self.at = 0.0  # when the last of them were missed, in seconds since 1970

    def add(self, count: int) -> None:
        self.count += count
        self.at = time.time()


class Cursor(ABC):
    #: It may only see what is durable.
    durable: bool
    #: What it is known under, if anything.
    name: str | None = None

    def __init__(self, engine: Engine, router: "Router[Cursor]", gaps: Gaps) -> None:
        self._engine = engine
        self._router = router
        self._gaps = gaps
        self.subscriptions: dict[tuple[str, str], OwnedSubscription[Cursor]] = {}
        #: Messages that retention took away before they could be given.
        self.lost = 0
        self._position: int | None = None
        self._reading: asyncio.Task[None] | None = None
        self._scheduled = False
        self._closed = False

    @abstractmethod
    def _give(self, batch: Batch, wants: Wants) -> int:
        """Hand on a batch. The offset behind what was taken: the end of the batch if all of it."""

    @abstractmethod
    def _broken(self, error: LogError) -> None:
        """The log cannot be read at this place."""

    @property
    def position(self) -> int:
        """Everything before this offset has been given, or was not wanted."""
        return self._limit() if self._position is None else self._position

    @property
    def behind(self) -> bool:
        return self._position is not None

    @property
    def busy(self) -> bool:
        """It is about to give more, without anyone asking."""
        return self._reading is not None or self._scheduled

    def start_from(self, offset: int) -> None:
        self._position = offset
        self.pump()

    def push(self, batch: Batch, wants: Wants) -> None:
        """A new batch for a cursor at the head; one that is behind finds it by itself."""
        if self._position is not None:
            return
        taken = self._give(batch, wants)
        if taken < batch.end:
            self._position = taken

    def rewind(self, end: int) -> None:
        """What came from `end` on was not stored; other messages will take those offsets."""
        if self._position is not None and self._position > end:
            self._position = end

    def close(self) -> None:
        self._closed = True
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def pump(self) -> None:
        """Give what there is room for."""
        if self._closed or self._reading is not None:
            return
        for _ in range(BATCHES_PER_TURN):
            if self._position is None:
                return
            if self._position >= self._limit():
                self._position = None
                self._caught_up()
                return
            batch = self._engine.recent(self._position)
            if batch is None:
                self._reading = asyncio.get_running_loop().create_task(self._read())
                return
            if not self._offer(batch):
                return
        self._pump_soon()

    def _caught_up(self) -> None:  # noqa: B027
        """It is at the head."""

    def _limit(self) -> int:
        return self._engine.watermark if self.durable else self._engine.end

    def _pump_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump_again)

    def _pump_again(self) -> None:
        self._scheduled = False
        self.pump()

    def _wants(self, batch: Batch) -> Wants:
        return tuple(
            subscription
            for subscription in self._router.route(batch.run.topic).by_owner.get(self, ())
            if subscription.since <= batch.offset
        )

    def _offer(self, batch: Batch) -> bool:
        """Give a batch as far as there is room; the position moves behind what was taken."""
        assert self._position is not None
        if wants := self._wants(batch):
            self._position = self._give(batch.since(self._position), wants)
        else:
            self._position = batch.end
        return self._position == batch.end

    async def _read(self) -> None:
        """Take the next piece from the log. What there is no room for is read again later."""
        assert self._position is not None
        self._count_lost()
        try:
            batches, end = await self._engine.read(self._position, self._wanted(), READ_BYTES)
        except LogError as error:
            self._broken(error)
            return
        finally:
            self._done_reading()
        if not batches or batches[0].offset >= self._engine.start:
            self._count_lost()  # retention may have come in between
        for batch in batches:
            self._position = max(self._position, batch.offset)
            if self._closed or not self._offer(batch):
                return
        self._position = max(self._position, end)
        self._pump_soon()

    def _done_reading(self) -> None:
        if self._reading is asyncio.current_task():  # otherwise it was stopped
            self._reading = None

    def _count_lost(self) -> None:
        assert self._position is not None
        if (gap := self._engine.start - self._position) > 0:
            self.lost += gap
            self._gaps.add(gap)
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
        return wanting(filters)
