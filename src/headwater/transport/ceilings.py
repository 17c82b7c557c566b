"""What all connections together may take of the memory.

In: a message that has begun to arrive claims its whole size, and is read on only when there is room
for it. Who comes when there is none waits, in the order of coming. Small ones claim nothing.

Out: those whose buffers are worth a notice share what there is, and each may have its own limit at
most. There is no need to know how much is buffered, only by how many.
"""

from typing import Protocol

from headwater.slowing import MEMORY

# A message that is smaller claims nothing.
UNCLAIMED_BYTES = 64 * 1024


class Claimant(Protocol):
    """A connection, as the ceiling sees it."""

    def pause(self, why: str) -> None: ...
    def resume(self, why: str) -> None: ...


class InputCeiling:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._claims: dict[Claimant, int] = {}
        self._waiting: dict[Claimant, int] = {}  # in the order of coming
        #: How much is claimed.
        self.total = 0

    def claim(self, who: Claimant, size: int) -> None:
        """Have so much instead of what it had, now or later; nothing if that is small."""
        self._waiting.pop(who, None)
        self.total -= self._claims.pop(who, 0)
        if size > UNCLAIMED_BYTES:
            self._waiting[who] = size
        self._serve_all()
        if who in self._waiting:
            who.pause(MEMORY)

    @property
    def waiting(self) -> int:
        """How many have to wait."""
        return len(self._waiting)

    def _serve_all(self) -> None:
        while self._waiting:
            who, size = next(iter(self._waiting.items()))
            if self.total and self.total + size > self.limit:
                return  # the next may fit, but would keep this one waiting for ever
            del self._waiting[who]
            self._claims[who] = size
            self.total += size
            who.resume(MEMORY)


class OutputCeiling:
    def __init__(self, limit: int, each: int) -> None:
        self.limit, self._each = limit, each
        #: How many have something buffered that is worth a notice.
        self.full = 0
        #: How much may be buffered for one of them now.
        self.share = each

    def add(self, count: int) -> None:
        """So many more have something buffered that is worth a notice; or less."""
        self.full += count
        self.share = min(self._each, self.limit // max(self.full, 1))
