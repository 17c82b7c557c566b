"""Dead letters: messages that a queue delivers no more, kept whole under a topic of their own.

A dead letter has the payload, publisher, protocol and headers of the message, and says in further
headers why it is there. Redriving publishes it to its original topic again. Which letters a
queue still has is a position: redriving and purging move it on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from headwater.errors import LogUnavailable
from headwater.message import Batch, Headers, Run

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.queues.queue import Queue

logger = logging.getLogger(__name__)

REASON = "dead-reason"
TOPIC = "dead-topic"
OFFSET = "dead-offset"
DELIVERIES = "dead-deliveries"
TIMESTAMP = "dead-timestamp"
_OWN = frozenset((REASON, TOPIC, OFFSET, DELIVERIES, TIMESTAMP))

READ_BYTES = 4 * 1024 * 1024
RETRY_SECONDS = 0.5

#: Hears how many of how many are done.
Progress = Callable[[int, int], None]


class DeadLetters:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._engine = broker.engine
        self._tasks: set[asyncio.Task[None]] = set()
        # Of each queue: from where to where it was counted, and how many there were.
        self._counted: dict[str, tuple[int, int, int]] = {}

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def bury(self, queue: "Queue", items: Sequence[tuple[int, int]], why: str) -> None:
        """Move messages, given as (offset, deliveries), to the queue's dead letters."""
        logger.warning(
            "queue %s: %d messages are dead letters now: %s", queue.spec.name, len(items), why
        )
        task = asyncio.get_running_loop().create_task(self._bury(queue, items, why))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bury(self, queue: "Queue", items: Sequence[tuple[int, int]], why: str) -> None:
        for offset, deliveries in items:
            batch = await self._find(offset)
            if batch is not None:
                about = (
                    (REASON, why),
                    (TOPIC, batch.run.topic),
                    (OFFSET, str(offset)),
                    (DELIVERIES, str(deliveries)),
                    (TIMESTAMP, str(batch.timestamp)),
                )
                letter = _moved(batch.run, queue.spec.dead_topic, batch.run.headers + about)
                await self._publish([letter])
            queue.settled(offset)

    async def _find(self, offset: int) -> Batch | None:
        """The message at an offset, if it is still there."""
        batch = self._engine.recent(offset)
        if batch is None:
            batches, _ = await self._engine.read(offset, lambda topic: True, 1)
            batch = next((each for each in batches if each.offset <= offset < each.end), None)
        return None if batch is None else batch.part(offset, offset + 1)

    async def _publish(self, runs: Sequence[Run]) -> None:
        """Returns when all of them are durable, however long that takes."""
        left = list(runs)
        while left:
            try:
                waiting = [(run, self._stored(run)) for run in left]
            except LogUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._engine.hurry()
            left = [run for run, stored in waiting if not await stored]
            if left:
                await asyncio.sleep(RETRY_SECONDS)

    def _stored(self, run: Run) -> "asyncio.Future[bool]":
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def settled(error: LogUnavailable | None) -> None:
            if not done.done():
                done.set_result(error is None)

        self._broker.publish(run, settled, None)
        return done

    async def letters(self, queue: "Queue", since: int = 0) -> AsyncIterator[Batch]:
        """The dead letters that the queue still has, from an offset on."""
        topic, position = queue.spec.dead_topic, max(self._position(queue), since)
        stop = self._engine.watermark
        while topic and position < stop:
            batches, position = await self._engine.read(
                position, lambda each: each == topic, READ_BYTES
            )
            for batch in batches:
                if batch.offset < stop:
                    yield batch

    async def count(self, queue: "Queue") -> int:
        """How many there are. What was counted before is not read again."""
        name, position, stop = queue.spec.name, self._position(queue), self._engine.watermark
        since, upto, count = self._counted.get(name, (-1, 0, 0))
        if since != position or upto > stop:
            upto, count = position, 0
        async for batch in self.letters(queue, upto):
            count += len(batch.part(upto, stop).run)
        self._counted[name] = (position, stop, count)
        return count

    async def redrive(self, queue: "Queue", limit: int | None, progress: Progress) -> int:
        """Publish dead letters to their original topics, the oldest first."""
        total = await self.count(queue)
        total = total if limit is None else min(total, limit)
        done = 0
        async for chunk in _chunks(self.letters(queue)):
            runs, end, size = _restored(chunk, total - done)
            await self._publish(runs)
            self._save(queue, end)
            done += size
            progress(done, total)
            if done >= total:
                break
        return done

    async def purge(self, queue: "Queue") -> int:
        """Delete the dead letters from the queue; the log keeps them until retention."""
        stop = self._engine.watermark
        purged = await self.count(queue)
        self._save(queue, stop)
        return purged

    def _position(self, queue: "Queue") -> int:
        saved = self._engine.notes.load_cursor(_cursor(queue))
        return max(saved or 0, self._engine.start)

    def _save(self, queue: "Queue", offset: int) -> None:
        self._engine.notes.save_cursor(_cursor(queue), offset)


def _cursor(queue: "Queue") -> str:
    return f"dead letters of {queue.spec.name}"


def _moved(run: Run, topic: str, headers: Headers) -> Run:
    return Run(topic, run.payloads, protocol=run.protocol, publisher=run.publisher, headers=headers)


async def _chunks(batches: AsyncIterator[Batch], most: int = 1000) -> AsyncIterator[list[Batch]]:
    """Many batches at a time, so that one sync serves them all."""
    chunk: list[Batch] = []
    async for batch in batches:
        chunk.append(batch)
        if len(chunk) >= most:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _restored(letters: Sequence[Batch], most: int) -> tuple[list[Run], int, int]:
    """The messages as they were, the offset behind their letters, and how many they are."""
    runs, count, end = [], 0, letters[0].offset
    for origin, group in groupby(letters, _origin):
        payloads: list[bytes] = []
        for batch in group:
            taken = batch.part(batch.offset, batch.offset + most - count)
            payloads += taken.run.payloads
            count += len(taken.run)
            end = taken.end
            if count >= most:
                break
        topic, protocol, publisher, headers = origin
        runs.append(Run(topic, payloads, protocol=protocol, publisher=publisher, headers=headers))
        if count >= most:
            break
    return runs, end, count


def _origin(letter: Batch) -> tuple[str, str, str, Headers]:
    run = letter.run
    headers = tuple(pair for pair in run.headers if pair[0] not in _OWN)
    topic = next((value for name, value in run.headers if name == TOPIC), run.topic)
    return topic, run.protocol, run.publisher, headers
