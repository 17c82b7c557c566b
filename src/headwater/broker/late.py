"""What is kept for a cursor that gets it a little later than others, because a batch goes to very
many: all that it wants from its position on. It need not look for that in the log, where everything
is that others publish meanwhile."""

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
