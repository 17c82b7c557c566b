"""Queues and their dead letters: lists, details, redrive and purge. All answers are plain data.

Counting the messages that wait in a queue reads the log. Commands have them counted at once; pages
that are shown again and again share one count, which is kept for as long as it has earned its cost.
"""

import asyncio
import base64
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from headwater.admin.bindings import UnmatchedBinding, unmatched
from headwater.admin.paging import PageBuilder, PageRequest
from headwater.admin.topics import TopicHandlers
from headwater.broker.broker import Broker
from headwater.broker.queues.dead import DELIVERIES, REASON, TOPIC
from headwater.broker.queues.queue import Queue
from headwater.control import Handler, find
from headwater.errors import Code, Refusal
from headwater.filters import wanting
from headwater.queue_spec import QueueSpec

logger = logging.getLogger(__name__)

FRESH_SECONDS = 1.0
COST_FACTOR = 50
# A machine that was busy for a moment is no reason to show old figures for long.
LONGEST_SECONDS = 10.0
# The waiting messages of a queue are counted for so long; then the count says "at least".
COUNT_SECONDS = 0.5
# The same, for each queue of a page.
PAGE_COUNT_SECONDS = 0.1
SHOWN_LETTERS = 20
MOST_LETTERS = 100
LETTER_BYTES = 4096
# So long it is looked whether the bindings of a queue match any topic: for a page, at the start.
PAGE_MATCH_SECONDS = 0.02
MATCH_SECONDS = 1.0

Summary = dict[str, Any]

KEYS: Mapping[str, Callable[[Summary], Any]] = {
    "name": lambda each: each["name"],
    "protocol": lambda each: each["protocol"],
    "consumers": lambda each: each["consumers"],
    "waiting": lambda each: each["waiting"],
    "in_flight": lambda each: each["in_flight"],
    "returned": lambda each: each["returned"],
    "dead": lambda each: each["dead"],
    "oldest": lambda each: each["oldest"] or 0,
}


