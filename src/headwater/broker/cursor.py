"""A cursor: a place in the log, and the way to go on from there.

At the head, batches are pushed to it. When whom it serves has no room, it falls behind: nothing is
kept for it but a position. When there is room again, it reads on from memory or from the log until
it is at the head once more. So a slow reader costs no memory, loses nothing that is retained, and
delays no one.

    position is None    at the head: the next batch is pushed
    position is a number  behind: everything from there on is still to be given

Where very many batches come at once, pushing them takes a while, and what comes next has to wait
behind them (`Head`). Until then the head is where that has come to, and not the end of the log.

Where one batch goes to very many, some get it later (`put_off`), and so what comes for them until
then. They need not look for it in the log: it is kept for them while it is little.
"""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from time import perf_counter

from mypy_extensions import mypyc_attr

from headwater.broker.late import Late
from headwater.broker.read_ahead import ReadAhead
from headwater.broker.router import OwnedSubscription, Route, Router
from headwater.errors import HeadwaterError, LogError
from headwater.filters import wanting
from headwater.log.engine import Engine, Wanted
from headwater.message import EXPIRE_AT, Batch, Headers

logger = logging.getLogger(__name__)

# So long a cursor gives what there is before others get their turn.
SLICE_SECONDS = 0.001
# How much is read from the log at once.
READ_BYTES = 512 * 1024
# A read that fails (no file descriptor, an error of the disk) is tried again for so long.
RETRY_FOR_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 5.0
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


class ReadErrors:
    """Reads of the log, for any cursor of a broker, that failed."""

    def __init__(self) -> None:
        self.count = 0
        self.at = 0.0  # when the last one failed, in seconds since 1970
        self.last = ""  # and why

    def add(self, error: Exception) -> None:
        self.count += 1
        self.at = time.time()
        self.last = reason(error)


