"""Queues that clients have made by consuming them: how many there may be, and how long they stay.

Anyone may make such queues, by the thousands. One that nobody consumes is deleted with all that was
noted of it:

    it has never given a message    soon: whoever makes it again finds all of its messages, as the
                                    log has them; so only those that begin with all that is retained
    it has                          after a long time, and the log of the broker says so

What a queue has is known by its notes, also if nobody has consumed it since the broker started.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.queues import ledger
from headwater.broker.queues.ledger import Usage
from headwater.broker.quotas import OverQuota
from headwater.clock import believed
from headwater.errors import Code
from headwater.queue_spec import QueueSpec
from headwater.units import format_duration

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

logger = logging.getLogger(__name__)

# A queue may stay longer than it should by this part of the time, or by a minute.
CHECKS = 10
LONGEST_PAUSE_SECONDS = 60.0


class UnusedQueues:
    def __init__(self, broker: "Broker", most: int) -> None:
        self._broker = broker
        self._notes = broker.engine.notes
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._made: dict[str, QueueSpec] = {}  # all of them, consumed or not
        self._pause = LONGEST_PAUSE_SECONDS
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._made)

    def recall(self, spec_of: Callable[[str], QueueSpec | None]) -> None:
        """Those of the time before: call this once. `spec_of` knows queues by their names."""
        for name in self._notes.queue_names():
            spec = spec_of(name)
            if spec is not None:
                self.add(spec)

    def check(self, spec: QueueSpec) -> None:
        """Raise Refusal if there are too many to make this one."""
        if _stays(spec) or spec.name in self._made or len(self._made) < self._most:
            return
        raise OverQuota(
            Code.TOO_LARGE,
            "client_queues",
            f"clients have made {self._most} queues; there may be no more",
        )

    def add(self, spec: QueueSpec) -> None:
        """There is this queue, which may be one that somebody has declared."""
        if _stays(spec) or spec.name in self._made:
            return
        self._made[spec.name] = spec
        times = [each for each in (spec.empty_seconds, spec.unused_seconds) if each is not None]
        self._pause = min(self._pause, *(each / CHECKS for each in times))
        if self._timer is None:
            self._look_later()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(
            self._pause, lambda: self._broker.chores.add(self._look())
        )

    def _look(self) -> Iterator[None]:
        """A chore."""
        for name, spec in list(self._made.items()):
            self._look_at(name, spec)
            yield
        self._look_later()

    def _look_at(self, name: str, spec: QueueSpec) -> None:
        usage = self._usage(name)
        if usage is None or self._broker.dead.concerns(name):
            return
        empty = spec.from_start and not usage.given
        seconds = spec.empty_seconds if empty else spec.unused_seconds
        if seconds is None or believed() - usage.unused_since < seconds:
            return
        del self._made[name]
        self._broker.forget_queue(name)
        if not empty:
            what = "queue %s is deleted, because nobody has consumed it for %s"
            logger.warning(what, name, format_duration(seconds))

    def _usage(self, name: str) -> Usage | None:
        """None: it is used, or has only just begun not to be."""
        queue = self._broker.queues.get(name)
        if queue is not None:
            return None if queue.consumers or queue.buried else queue.usage
        content = self._notes.load_queue(name)
        if content is None:
            return None
        usage = ledger.usage(content)
        if usage.unused_since:
            return usage
        # Someone consumed it when the broker ended, or an earlier version wrote this.
        now = Usage(int(time.time()), usage.given)
        self._notes.save_queue(name, partial(ledger.with_usage, content, now))
        return None


def _stays(spec: QueueSpec) -> bool:
    return spec.empty_seconds is None and spec.unused_seconds is None