class QueueHandlers:
    """`spec_of` makes the specification of a queue that is remembered but was not used yet."""

    def __init__(
        self,
        broker: Broker,
        spec_of: Callable[[str], QueueSpec | None],
        topics: TopicHandlers,
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._engine = broker.engine
        self._dead = broker.dead
        self._spec_of = spec_of
        self._summaries: list[Summary] = []
        self._next_at = 0.0
        self._counting: asyncio.Task[None] | None = None

    def handlers(self) -> dict[str, Handler]:
        return {
            "queue.list": self.list_queues,
            "queue.show": self.show,
            "queue.redrive": self.redrive,
            "queue.purge": self.purge,
            "queue.dead": self.dead,
            "queues.list": self.page,
        }

    async def list_queues(self, count_seconds: float = COUNT_SECONDS) -> list[Summary]:
        """All queues; counting what waits takes at most so long for each."""
        found = [self._known(name) for name in self._names()]
        return [await self._summary(queue, count_seconds) for queue in found if queue is not None]

    async def page(
        self, limit: int = 50, sort: str = "", cursor: str | None = None, q: str = ""
    ) -> dict[str, Any]:
        asked = PageRequest.read(limit, sort, cursor, q)
        await self.refresh()
        builder = PageBuilder(asked, KEYS, "name", lambda each: each["name"])
        text = asked.q.lower()
        builder.add(each for each in self._summaries if text in each["name"].lower())
        return builder.page().as_dict(lambda each: each)

    async def show(self, name: str) -> dict[str, Any]:
        queue = self._named(name)
        spec = queue.spec
        letters = [letter async for letter in self._letters(queue, -1, SHOWN_LETTERS)]
        for letter in letters:
            del letter["payload"]
        return {
            **await self._summary(queue, COUNT_SECONDS),
            "bindings": [each.text for each in spec.filters],
            "unmatched_bindings": [
                each.as_dict() for each in await self._unmatched(spec, PAGE_MATCH_SECONDS)
            ],
            "prefetch": spec.prefetch,
            "ack_seconds": spec.ack_seconds,
            "max_deliveries": spec.max_deliveries,
            "dead_topic": spec.dead_topic,
            "dead_letters": letters,
        }

    async def check_bindings(self) -> None:
        """Say, in the log, which bindings take nothing of what has been published so far."""
        for queue in list(self._broker.queues.values()):
            for each in await self._unmatched(queue.spec, MATCH_SECONDS):
                level = logging.INFO if each.near is None else logging.WARNING
                logger.log(level, "queue %s: its binding %s", queue.spec.name, each)

    async def _unmatched(self, spec: QueueSpec, seconds: float) -> list[UnmatchedBinding]:
        topics = await self._topics.names()
        return await asyncio.to_thread(unmatched, spec.filters, topics, seconds)

    async def dead(self, name: str, after: int = -1, limit: int = 50) -> dict[str, Any]:
        """Dead letters behind an offset, each with the beginning of its payload."""
        queue, limit = self._named(name), min(max(limit, 1), MOST_LETTERS)
        found = [letter async for letter in self._letters(queue, after, limit + 1)]
        shown = found[:limit]
        return {
            "items": shown,
            "total": await self._dead.count(queue),
            "next": shown[-1]["offset"] if len(found) > limit else None,
        }

    async def redrive(
        self, name: str, progress: Callable[[int, int], None], limit: int | None = None
    ) -> dict[str, int]:
        redriven = await self._dead.redrive(self._named(name), limit, progress)
        self._next_at = 0.0
        return {"redriven": redriven}

    async def purge(self, name: str) -> dict[str, int]:
        purged = await self._dead.purge(self._named(name))
        self._next_at = 0.0
        return {"purged": purged}

    # The figures that pages, the overview and alerts share

    @property
    def summaries(self) -> list[Summary]:
        """All queues, as they were at the last `refresh`."""
        return self._summaries

    async def refresh(self) -> None:
        """Count again, unless that was done a moment ago. Callers that come meanwhile share one
        count."""
        if time.monotonic() < self._next_at:
            return
        if self._counting is None:
            self._counting = asyncio.get_running_loop().create_task(self._count_all())
        await asyncio.shield(self._counting)

    async def _count_all(self) -> None:
        began = time.monotonic()
        try:
            self._summaries = await self.list_queues(PAGE_COUNT_SECONDS)
            now = time.monotonic()
            pause = max(FRESH_SECONDS, COST_FACTOR * (now - began))
            self._next_at = now + min(pause, LONGEST_SECONDS)
        finally:
            self._counting = None

    async def _summary(self, queue: Queue, count_seconds: float) -> Summary:
        stop = self._engine.watermark
        waiting, counted, oldest = await self._engine.count(
            queue.position, wanting(queue.spec.filters), count_seconds
        )
        return {
            "name": queue.spec.name,
            "protocol": queue.spec.name.partition("/")[0],
            "consumers": queue.consumers,
            "in_flight": queue.in_flight,
            "returned": queue.to_repeat,
            "waiting": waiting,
            "waiting_is_partial": counted < stop,
            "dead": await self._dead.count(queue),
            "position": queue.position,
            "oldest": oldest,
            "backlog_seconds": queue.spec.backlog_seconds,
            "dropped": queue.dropped,
        }

    async def _letters(self, queue: Queue, after: int, most: int) -> AsyncIterator[dict[str, Any]]:
        async for batch in self._dead.letters(queue, after + 1):
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

    def _names(self) -> list[str]:
        return sorted({*self._engine.notes.queue_names(), *self._broker.queues})

    def _named(self, name: str) -> Queue:
        """The queue that an operator means, with or without the protocol in front of its name."""
        meant = find(name, self._names())
        queue = self._known(meant)
        if queue is None:
            raise Refusal(Code.NOT_FOUND, f"there is no queue {meant}")
        return queue

    def _known(self, name: str) -> Queue | None:
        if name in self._broker.queues:
            return self._broker.queues[name]
        spec = self._spec_of(name)
        return None if spec is None else self._broker.look_at(spec)
