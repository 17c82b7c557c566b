"""The books of a queue: who holds which message, what has to be delivered again, what is done.

A message of the queue is in one of three places:

    not given yet      at the cursor's position or behind it; nothing is kept for it
    held by a consumer it was delivered and not acknowledged
    returned           a consumer left it; it goes to the next one that has room, oldest first

Everything else before the position is done with. So what is kept grows with the consumers' windows
and not with the queue. In broadcast mode a message may be held by several consumers.

    content   mark u16 | position u64 | count u32 | unused since u32 | given u8, then of all
              messages that are held or returned the offsets, u64 each, and the deliveries, u16
              each; all little-endian

It is made several times a second, and a queue may have very many of them: so no object is made for
a message on the way. An earlier version had another mark, and did not say since when a queue was
unused and whether it had ever given a message. One before that began with the position, in which
the marks do not occur, and had (offset u64, deliveries u16) for each message, all big-endian.
"""

import struct
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

_MARK, _HEAD = 0xFFFE, struct.Struct("<HQIIB")
_OLD_MARK, _OLD_HEAD = 0xFFFF, struct.Struct("<HQI")
_OLD_POSITION = struct.Struct(">Q")
_OLD_OPEN = struct.Struct(">QH")
MOST_DELIVERIES = 0xFFFF


class Usage(NamedTuple):
    """Whether a queue is of any use."""

    unused_since: int  # in seconds since 1970; 0: it has a consumer, or nobody knows
    given: bool = True  # it has given messages to consumers


_UNKNOWN = Usage(0)


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

    def deliveries(self) -> dict[int, int]:
        """Of all that is held, by offset."""
        return {offset: lot.deliveries for offset, lot in self._held.items()}

    def clear(self) -> list[tuple[int, int]]:
        left = list(self.deliveries().items())
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

    def take_oldest(self, count: int) -> list[tuple[int, int]]:
        """(offset, deliveries) of so many, which are no longer here."""
        taken = [heappop(self._order) for _ in range(min(count, len(self._order)))]
        return [(offset, self._deliveries.pop(offset)) for offset in taken]

    def deliveries(self) -> Mapping[int, int]:
        """Of all of them, by offset."""
        return self._deliveries

    def clear(self) -> list[tuple[int, int]]:
        left = list(self._deliveries.items())
        self._deliveries.clear()
        self._order.clear()
        return left


def encode(position: int, *parts: Mapping[int, int], usage: Usage = _UNKNOWN) -> bytes:
    """`parts`: the deliveries of messages. Of one that is in several, the last counts."""
    offsets, counts = array("Q"), array("H")
    for part in parts:
        offsets.extend(part)
        counts.extend(_deliveries(part))
    head = _HEAD.pack(_MARK, position, len(counts), *usage)
    return head + _little_endian(offsets) + _little_endian(counts)


def _deliveries(part: Mapping[int, int]) -> "array[int]":
    try:
        return array("H", part.values())
    except OverflowError:
        return array("H", [min(count, MOST_DELIVERIES) for count in part.values()])


def decode(content: bytes, end: int) -> tuple[int, list[tuple[int, int]]]:
    """Nothing is beyond the end of the log, however much of it a crash took along."""
    position, items = _decode(content)
    return min(position, end), [item for item in items if item[0] < end]


def usage(content: bytes) -> Usage:
    if _mark(content) != _MARK:
        return _UNKNOWN
    *_, unused_since, given = _HEAD.unpack_from(content)
    return Usage(unused_since, bool(given))


def with_usage(content: bytes, usage: Usage) -> bytes:
    """The same content, but for that."""
    return encode(*_as_arguments(content), usage=usage)


def _as_arguments(content: bytes) -> tuple[int, Mapping[int, int]]:
    position, items = _decode(content)
    return position, dict(items)


def _mark(content: bytes) -> int:
    return int.from_bytes(content[:2], "little")


def _decode(content: bytes) -> tuple[int, Iterable[tuple[int, int]]]:
    if (mark := _mark(content)) not in (_MARK, _OLD_MARK):
        (position,) = _OLD_POSITION.unpack_from(content)
        return position, _OLD_OPEN.iter_unpack(content[8:])
    head = _HEAD if mark == _MARK else _OLD_HEAD
    _, position, count, *_ = head.unpack_from(content)
    offsets, counts = array("Q"), array("H")
    middle = head.size + 8 * count
    offsets.frombytes(content[head.size : middle])
    counts.frombytes(content[middle:])
    if sys.byteorder == "big":
        offsets.byteswap()
        counts.byteswap()
    return position, zip(offsets, counts, strict=True)


def _little_endian(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
