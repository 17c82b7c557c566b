"""What is sent as it happens: pages that change, and messages that pass by.

However many people look at the same topic, the broker has one tap for them. Whoever reads slowly
gets fewer rows, and a count of those that were left out.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headwater.console.control_link import ControlLink
from headwater.console.dependencies import shown
from headwater.console.events import HEARTBEAT, HEARTBEAT_SECONDS, event
from headwater.console.pages import encoded
from headwater.errors import HeadwaterError, Refusal

FETCH_SECONDS = 0.25
PAGE_SECONDS = 0.5
MOST_ROWS = 200
RATE_SECONDS = 2.0


async def page_events(
    broker: ControlLink, page: str, parameters: dict[str, Any]
) -> AsyncGenerator[str]:
    """A page whenever it has changed."""
    last, sent_at = "", time.monotonic()
    while True:
        try:
            text = await encoded(broker, page, parameters)
        except HeadwaterError as error:
            text = ""
            yield event("problem", json.dumps({"message": str(error)}))
            if isinstance(error, Refusal):
                return
        if text and text != last:
            last, sent_at = text, time.monotonic()
            yield event("data", text)
        elif time.monotonic() - sent_at > HEARTBEAT_SECONDS:
            sent_at = time.monotonic()
            yield HEARTBEAT
        await asyncio.sleep(PAGE_SECONDS)


@dataclass(frozen=True)
class News:
    """What has passed by in a moment."""

    items: list[dict[str, Any]]
    skipped: int
    matched: int
    rate: float

    @property
    def matters(self) -> bool:
        return bool(self.items or self.skipped or self.matched)

    def followed_by(self, later: "News") -> "News":
        """Both, with no more rows than are shown at once."""
        items = self.items + later.items
        left_out = max(len(items) - MOST_ROWS, 0)
        return News(
            items[:MOST_ROWS],
            self.skipped + later.skipped + left_out,
            self.matched + later.matched,
            later.rate,
        )

    def within(self, may_get: Callable[[str], bool]) -> "News":
        """What of it someone may know who does not get all topics."""
        items = [each for each in self.items if may_get(each["topic"])]
        return self if len(items) == len(self.items) else News(items, 0, len(items), self.rate)

    @cached_property
    def event(self) -> str:
        """Made once for all who have read everything before."""
        content = {
            "items": self.items,
            "skipped": self.skipped,
            "matched": self.matched,
            "rate": round(self.rate, 1),
        }
        return event("rows", json.dumps(content, separators=(",", ":")))


class TailReader:
    """One reader of a tail, and what it has not been sent yet."""

    def __init__(self, may_get: Callable[[str], bool]) -> None:
        self._may_get = may_get
        self.news = asyncio.Event()
        self._news: News | None = None
        self._rate = 0.0
        self.problem: str | None = None

    def add(self, news: News) -> None:
        news = news.within(self._may_get)
        if self._news is None:
            self._news = news
        else:
            self._news = self._news.followed_by(news)
        if news.matters or news.rate != self._rate:
            self.news.set()
        self._rate = news.rate

    def take(self) -> str:
        taken, self._news = self._news or News([], 0, 0, 0.0), None
        self.news.clear()
        return taken.event


class LiveTail:
    """A tap of the broker, and those who look through it."""

    def __init__(self, broker: ControlLink, wanted: dict[str, Any]) -> None:
        self._broker = broker
        self._wanted = wanted
        self.listeners: set[TailReader] = set()
        self._passed: list[tuple[float, int]] = []
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        tap = None
        try:
            tap = (await self._broker.ask("tap.open", **self._wanted))["tap"]
            while True:
                self._spread(await self._broker.ask("tap.fetch", tap=tap))
                await asyncio.sleep(FETCH_SECONDS)
        except HeadwaterError as error:
            for listener in self.listeners:
                listener.problem = str(error)
                listener.news.set()
        finally:
            if tap is not None:
                await self._close(tap)

    async def _close(self, tap: int) -> None:
        # If this fails: it closes by itself when nobody fetches from it.
        with suppress(HeadwaterError, asyncio.CancelledError):
            await asyncio.shield(self._broker.ask("tap.close", tap=tap))

    def _spread(self, catch: dict[str, Any]) -> None:
        rows = [shown(row) for row in catch["items"]]
        now = time.monotonic()
        self._passed.append((now, catch["passed"]))
        while self._passed[0][0] < now - RATE_SECONDS:
            del self._passed[0]
        rate = sum(passed for _, passed in self._passed[1:]) / max(now - self._passed[0][0], 0.25)
        news = News(rows, catch["skipped"], catch["matched"], rate)
        for listener in self.listeners:
            listener.add(news)


class Tails:
    """All tails that someone looks at."""

    def __init__(self, broker: ControlLink) -> None:
        self._broker = broker
        self._open: dict[str, LiveTail] = {}

    async def events(
        self, topic: str, kind: str, text: str, may_get: Callable[[str], bool]
    ) -> AsyncGenerator[str]:
        """What passes by, of the topics that the reader may get."""
        key = json.dumps([topic, kind, text])
        tail = self._open.get(key)
        if tail is None or tail.task.done():
            wanted = {"topic": topic, "kind": kind, "text": text}
            tail = self._open[key] = LiveTail(self._broker, wanted)
        listener = TailReader(may_get)
        tail.listeners.add(listener)
        try:
            async for each in _rows(listener):
                yield each
        finally:
            tail.listeners.discard(listener)
            if not tail.listeners:
                tail.task.cancel()
                if self._open.get(key) is tail:
                    del self._open[key]

    def close(self) -> None:
        for tail in self._open.values():
            tail.task.cancel()


async def _rows(listener: TailReader) -> AsyncGenerator[str]:
    yield listener.take()
    while True:
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                await listener.news.wait()
        except TimeoutError:
            yield HEARTBEAT
            continue
        if listener.problem is not None:
            yield event("problem", json.dumps({"message": listener.problem}))
            return
        yield listener.take()
        await asyncio.sleep(FETCH_SECONDS)
