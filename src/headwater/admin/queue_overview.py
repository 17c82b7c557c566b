"""What an operator can see of queues, and do to them. Everything here is plain data."""

import base64
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from headwater.broker.queues.dead import DELIVERIES, REASON, TOPIC, Progress
from headwater.errors import Code, Refusal
from headwater.filters import wanting
from headwater.queue_spec import QueueSpec

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.queues.queue import Queue

# Counting what waits looks through the log; after this long it says how many there are at least.
COUNT_SECONDS = 0.5
SHOWN_LETTERS = 20
LETTER_BYTES = 4096


class Overview:
    """`spec_of` makes the specification of a queue that is remembered but was not used yet."""

    def __init__(self, broker: "Broker", spec_of: Callable[[str], QueueSpec | None]) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._spec_of = spec_of

    async def queues(self, count_seconds: float = COUNT_SECONDS) -> list[dict[str, Any]]:
        """All queues; counting what waits takes at most so long for each."""
        found = [self._find(name) for name in self.names()]
        return [await self._summary(queue, count_seconds) for queue in found if queue is not None]

    async def queue(self, name: str) -> dict[str, Any]:
        queue = self._named(name)
        spec = queue.spec
        letters = [letter async for letter in self._some_letters(queue, -1, SHOWN_LETTERS)]
        for letter in letters:
            del letter["payload"]
        return {
            **await self._summary(queue),
            "bindings": [each.text for each in spec.filters],
            "prefetch": spec.prefetch,
            "ack_seconds": spec.ack_seconds,
            "max_deliveries": spec.max_deliveries,
            "dead_topic": spec.dead_topic,
            "dead_letters": letters,
        }

    async def letters(self, name: str, after: int, limit: int) -> dict[str, Any]:
        """Dead letters behind an offset, with the beginning of what they say."""
        queue = self._named(name)
        found = [letter async for letter in self._some_letters(queue, after, limit + 1)]
        shown = found[:limit]
        return {
            "items": shown,
            "total": await self._broker.dead.count(queue),
            "next": shown[-1]["offset"] if len(found) > limit else None,
        }

    async def _some_letters(
        self, queue: "Queue", after: int, most: int
    ) -> AsyncIterator[dict[str, Any]]:
        async for batch in self._broker.dead.letters(queue, after + 1):
            about = dict(batch.run.headers)
            for number, payload in enumerate(batch.run.payloads):
                if most <= 0:
                    return
                most -= 1
                yield {
                    "offset": batch.offset + number,
                    "topic": about.get(TOPIC, ""),
                    "reason": about.get(REASON, ""),
                    "deliveries": int(about.get(DELIVERIES, 0)),
                    "size": len(payload),
                    "timestamp": batch.timestamp,
                    "payload": base64.b64encode(payload[:LETTER_BYTES]).decode(),
                }

    async def redrive(self, name: str, limit: int | None, progress: Progress) -> int:
        return await self._broker.dead.redrive(self._named(name), limit, progress)

    async def purge(self, name: str) -> int:
        return await self._broker.dead.purge(self._named(name))

    async def _summary(
        self, queue: "Queue", count_seconds: float = COUNT_SECONDS
    ) -> dict[str, Any]:
        waiting, partial, oldest = await self._count(queue, count_seconds)
        return {
            "name": queue.spec.name,
            "protocol": queue.spec.name.partition("/")[0],
            "consumers": queue.consumers,
            "in_flight": queue.in_flight,
            "returned": queue.to_repeat,
            "waiting": waiting,
            "waiting_is_partial": partial,
            "dead": await self._broker.dead.count(queue),
            "position": queue.position,
            "oldest": oldest,
        }

    async def _count(self, queue: "Queue", seconds: float) -> tuple[int, bool, int | None]:
        """How many messages wait, whether there may be more, and when the oldest came."""
        stop = self._engine.watermark
        count, counted, oldest = await self._engine.count(
            queue.position, wanting(queue.spec.filters), seconds
        )
        return count, counted < stop, oldest

    def names(self) -> list[str]:
        return sorted({*self._engine.notes.queue_names(), *self._broker.queues})

    def _named(self, name: str) -> "Queue":
        queue = self._find(name)
        if queue is None:
            raise Refusal(Code.NOT_FOUND, f"there is no queue {name}")
        return queue

    def _find(self, name: str) -> "Queue | None":
        if name in self._broker.queues:
            return self._broker.queues[name]
        spec = self._spec_of(name)
        return None if spec is None else self._broker.queue(spec)
