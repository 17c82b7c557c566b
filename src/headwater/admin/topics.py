"""Which topics there are, how much they have and how fast they grow.

Counting topics is work for a thread, and it is not repeated before it has earned its cost: a count
is used for a hundred times as long as it took.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from headwater.admin.paging import ListPage, PageBuilder, PageRequest
from headwater.admin.taps import Tap
from headwater.broker.broker import Broker
from headwater.control import Handler
from headwater.errors import Code, Refusal

FRESH_SECONDS = 1.0
COST_FACTOR = 100
URGENT_SECONDS = 0.1
SUBSCRIBERS_SECONDS = 0.1
TOP_TOPICS = 50


class TopicEntry(NamedTuple):
    """A plain tuple, because there may be very many of them."""

    topic: str
    messages: int
    bytes: int
    rate: float
    first: int
    last: int


KEYS: Mapping[str, Callable[[TopicEntry], Any]] = {
    "topic": lambda each: each.topic,
    "count": lambda each: each.messages,
    "messages_per_second": lambda each: each.rate,
    "first": lambda each: each.first,
    "last": lambda each: each.last,
}


class TopicHandlers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._entries: dict[str, TopicEntry] = {}
        self._counted_at = 0.0
        self._counted_end = 0
        self._next_at = 0.0
        self._counting: asyncio.Task[None] | None = None

    def handlers(self) -> dict[str, Handler]:
        return {"topics.list": self.page, "topics.show": self.show}

    async def page(
        self, limit: int = 50, sort: str = "", cursor: str | None = None, q: str = ""
    ) -> dict[str, Any]:
        asked = PageRequest.read(limit, sort, cursor, q)
        await self.refresh()
        page = await asyncio.to_thread(self._page, asked)
        subscribers = await self._subscribers([entry.topic for entry in page.items])
        return page.as_dict(lambda entry: _shown(entry, subscribers.get(entry.topic)))

    async def show(self, topic: str) -> dict[str, Any]:
        await self.refresh()
        entry = self._entries.get(topic)
        if entry is None and self._counted_end != self._broker.engine.watermark:
            await asyncio.sleep(URGENT_SECONDS)  # so that nobody can have it done all the time
            await self.refresh(URGENT_SECONDS)
            entry = self._entries.get(topic)
        if entry is None:
            raise Refusal(Code.NOT_FOUND, f"there is no topic {topic}, or nothing of it is left")
        subscribers = await self._subscribers([topic])
        return _shown(entry, subscribers.get(topic))

    async def top(self) -> tuple[list[TopicEntry], list[TopicEntry]]:
        """Those with the most messages, and all others."""
        await self.refresh()
        entries = sorted(self._entries.values(), key=lambda each: each.messages, reverse=True)
        return entries[:TOP_TOPICS], entries[TOP_TOPICS:]

    async def names(self) -> Collection[str]:
        """All topics. The collection is another one when they were counted anew, and never
        changes."""
        await self.refresh()
        return self._entries.keys()

    @property
    def known(self) -> int:
        return len(self._entries)

    async def refresh(self, seconds: float | None = None) -> None:
        """Count anew, unless that was done a moment ago, or so many seconds ago. Who comes
        meanwhile waits for the same."""
        due = self._next_at if seconds is None else self._counted_at + seconds
        if time.monotonic() < due:
            return
        if self._counting is None:
            self._counting = asyncio.get_running_loop().create_task(self._count_all())
        await asyncio.shield(self._counting)

    async def _count_all(self) -> None:
        try:
            began, self._counted_end = time.monotonic(), self._broker.engine.watermark
            self._entries, cost = await asyncio.to_thread(self._count, began - self._counted_at)
            self._counted_at = began
            self._next_at = time.monotonic() + max(FRESH_SECONDS, COST_FACTOR * cost)
        finally:
            self._counting = None

    def _count(self, seconds: float) -> tuple[dict[str, TopicEntry], float]:
        """In a thread; and how long that took, without what others have taken meanwhile."""
        before, began = self._entries, time.thread_time()
        found = {}
        for name, topic in self._broker.engine.topics().items():
            old = before.get(name)
            grown = topic.count - (old.messages if old else 0) if before else 0
            found[name] = TopicEntry(
                name,
                topic.count,
                topic.bytes,
                max(grown, 0) / seconds,
                topic.first,
                topic.last,
            )
        return found, time.thread_time() - began

    def _page(self, asked: PageRequest) -> ListPage[TopicEntry]:
        text = asked.q.lower()
        builder = PageBuilder(asked, KEYS, "topic", lambda each: each.topic)
        builder.add(
            entry for entry in self._entries.values() if not text or text in entry.topic.lower()
        )
        return builder.page()

    async def _subscribers(self, topics: list[str]) -> dict[str, int]:
        """Finding the subscribers of a topic anew asks every pattern there is, so this stops after
        a while; the rest is not known this time."""
        found: dict[str, int] = {}
        until = time.monotonic() + SUBSCRIBERS_SECONDS
        for topic in topics:
            owners = self._broker.router.route(topic).by_owner
            found[topic] = sum(not isinstance(owner, Tap) for owner in owners)
            await asyncio.sleep(0)
            if time.monotonic() > until:
                break
        return found


def _shown(entry: TopicEntry, subscribers: int | None) -> dict[str, Any]:
    return {
        "topic": entry.topic,
        "count": entry.messages,
        "bytes_estimate": entry.bytes,
        "messages_per_second": round(entry.rate, 1),
        # What was recovered after a crash does not tell when it came.
        "first": entry.first if entry.first > 0 else None,
        "last": entry.last,
        "subscribers": subscribers,
    }
