"""What was read from the log for a queue and not given yet.

A cursor keeps nothing of a piece of the log that its reader had no room for. A consumer that takes
one message at a time would have the same piece read and decoded again for each of them. So the rest
of it is kept, for the few feeds that have read last.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.message import Batch

if TYPE_CHECKING:
    from headwater.broker.queues.feed import Feed

# Each may have as much as a cursor reads at once.
MOST_FEEDS = 16


class ReadAhead:
    """Those of all feeds of a broker."""

    def __init__(self) -> None:
        self._of: OrderedDict[Feed, deque[Batch]] = OrderedDict()

    def keep(self, feed: "Feed", batches: Iterable[Batch]) -> None:
        self._of[feed] = deque(batches)
        self._of.move_to_end(feed)
        if len(self._of) > MOST_FEEDS:
            self._of.popitem(last=False)

    def next(self, feed: "Feed", position: int) -> Batch | None:
        """The next batch that the feed wants, if it is known. A feed only ever goes forward, so
        what was before the first one that is left is not wanted."""
        batches = self._of.get(feed, deque())
        while batches and batches[0].end <= position:
            batches.popleft()
        if batches:
            return batches[0]
        self.drop(feed)
        return None

    def drop(self, feed: "Feed") -> None:
        self._of.pop(feed, None)
