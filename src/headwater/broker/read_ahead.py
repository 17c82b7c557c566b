"""What was read from the log for a cursor and not given yet.

A cursor keeps nothing of a piece of the log that its reader had no room for. But when it has to
stop in the middle of a piece only because others have their turn, and when a consumer takes one
message at a time, it would have the same piece read and decoded again and again. So the rest of it
is kept, for the few cursors that have read last.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headwater.message import Batch

if TYPE_CHECKING:
    from headwater.broker.cursor import Cursor

# Each may have as much as a cursor reads at once.
MOST_CURSORS = 32


class ReadAhead:
    """Those of all cursors of a broker."""

    def __init__(self) -> None:
        self._of: OrderedDict[Cursor, deque[Batch]] = OrderedDict()

    def keep(self, cursor: "Cursor", batches: Iterable[Batch]) -> None:
        self._of[cursor] = deque(batches)
        self._of.move_to_end(cursor)
        if len(self._of) > MOST_CURSORS:
            self._of.popitem(last=False)

    def next(self, cursor: "Cursor", position: int) -> Batch | None:
        """The next batch that the cursor wants, if it is known. A cursor only ever goes forward, so
        what was before the first one that is left is not wanted."""
        batches = self._of.get(cursor)
        while batches and batches[0].end <= position:
            batches.popleft()
        if batches:
            return batches[0]
        self.drop(cursor)
        return None

    def drop(self, cursor: "Cursor") -> None:
        self._of.pop(cursor, None)
