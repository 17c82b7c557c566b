"""Queues and their dead letters.

Counting what waits in a queue reads the log. What commands ask for is counted at once; what a page
shows again and again is kept, for as long as the counting has earned its cost.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from headwater.admin.paging import Selection, Wish
from headwater.admin.queue_overview import Overview
from headwater.control import Handler, find

FRESH_SECONDS = 1.0
COST_FACTOR = 50
# A machine that was busy for a moment is no reason to show old figures for long.
LONGEST_SECONDS = 10.0
# What waits is counted for so long, for each queue of a page.
COUNT_SECONDS = 0.1
MOST_LETTERS = 100

KEYS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "name": lambda each: each["name"],
    "protocol": lambda each: each["protocol"],
    "consumers": lambda each: each["consumers"],
    "waiting": lambda each: each["waiting"],
    "in_flight": lambda each: each["in_flight"],
    "returned": lambda each: each["returned"],
    "dead": lambda each: each["dead"],
    "oldest": lambda each: each["oldest"] or 0,
}


class QueueDesk:
    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._summaries: list[dict[str, Any]] = []
        self._next_at = 0.0
        self._counting: asyncio.Task[None] | None = None

    def handlers(self) -> dict[str, Handler]:
        return {
            "queue.list": self._all,
            "queue.show": self.show,
            "queue.redrive": self.redrive,
            "queue.purge": self.purge,
            "queue.dead": self.dead,
            "queues.list": self.page,
        }

    async def page(
        self, limit: int = 50, sort: str = "", cursor: str | None = None, q: str = ""
    ) -> dict[str, Any]:
        wish = Wish.read(limit, sort, cursor, q)
        await self.refresh()
        selection = Selection(wish, KEYS, "name", lambda each: each["name"])
        text = wish.q.lower()
        selection.add(each for each in self._summaries if text in each["name"].lower())
        return selection.page().as_dict(lambda each: each)

    async def _all(self) -> list[dict[str, Any]]:
        return await self._overview.queues()

    async def show(self, name: str) -> dict[str, Any]:
        return await self._overview.queue(self._named(name))

    async def dead(self, name: str, after: int = -1, limit: int = 50) -> dict[str, Any]:
        """Dead letters behind an offset."""
        return await self._overview.letters(
            self._named(name), after, min(max(limit, 1), MOST_LETTERS)
        )

    async def redrive(
        self, name: str, progress: Callable[[int, int], None], limit: int | None = None
    ) -> dict[str, int]:
        redriven = await self._overview.redrive(self._named(name), limit, progress)
        self._next_at = 0.0
        return {"redriven": redriven}

    async def purge(self, name: str) -> dict[str, int]:
        purged = await self._overview.purge(self._named(name))
        self._next_at = 0.0
        return {"purged": purged}

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """What is known of all queues since the last look."""
        return self._summaries

    async def refresh(self) -> None:
        if time.monotonic() < self._next_at:
            return
        if self._counting is None:
            self._counting = asyncio.get_running_loop().create_task(self._count())
        await asyncio.shield(self._counting)

    async def _count(self) -> None:
        began = time.monotonic()
        try:
            self._summaries = await self._overview.queues(COUNT_SECONDS)
            now = time.monotonic()
            pause = max(FRESH_SECONDS, COST_FACTOR * (now - began))
            self._next_at = now + min(pause, LONGEST_SECONDS)
        finally:
            self._counting = None

    def _named(self, name: str) -> str:
        return find(name, self._overview.names())
