"""Backlogs: what waits too long in a queue that nobody consumes is dropped.

A queue is a position in the log, so dropping is moving on; the messages stay in the log. It is
never silent: the queue counts what it has dropped, the log of the broker says so, and an alert
does. While a queue has a consumer, nothing is dropped, however far behind that one is; and what was
delivered before and came back waits on.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from headwater.clock import believed
from headwater.filters import wanting
from headwater.units import format_duration

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.queues.queue import Queue

logger = logging.getLogger(__name__)

# A message may wait longer than it should by this part of the time, or by an hour.
CHECKS = 100
LONGEST_PAUSE_SECONDS = 3600.0
# Counting lets others read the log after so long.
COUNT_SECONDS = 0.1


class Backlogs:
    """The queues that have a limit. Those with the same one are looked after together."""

    def __init__(self, broker: "Broker") -> None:
        self._engine = broker.engine
        self._queues: dict[float, list[Queue]] = {}  # by the seconds that a message may wait
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, queue: "Queue") -> None:
        """Drop what waits too long in a queue, from now on, if it has a limit."""
        seconds = queue.spec.backlog_seconds
        if seconds is None:
            return
        if seconds not in self._queues:
            self._tasks.add(asyncio.get_running_loop().create_task(self._watch(seconds)))
        self._queues.setdefault(seconds, []).append(queue)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _watch(self, seconds: float) -> None:
        while True:
            try:
                oldest = int((believed() - seconds) * 1e6)
                end = await self._engine.offset_at(oldest)
                for queue in list(self._queues[seconds]):
                    await self._drop_before(end, queue, seconds)
            except Exception:  # the next time may be better
                logger.exception("backlogs cannot be limited to %s", format_duration(seconds))
            await asyncio.sleep(min(seconds / CHECKS, LONGEST_PAUSE_SECONDS))

    async def _drop_before(self, end: int, queue: "Queue", seconds: float) -> None:
        start = queue.skip_to(end)
        if start is None:
            return
        if dropped := await self._count(queue, start, end):
            queue.note_dropped(dropped)
            logger.warning(
                "queue %s: %d messages were dropped, because nobody has consumed them for %s",
                queue.spec.name,
                dropped,
                format_duration(seconds),
            )

    async def _count(self, queue: "Queue", start: int, end: int) -> int:
        """How many messages of the queue there are between two offsets."""
        wanted, total = wanting(queue.spec.filters), 0
        while start < end:
            found, start, _ = await self._engine.count(start, wanted, COUNT_SECONDS, end)
            total += found
        return total
