"""Messages that are delivered later, and messages that nobody gets any more.

A publisher asks for a delay in the header `deliver-at` or `deliver-after`. Such messages are stored
at once, under a topic of their own that reaches nobody, and answered like any others. When their
time has come they are published to their topic: so they are durable from the beginning, subscribers
meet them where the log is then, and a broker that was not running at that time publishes them when
it starts.

What waits is kept as one small entry for each batch: in memory by its time, and in the notes.

    content   position u64 | (offset u64, end u64, time u64) for each batch that waits

All that is put off before the position waits or is done with; what came behind it in the moment
before a crash is found in the log. The messages that are published have a signed header with the
offset of those that were put off. So if a crash comes before their entry is removed, they are not
published again.

`expire-at` costs nothing to keep: whoever would be given a message after that time is not.
"""

import asyncio
import contextlib
import logging
import secrets
import struct
import time
from functools import partial
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from headwater.broker.cursor import has_expired, reason
from headwater.broker.marks import mark, marked
from headwater.broker.router import DELAYED
from headwater.errors import Code, LogError, LogUnavailable, Refusal
from headwater.message import (
    DELIVER_AFTER,
    DELIVER_AT,
    EXPIRE_AFTER,
    EXPIRE_AT,
    TIMES,
    Batch,
    Headers,
    Run,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

TOPIC = "delayed-topic"
FROM = "delayed-from"
_OWN = frozenset((TOPIC, FROM))
#: What the notes know it under; no queue has such a name.
NAME = DELAYED
_SECRET = "secret of messages that are delivered later"

_POSITION = struct.Struct(">Q")
_WAITING = struct.Struct(">QQQ")

# A clock can be set, and an idle broker should not have to read much after a crash.
SHORTEST_SLEEP, LONGEST_SLEEP = 0.001, 60.0
RETRY_SECONDS = 1.0
SETTLE_SECONDS = 0.005
CHUNK = 1000
READ_BYTES = 4 * 1024 * 1024
LATEST = 1 << 53  # milliseconds; what every language can count


class Waiting(NamedTuple):
    """Messages that are put off: in the order of their times."""

    due: int  # milliseconds since 1970
    offset: int
    end: int


def _milliseconds(header: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= 16 and int(value) < LATEST):
        since = "" if header in (DELIVER_AFTER, EXPIRE_AFTER) else " since 1970"
        raise Refusal(Code.MALFORMED, f"{header} is a number of milliseconds{since}")
    return int(value)


def timed(headers: Headers, now: int) -> tuple[int, Headers]:
    """When messages with these headers are to be delivered, and the headers with the times of day
    that they mean. Raises Refusal."""
    times = {name: _milliseconds(name, value) for name, value in headers if name in TIMES}
    if not times:
        return 0, headers
    due = max(times.get(DELIVER_AT, 0), now + times[DELIVER_AFTER] if DELIVER_AFTER in times else 0)
    named = [pair for pair in headers if pair[0] not in TIMES]
    if due:
        named.append((DELIVER_AT, str(due)))
    ends = [times[EXPIRE_AT]] if EXPIRE_AT in times else []
    if EXPIRE_AFTER in times:
        ends.append(max(due, now) + times[EXPIRE_AFTER])
    if ends:
        named.append((EXPIRE_AT, str(min(ends))))
    return due, tuple(named)


class Delays:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._engine = broker.engine
        self._waiting: list[Waiting] = []
        self._secret = 0
        self._timer: asyncio.TimerHandle | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._saved_at = -1  # the watermark
        self._closed = False

    def __len__(self) -> int:
        """How many messages wait."""
        return sum(each.end - each.offset for each in self._waiting)

    # When messages are published

    def put_off(self, run: Run) -> Run:
        """The run as it is stored now. Raises Refusal."""
        if run.topic == DELAYED:
            raise Refusal(Code.NOT_PERMITTED, f"{DELAYED} is the broker's own topic")
        now = int(time.time() * 1000)
        due, headers = timed(run.headers, now)
        if due > now:
            return run.moved(DELAYED, (*_without_own(headers), (TOPIC, run.topic)))
        return run if headers is run.headers else run.moved(run.topic, headers)

    def add(self, batch: Batch) -> None:
        """Messages were put off, and are in the log."""
        due = _due(batch.run)
        if due is not None:
            heappush(self._waiting, Waiting(due, batch.offset, batch.end))
            self._save()
            self._wake()

    def rewound(self, end: int) -> None:
        """What came from `end` on was not stored."""
        if any(each.end > end for each in self._waiting):
            self._waiting = [each for each in self._waiting if each.end <= end]
            heapify(self._waiting)
            self._save()

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._releasing is not None:
            self._releasing.cancel()

    # At the start

    async def recover(self) -> None:
        """Find out what waits: call this once, before anyone publishes."""
        notes, watermark = self._engine.notes, self._engine.watermark
        secret = notes.load_number(_SECRET)
        if secret is None:
            secret = secrets.randbits(62)
            notes.save_number(_SECRET, secret)
        self._secret = secret
        content = notes.load_queue(NAME)
        position, waiting = (watermark, []) if content is None else _decode(content)
        found = {each.offset: each for each in waiting if each.end <= watermark}
        at = max(min(position, watermark), self._engine.start)
        while at < watermark:
            batches, at = await self._engine.read(at, DELAYED.__eq__, READ_BYTES)
            for batch in batches:
                if (due := _due(batch.run)) is not None:
                    found[batch.offset] = Waiting(due, batch.offset, batch.end)
        for offset in await self._released(list(found.values())):
            found.pop(offset, None)
        self._waiting = list(found.values())
        heapify(self._waiting)
        self._save()
        # Where there is no content, nothing has ever been put off: so be sure that there is.
        with contextlib.suppress(LogUnavailable):
            await notes.flush()
        self._wake()

    async def _released(self, waiting: list[Waiting]) -> set[int]:
        """Those that were published before a crash."""
        now = int(time.time() * 1000)
        first = min([each.due for each in waiting], default=now)
        if first >= now:
            return set()
        released: set[int] = set()
        at, stop = await self._engine.offset_at(first * 1000), self._engine.watermark
        while at < stop:
            batches, at = await self._engine.read(at, lambda topic: True, READ_BYTES)
            for batch in batches:
                if (offset := marked(batch.run, FROM, self._secret)) is not None:
                    released.add(offset)
        return released

    # When their time has come

    def _wake(self, pause: float = 0.0) -> None:
        """See to it that the first of them is published in time, but for a pause."""
        if self._closed or self._releasing is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        sleep = LONGEST_SLEEP
        if self._waiting:
            sleep = min(sleep, self._waiting[0].due / 1000 - time.time())
        self._timer = asyncio.get_running_loop().call_later(
            max(sleep, pause, SHORTEST_SLEEP), self._look
        )

    def _look(self) -> None:
        self._timer = None
        if self._saved_at != self._engine.watermark:
            self._save()
        if self._waiting and self._waiting[0].due <= time.time() * 1000:
            self._releasing = asyncio.get_running_loop().create_task(self._release())
        else:
            self._wake()

    async def _release(self) -> None:
        """Publish what is due. It ends in another try, whatever happens."""
        pause = 0.0
        try:
            while due := self._take():
                if any(each.end > self._engine.watermark for each in due):
                    pause = SETTLE_SECONDS  # it is being written
                    break
                await self._publish(due)
                done = set(due)
                self._waiting = [each for each in self._waiting if each not in done]
                heapify(self._waiting)
                self._save()
        except (LogUnavailable, OSError) as error:
            logger.warning("messages that are due wait a little longer: %s", reason(error))
            pause = RETRY_SECONDS
        except Exception:
            logger.exception("messages that are due cannot be published; trying again")
            pause = RETRY_SECONDS
        self._releasing = None
        self._wake(pause)

    def _take(self) -> list[Waiting]:
        """Those that are due, some of them at a time; they stay until they are published."""
        now = time.time() * 1000
        taken: list[Waiting] = []
        while self._waiting and self._waiting[0].due <= now and len(taken) < CHUNK:
            taken.append(heappop(self._waiting))
        for each in taken:
            heappush(self._waiting, each)
        return taken

    async def _publish(self, due: list[Waiting]) -> None:
        """Returns when they are durable. Raises LogUnavailable and OSError."""
        runs = []
        for each in due:
            batch = await self._load(each)
            if batch is None:
                self._broker.gaps.add(each.end - each.offset)
                logger.warning(
                    "retention took the offsets %d to %d, which were to be delivered later",
                    each.offset,
                    each.end - 1,
                )
            elif not has_expired(batch.run.headers):
                runs.append(self._restored(batch))
        if not runs:
            return
        batches = self._broker.publish_all(self._broker.prepare(runs))
        settled: asyncio.Future[LogUnavailable | None] = asyncio.Future()
        self._engine.when_durable(batches[-1].end, partial(_settle, settled))
        if (error := await settled) is not None:
            raise error

    async def _load(self, waiting: Waiting) -> Batch | None:
        batch = self._engine.recent(waiting.offset)
        if batch is None:
            try:
                batches, _ = await self._engine.read(waiting.offset, DELAYED.__eq__, 1)
            except LogError as error:
                logger.error("messages to be delivered later cannot be read: %s", error)
                return None
            batch = next((each for each in batches if each.offset == waiting.offset), None)
        return batch

    def _restored(self, batch: Batch) -> Run:
        run = batch.run
        topic = next(value for name, value in run.headers if name == TOPIC)
        mine = (FROM, mark(self._secret, batch.offset))
        return run.moved(topic, (*_without_own(run.headers), mine))

    def _save(self) -> None:
        self._saved_at = self._engine.watermark
        self._engine.notes.save_queue(NAME, self._snapshot)

    def _snapshot(self) -> bytes:
        parts = [_WAITING.pack(each.offset, each.end, each.due) for each in self._waiting]
        return _POSITION.pack(self._engine.watermark) + b"".join(parts)


def original(run: Run) -> Run:
    """The run as it was published, if it was put off."""
    if run.topic != DELAYED:
        return run
    topic = next((value for name, value in run.headers if name == TOPIC), DELAYED)
    return run.moved(topic, _without_own(run.headers))


def _settle(future: "asyncio.Future[LogUnavailable | None]", error: LogUnavailable | None) -> None:
    if not future.done():  # otherwise the broker has stopped
        future.set_result(error)


def _without_own(headers: Headers) -> Headers:
    return tuple(pair for pair in headers if pair[0] not in _OWN)


def _due(run: Run) -> int | None:
    headers = dict(run.headers)
    value = headers.get(DELIVER_AT, "")
    return int(value) if TOPIC in headers and value.isdecimal() else None


def _decode(content: bytes) -> tuple[int, list[Waiting]]:
    (position,) = _POSITION.unpack_from(content)
    items = _WAITING.iter_unpack(content[_POSITION.size :])
    return position, [Waiting(due, offset, end) for offset, end, due in items]
