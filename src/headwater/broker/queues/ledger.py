"""The books of a queue: who holds which message, what has to be delivered again, what is done.

A message of the queue is in one of three places:

    not given yet      at the cursor's position or behind it; nothing is kept for it
    held by a consumer it was delivered and not acknowledged
    returned           a consumer left it; it goes to the next one that has room, oldest first

Everything else before the position is done with. So what is kept grows with the consumers' windows
and not with the queue. In broadcast mode a message may be held by several consumers.

    content   position u64 | (offset u64, deliveries u16) for each message that is held or returned
"""

import struct
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

_POSITION = struct.Struct(">Q")
_OPEN = struct.Struct(">QH")
MOST_DELIVERIES = 0xFFFF


class Lot:
    """Messages that were delivered to one consumer together."""

    __slots__ = ("deadline", "deliveries", "offsets", "open")

    def __init__(self, offsets: Sequence[int], deliveries: int, deadline: float) -> None:
        self.offsets = offsets
        self.deliveries = deliveries  # how often they have been delivered, this time included
        self.deadline = deadline
        self.open = len(offsets)


class Holdings:
    """What one consumer holds."""

    def __init__(self) -> None:
        self._held: dict[int, Lot] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, lot: Lot) -> None:
        self._held.update(dict.fromkeys(lot.offsets, lot))

    def settle(self, offsets: Iterable[int]) -> int:
        """Messages are done with; returns how many of them were held."""
        held, settled = self._held, 0
        for offset in offsets:
            lot = held.pop(offset, None)
            if lot is not None:
                lot.open -= 1
                settled += 1
        return settled

    def take_back(self, lot: Lot) -> list[int]:
        """What is still open of a lot; it is no longer held."""
        left = [offset for offset in lot.offsets if self._held.get(offset) is lot]
        self.settle(left)
        return left

    def items(self) -> list[tuple[int, int]]:
        """(offset, deliveries) of all that is held."""
        return [(offset, lot.deliveries) for offset, lot in self._held.items()]

    def clear(self) -> list[tuple[int, int]]:
        left = self.items()
        for lot in self._held.values():
            lot.open = 0
        self._held.clear()
        return left


class Returned:
    """Messages that have to be delivered again, oldest first."""

    def __init__(self, items: Iterable[tuple[int, int]] = ()) -> None:
        self._deliveries = dict(items)
        self._order = list(self._deliveries)
        heapify(self._order)

    def __len__(self) -> int:
        return len(self._deliveries)

    def add(self, items: Iterable[tuple[int, int]]) -> None:
        for offset, deliveries in items:
            known = self._deliveries.get(offset)
            if known is None:
                heappush(self._order, offset)
            self._deliveries[offset] = max(deliveries, known or 0)

    def oldest(self) -> int:
        return self._order[0]

    def next_stretch(self, end: int) -> tuple[int, int, int] | None:
        """The first stretch of neighbours before `end` with the same number of deliveries:
        (first offset, offset behind the last, deliveries)."""
        if not self._order or self._order[0] >= end:
            return None
        first = self._order[0]
        deliveries = self._deliveries[first]
        last = first + 1
        while last < end and self._deliveries.get(last) == deliveries:
            last += 1
        return first, last, deliveries

    def remove_before(self, offset: int) -> int:
        """Forget what comes before `offset`; returns how many those were."""
        removed = 0
        while self._order and self._order[0] < offset:
            del self._deliveries[heappop(self._order)]
            removed += 1
        return removed

    def items(self) -> list[tuple[int, int]]:
        return list(self._deliveries.items())

    def clear(self) -> list[tuple[int, int]]:
        left = self.items()
        self._deliveries.clear()
        self._order.clear()
        return left


def encode(position: int, items: Iterable[tuple[int, int]]) -> bytes:
    parts = [_OPEN.pack(offset, min(count, MOST_DELIVERIES)) for offset, count in items]
    return _POSITION.pack(position) + b"".join(parts)


def decode(content: bytes, end: int) -> tuple[int, list[tuple[int, int]]]:
    """Nothing is beyond the end of the log, however much of it a crash took along."""
    (position,) = _POSITION.unpack_from(content)
    left = [(offset, count) for offset, count in _OPEN.iter_unpack(content[8:]) if offset < end]
    return min(position, end), left
