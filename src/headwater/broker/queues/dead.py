"""Dead letters: messages that a queue delivers no more, kept whole under a topic of their own.

A dead letter has the payload, publisher, protocol and headers of the message, and says in further
headers why it is there. Redriving publishes it to its original topic again. Which letters a
queue still has is a position: redriving and purging move it on, one of them at a time.

A crash must not make a redrive publish twice, and the position is saved a moment after the messages
are durable. So a redrive first notes, on the disk, where the log ends and a secret. Its messages
have in a header the position that they stand for, signed with the secret: consumers see the header,
and may be publishers, too. Whoever finds the note of an interrupted redrive looks behind that end
of the log for the furthest position.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from headwater.broker.marks import mark, marked
from headwater.broker.receipts import AwaitedReceipt
from headwater.errors import Code, LogError, LogUnavailable, Refusal
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
REDRIVEN = "dead-redriven"
_OWN = frozenset((REASON, TOPIC, OFFSET, DELIVERIES, TIMESTAMP, REDRIVEN))

READ_BYTES = 4 * 1024 * 1024
RETRY_SECONDS = 0.5
# After an error that should not be.
FAULT_SECONDS = 30.0
# How many letters are made durable in one step.
CHUNK = 1000
_NOT_RUNNING = -1

#: Hears how many of how many are done.
Progress = Callable[[int, int], None]


@dataclass(slots=True)
class Operation:
    """Something that an operator does with the dead letters of a queue."""

    name: str
    done: int = 0
    total: int | None = None

    def __str__(self) -> str:
        return self.name if self.total is None else f"{self.name} ({self.done} of {self.total})"


class DeadLetters:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._engine = broker.engine
        self._tasks: set[asyncio.Task[None]] = set()
        # Of each queue: from where to where it was counted, and how many there were.
        self._counted: dict[str, tuple[int, int, int]] = {}
        self._operations: dict[str, Operation] = {}  # by the name of their queue

    async def recover(self) -> None:
        """Find out how far redrives came that a crash has interrupted: call this once, before
        anyone connects."""
        for name in self._engine.notes.queue_names():
            await self._recover(name)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def concerns(self, name: str) -> bool:
        """Whether something is noted of the dead letters of a queue, or is being done with them."""
        noted = self._engine.notes.load_cursor(_cursor(name)) is not None
        return noted or name in self._operations

    def bury(self, queue: "Queue", items: Sequence[tuple[int, int]], why: str) -> None:
        """Move messages, given as (offset, deliveries), to the queue's dead letters."""
        logger.warning(
            "queue %s: %d messages are dead letters now: %s", queue.spec.name, len(items), why
        )
        task = asyncio.get_running_loop().create_task(self._bury(queue, items, why))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _bury(self, queue: "Queue", items: Sequence[tuple[int, int]], why: str) -> None:
        left = list(items)
        while left:
            try:
                await self._bury_some(queue, left[:CHUNK], why)
            except Exception:  # whatever it is: these messages are nowhere else
                logger.exception("queue %s: dead messages are left over", queue.spec.name)
                await asyncio.sleep(FAULT_SECONDS)
            else:
                del left[:CHUNK]

    async def _bury_some(self, queue: "Queue", items: Sequence[tuple[int, int]], why: str) -> None:
        letters = [
            await self._letter(queue, offset, deliveries, why) for offset, deliveries in items
        ]
        await self._publish([letter for letter in letters if letter is not None])
        queue.settled([offset for offset, _ in items])

    async def _letter(self, queue: "Queue", offset: int, deliveries: int, why: str) -> Run | None:
        """The letter for the message at an offset, if that is still there."""
        batch = await self._find(queue, offset)
        if batch is None:
            return None
        about = (
            (REASON, why),
            (TOPIC, batch.run.topic),
            (OFFSET, str(offset)),
            (DELIVERIES, str(deliveries)),
            (TIMESTAMP, str(batch.timestamp)),
        )
        return batch.run.moved(queue.spec.dead_topic, batch.run.headers + about)

    async def _find(self, queue: "Queue", offset: int) -> Batch | None:
        """The message at an offset, if it is still there."""
        batch = self._engine.recent(offset)
        if batch is None:
            batches = await self._read_one(queue, offset)
            batch = next((each for each in batches if each.offset <= offset < each.end), None)
        return None if batch is None else batch.part(offset, offset + 1)

    async def _read_one(self, queue: "Queue", offset: int) -> list[Batch]:
        """Read, however long that takes: a message that is given up here is gone."""
        while True:
            try:
                batches, _ = await self._engine.read(offset, lambda topic: True, 1)
                return list(batches)
            except LogError as error:
                logger.error("queue %s: no dead letter of %d: %s", queue.spec.name, offset, error)
                return []
            except OSError as error:
                logger.error("queue %s: cannot read a dead message: %s", queue.spec.name, error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _publish(self, runs: Sequence[Run]) -> None:
        """Returns when all of them are durable, however long that takes."""
        left = list(runs)
        while left:
            try:
                waiting = [(run, self._submit(run)) for run in left]
            except LogUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._engine.hurry()
            left = [run for run, receipt in waiting if await receipt.error is not None]
            if left:
                await asyncio.sleep(RETRY_SECONDS)

    def _submit(self, run: Run) -> AwaitedReceipt:
        receipt = AwaitedReceipt()
        self._broker.publish(run, receipt, None)
        return receipt

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
        with self._operation(queue, "a redrive") as operation:
            await self._recover(queue.spec.name)
            total = await self.count(queue)
            operation.total = total = total if limit is None else min(total, limit)
            if total:
                secret = await self._note_redrive(queue.spec.name)
                async for chunk in _chunks(self.letters(queue)):
                    runs, end, size = _restored(chunk, total - operation.done, secret)
                    await self._publish(runs)
                    self._save(queue.spec.name, end)
                    operation.done += size
                    progress(operation.done, total)
                    if operation.done >= total:
                        break
                self._engine.notes.save_cursor(_since(queue.spec.name), _NOT_RUNNING)
            return operation.done

    async def purge(self, queue: "Queue") -> int:
        """Delete the dead letters from the queue; the log keeps them until retention."""
        with self._operation(queue, "a deletion"):
            stop = self._engine.watermark
            purged = await self.count(queue)
            self._save(queue.spec.name, stop)
            await self._engine.notes.flush()
            return purged

    @contextmanager
    def _operation(self, queue: "Queue", name: str) -> Iterator[Operation]:
        """One at a time: two of them would publish, or delete, the same letters."""
        if (running := self._operations.get(queue.spec.name)) is not None:
            raise Refusal(
                Code.BUSY,
                f"{running} of dead letters of {queue.spec.name} is running; try again when it "
                "is done",
            )
        self._operations[queue.spec.name] = operation = Operation(name)
        try:
            yield operation
        finally:
            del self._operations[queue.spec.name]

    async def _note_redrive(self, name: str) -> int:
        """Note that a redrive runs, before its first message; returns its secret."""
        secret = secrets.randbits(62)
        notes = self._engine.notes
        notes.save_cursor(_since(name), self._engine.watermark)
        notes.save_number(_secret(name), secret)
        await notes.flush()
        return secret

    async def _recover(self, name: str) -> None:
        """Take the position of an interrupted redrive from the messages that it has published."""
        notes = self._engine.notes
        since, secret = notes.load_cursor(_since(name)), notes.load_number(_secret(name))
        if since is None or secret is None or since == _NOT_RUNNING:
            return
        at, stop = max(since, self._engine.start), self._engine.watermark
        while at < stop:
            batches, at = await self._engine.read(at, lambda topic: True, READ_BYTES)
            for batch in batches:
                if (position := marked(batch.run, REDRIVEN, secret)) is not None:
                    self._save(name, position)
        notes.save_cursor(_since(name), _NOT_RUNNING)
        logger.warning("queue %s: a redrive was interrupted; start it again for the rest", name)

    def _position(self, queue: "Queue") -> int:
        saved = self._engine.notes.load_cursor(_cursor(queue.spec.name))
        return max(saved or 0, self._engine.start)

    def _save(self, name: str, offset: int) -> None:
        """It only moves forward: letters that are done with do not come back."""
        saved = self._engine.notes.load_cursor(_cursor(name)) or 0
        self._engine.notes.save_cursor(_cursor(name), max(saved, offset))


def _cursor(name: str) -> str:
    return f"dead letters of {name}"


def _since(name: str) -> str:
    """Where the log ended when the redrive began that is running."""
    return f"redrive of {name}, since"


def _secret(name: str) -> str:
    return f"redrive of {name}, secret"


async def _chunks(batches: AsyncIterator[Batch]) -> AsyncIterator[list[Batch]]:
    """Many batches at a time, so that one sync serves them all."""
    chunk: list[Batch] = []
    async for batch in batches:
        chunk.append(batch)
        if len(chunk) >= CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _restored(letters: Sequence[Batch], most: int, secret: int) -> tuple[list[Run], int, int]:
    """The messages as they were, but for a header, the offset behind their letters, and how many
    they are."""
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
        headers += ((REDRIVEN, mark(secret, end)),)
        runs.append(Run(topic, payloads, protocol=protocol, publisher=publisher, headers=headers))
        if count >= most:
            break
    return runs, end, count


def _origin(letter: Batch) -> tuple[str, str, str, Headers]:
    run = letter.run
    headers = tuple(pair for pair in run.headers if pair[0] not in _OWN)
    topic = next((value for name, value in run.headers if name == TOPIC), run.topic)
    return topic, run.protocol, run.publisher, headers
