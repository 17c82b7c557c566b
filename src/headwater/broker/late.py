"""A batch that goes to very many: some get it at once, the others in turns.

What one of those wants from there on is kept for it (`Late`): it need not look for that in the log,
where everything is that others publish meanwhile. Whoever publishes to the same topic is not read
from until all have it (`FanOut`), or they would fall behind ever more.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from headwater.message import Batch

W = TypeVar("W")

# So much is kept at most, besides the first batch.
MOST_LATE = 64
LATE_BYTES = 1024 * 1024


class Late(Generic[W]):
    """`wants`: with which of its subscriptions a cursor wants a batch."""

    def __init__(self, batch: Batch, wants: W) -> None:
        self.batches: list[tuple[Batch, W]] = [(batch, wants)]
        self._bytes = 0

    def add(self, batch: Batch, wants: W) -> bool:
        """Whether there was room for it."""
        self._bytes += batch.run.size
        if len(self.batches) >= MOST_LATE or self._bytes > LATE_BYTES:
            return False
        self.batches.append((batch, wants))
        return True


class FanOut:
    """A batch of some topic has not come to all yet."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def when_done(self, act: Callable[[], None]) -> None:
        self._waiting.append(act)

    def done(self) -> None:
        for act in self._waiting:
            act()