def reason(error: Exception) -> str:
    """What a person should know of it."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, HeadwaterError) else type(error).__name__


class Head:
    """The end of the log, for those who are given batches as they come."""

    def __init__(self) -> None:
        #: Batches that are still to be pushed, in order, and whom each of them is not for.
        self.waiting: deque[tuple[Batch, object]] = deque()
        #: The batch that is being pushed: some have not heard of it yet.
        self.pushing: int | None = None

    def limit(self, end: int) -> int:
        """Everything before it was pushed. `end`: that of the log."""
        return self.waiting[0][0].offset if self.waiting else end

    def rewind(self, end: int) -> None:
        while self.waiting and self.waiting[-1][0].end > end:
            self.waiting.pop()


class Surroundings:
    """What all cursors of a broker share."""

    def __init__(self, engine: Engine, router: "Router[Cursor]") -> None:
        self.engine = engine
        self.router = router
        self.gaps = Gaps()
        self.read_errors = ReadErrors()
        self.read_ahead = ReadAhead()
        #: Of those who see what is appended, and of those who see what is durable.
        self.live = Head()
        self.durable = Head()


def has_expired(headers: Headers) -> bool:
    """Whether nobody is to be given messages with these headers any more."""
    for name, value in headers:
        if name == EXPIRE_AT:
            return value.isdecimal() and int(value[:20]) <= time.time() * 1000
    return False


@mypyc_attr(allow_interpreted_subclasses=True)
class Cursor(ABC):
    #: It may only see what is durable.
    durable: bool
    #: What it is known under, if anything.
    name: str | None = None

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._engine = around.engine
        self._router = around.router
        self._gaps = around.gaps
        self._read_errors = around.read_errors
        self._read_ahead = around.read_ahead
        self.subscriptions: dict[tuple[str, str], OwnedSubscription[Cursor]] = {}
        #: How many of these are patterns, which have to be asked about each topic.
        self.patterns = 0
        #: Messages that retention took away before they could be given.
        self.lost = 0
        self._position: int | None = None
        self._floor = 0  # it wants nothing before this offset, although it is at the head
        self._late: Late[Wants] | None = None  # all that it wants from its position on, if known
        self._reading: asyncio.Task[None] | None = None
        self._retrying: asyncio.TimerHandle | None = None  # after a read that failed
        self._failing_since: float | None = None
        self._scheduled = False
        self._closed = False

    @abstractmethod
    def _give(self, batch: Batch, wants: Wants) -> int:
        """Hand on a batch. The offset behind what was taken: the end of the batch if all of it."""

    @abstractmethod
    def _broken(self, sentence: str) -> None:
        """The log cannot be read at this place: tell whom it serves, and let go of it."""

    @property
    def position(self) -> int:
        """Everything before this offset has been given, or was not wanted."""
        return max(self._limit(), self._floor) if self._position is None else self._position

    @property
    def behind(self) -> bool:
        return self._position is not None

    @property
    def busy(self) -> bool:
        """It is about to give more, without anyone asking."""
        return self._waits_for_log or self._scheduled

    @property
    def _reader(self) -> int:
        """In whose name it reads: who reads much has to wait."""
        return id(self)

    @property
    def _waits_for_log(self) -> bool:
        return self._reading is not None or self._retrying is not None

    def start_from(self, offset: int) -> None:
        self._position = offset
        self.pump()

    def push(self, batch: Batch, wants: Wants) -> None:
        """A new batch for a cursor at the head; one that is behind finds it by itself."""
        if self._position is not None:
            if self._late is not None and not self._late.add(batch, wants):
                self._late = None  # it is looked for in the log
            return
        if batch.offset < self._floor or (batch.run.headers and has_expired(batch.run.headers)):
            return
        taken = self._give(batch, wants)
        if taken < batch.end:
            self._position = taken

    def put_off(self, batch: Batch, wants: Wants) -> bool:
        """The same as `push`, but it is given later. Returns whether `go_on` has to be called."""
        if self._position is not None or batch.offset < self._floor:
            self.push(batch, wants)
            return False
        self._position, self._late = batch.offset, Late(batch, wants)
        scheduled, self._scheduled = self._scheduled, True
        return not scheduled

    def _give_late(self, late: Late[Wants], stop: float) -> bool:
        """Behind the last of it, it is at the head. Returns False if it goes on later."""
        while self._late is late and late.batches:
            batch, wants = late.batches.pop(0)
            assert self._position is not None
            self._position = max(self._position, batch.offset)
            wants = tuple([each for each in wants if self.subscriptions.get(each.key) is each])
            if wants and not (batch.run.headers and has_expired(batch.run.headers)):
                self._position = self._give(batch.since(self._position), wants)
                if self._position < batch.end:
                    self._late = None  # there was no room for all of it
                    return False
            self._position = batch.end
            if late.batches and perf_counter() >= stop:
                self._pump_soon()
                return False
        if self._late is late:
            self._late = None
            pushing = self._head.pushing
            at = self._limit() if pushing is None else pushing
            assert self._position is not None
            self._floor, self._position = max(self._position, at), None
            self._caught_up()
        return True

    def rewind(self, end: int) -> None:
        """What came from `end` on was not stored; other messages will take those offsets."""
        self._late = None
        if self._position is not None and self._position > end:
            self._position = end
        self._floor = min(self._floor, end)

    def close(self) -> None:
        self._closed = True
        self._late = None
        self._stop_reading()

    def _stop_reading(self) -> None:
        self._failing_since = None  # whoever comes next has all the time that there is for retries
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        if self._retrying is not None:
            self._retrying.cancel()
            self._retrying = None
        self._read_ahead.drop(self)

    def pump(self) -> None:
        """Give what there is room for."""
        if self._closed or self._waits_for_log:
            return
        stop = perf_counter() + SLICE_SECONDS
        if self._late is not None and not self._give_late(self._late, stop):
            return
        while self._position is not None:
            if self._position >= self._limit():
                self._floor, self._position = self._position, None
                self._caught_up()
                return
            batch = self._next()
            if batch is None:
                self._reading = asyncio.get_running_loop().create_task(self._read())
                return
            self._position = max(self._position, batch.offset)
            if not self._offer(batch):
                return
            if perf_counter() >= stop:
                self._pump_soon()
                return

    def _next(self) -> Batch | None:
        """The next batch, if it is in memory."""
        assert self._position is not None
        recent = self._engine.recent(self._position)
        return recent or self._read_ahead.next(self, self._position)

    def _keep_ahead(self, batches: Sequence[Batch]) -> None:  # noqa: B027
        """There was no room for these, from the first one on."""

    def _caught_up(self) -> None:  # noqa: B027
        """It is at the head."""

    @property
    def _head(self) -> Head:
        return self._around.durable if self.durable else self._around.live

    def _limit(self) -> int:
        return self._head.limit(self._engine.watermark if self.durable else self._engine.end)

    def _pump_soon(self) -> None:
        """Go on when it is its turn, among all cursors that have more to do."""
        if not self._scheduled:
            self._scheduled = True
            assert self._router.chores is not None
            self._router.chores.soon(self.go_on, self._reader)

    def go_on(self) -> None:
        """It is its turn."""
        self._scheduled = False
        self.pump()

    def hesitate(self, batch: Batch) -> None:
        """It is not known yet whether it wants a new batch: go on there when it is."""
        self._late = None  # that would not be all any more
        if self._position is None and batch.offset >= self._floor:
            self._position = batch.offset

    def decided(self) -> None:
        self.pump()

    def unwanted(self, sentence: str) -> None:
        self._broken(sentence)

    def _wants(self, batch: Batch, route: Route["Cursor"]) -> Wants:
        return tuple(
            subscription
            for subscription in route.by_owner.get(self, ())
            if subscription.since <= batch.offset
        )

    def _offer(self, batch: Batch) -> bool:
        """Give a batch as far as there is room; the position moves behind what was taken."""
        assert self._position is not None
        if batch.run.headers and has_expired(batch.run.headers):
            self._position = batch.end
            return True
        route = self._router.route(batch.run.topic)
        if self in route.undecided:
            return False  # `decided` goes on
        if wants := self._wants(batch, route):
            self._position = self._give(batch.since(self._position), wants)
        else:
            self._position = batch.end
        return self._position == batch.end

    async def _read(self) -> None:
        """Take the next piece from the log. What there is no room for is read again later."""
        assert self._position is not None
        self._count_lost()
        found = await self._try_to_read(self._position)
        if found is None:
            return
        batches, end = found
        if not batches or batches[0].offset >= self._engine.start:
            self._count_lost()  # retention may have come in between
        stop = perf_counter() + SLICE_SECONDS
        for number, batch in enumerate(batches, 1):
            self._position = max(self._position, batch.offset)
            if self._closed:
                return
            if not self._offer(batch):
                self._keep_ahead(batches[number - 1 :])
                return
            if number < len(batches) and perf_counter() >= stop:
                self._read_ahead.keep(self, batches[number:])
                self._pump_soon()
                return
        self._position = max(self._position, end)
        self.pump()

    async def _try_to_read(self, start: int) -> tuple[Sequence[Batch], int] | None:
        """The task ends in one of three ways, and never silently: with what was read; with another
        try later, as files and disks recover; or with the end of whom the cursor serves."""
        try:
            found = await self._engine.read(start, self._wanted(), READ_BYTES, self._reader)
        except OSError as error:
            self._read_errors.add(error)
            self._done_reading()
            self._retry_later(error)
        except LogError as error:
            self._read_errors.add(error)
            logger.error("%s cannot read on: %s", self._described, error)
            self._done_reading()
            self._broken("the log is damaged")
        except Exception as error:
            self._read_errors.add(error)
            logger.exception("%s cannot read on", self._described)
            self._done_reading()
            self._broken("the log cannot be read")
        else:
            self._done_reading()
            self._failing_since = None
            return found
        return None

    def _retry_later(self, error: OSError) -> None:
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._failing_since is None:
            self._failing_since = now
            logger.warning("%s cannot read the log, will retry: %s", self._described, error)
        failing = now - self._failing_since
        if failing >= RETRY_FOR_SECONDS:
            logger.error("%s cannot read on: %s", self._described, error)
            self._failing_since = None
            self._broken(f"the log cannot be read: {reason(error)}")
        else:
            # As long again as it has failed so far: soon at first, and then ever more seldom.
            pause = min(max(failing, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            self._retrying = loop.call_later(pause, self._read_again)

    def _read_again(self) -> None:
        self._retrying = None
        self.pump()

    @property
    def _described(self) -> str:
        return f"a subscriber ({self.name})" if self.name else "a subscriber"

    def _done_reading(self) -> None:
        if self._reading is asyncio.current_task():  # otherwise it was stopped
            self._reading = None

    def _count_lost(self) -> None:
        assert self._position is not None
        start = self._engine.start  # read once: the writer's thread may move it on at any time
        if (gap := start - self._position) > 0:
            self.lost += gap
            self._gaps.add(gap)
            logger.warning(
                "retention overtook %s: offsets %d to %d are gone",
                self._described,
                self._position,
                start - 1,
            )
            self._position = start

    def _wanted(self) -> Wanted:
        """A test for the reader's thread, which must not look into the router."""
        filters = tuple(subscription.filter for subscription in self.subscriptions.values())
        if len(filters) > FILTERS_WORTH_ASKING or not all(each.simple for each in filters):
            return lambda topic: True
        return wanting(filters)
