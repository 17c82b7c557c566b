"""Repeats: records with the key of an earlier record.

A key is remembered by 16 bytes (a BLAKE2b digest of its values) and by when its
record arrived. So a key costs 24 bytes of memory as long as its window lasts, whatever it is made
of, and a whole micro-batch is looked up at once.

Records come in the order of the log. A record is a repeat if another one with its key was kept at
most the window before it: that depends on their arrival alone, not on where a micro-batch ends.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.contracts.model import Contract

DIGEST_BYTES = 16
#: Of a record that has no key.
NO_KEY = bytes(DIGEST_BYTES)


def digests(contract: Contract, rows: Any) -> Any:
    """The digests of rows of silver, in a column; NO_KEY where a part of the key is null."""
    texts = [_text(rows.column(contract.field(name).column)) for name in contract.key]
    parts = []
    for each in texts:
        # Each with its length in front, so that ("a", "bc") is not ("ab", "c").
        parts += [pc.binary_length(each).cast(pa.string()), each]
    joined = pc.binary_join_element_wise(*parts, ":")
    made = [NO_KEY if key is None else _digest(key) for key in joined.to_pylist()]
    return pa.array(made, pa.binary(DIGEST_BYTES))


def _text(column: Any) -> Any:
    """A time as a number: its text would depend on the session's time zone."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return column.cast(pa.string())


def _digest(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class _SortedKeys:
    """Keys in the order of their first halves."""

    first: Any
    second: Any
    times: Any

    @classmethod
    def of(cls, keys: Any, times: Any) -> "_SortedKeys":
        order = np.argsort(keys[:, 0], kind="stable")
        return cls(keys[order, 0], keys[order, 1], times[order])

    def __len__(self) -> int:
        return len(self.first)

    def since(self, oldest: int) -> "_SortedKeys":
        kept = self.times >= oldest
        if kept.all():
            return self
        return _SortedKeys(self.first[kept], self.second[kept], self.times[kept])

    def with_(self, other: "_SortedKeys") -> "_SortedKeys":
        keys = np.stack([np.append(self.first, other.first), np.append(self.second, other.second)])
        return _SortedKeys.of(keys.T, np.append(self.times, other.times))


class SeenKeys:
    """The keys of one contract that may be repeated."""

    def __init__(self, window_seconds: float) -> None:
        self._window = round(window_seconds * 1e6)
        self._sorted: list[_SortedKeys] = []  # each at least twice as long as the next one

    def __len__(self) -> int:
        return sum(map(len, self._sorted))

    def add(self, keys: bytes, times: bytes) -> None:
        """Remember keys whose records were kept."""
        found, arrived = _arrays(keys, times)
        if len(arrived):
            self._remember(found, arrived, int(arrived.max()))

    def repeats(self, keys: bytes, times: bytes) -> Any:
        """Whether each of some records is a repeat; those that are not are remembered."""
        found, arrived = _arrays(keys, times)
        repeated = np.zeros(len(arrived), bool)
        if not len(arrived):
            return repeated
        with_key = found.any(axis=1)
        doubtful = np.flatnonzero((self._known(found[:, 0]) | _several(found[:, 0])) & with_key)
        self._decide(found, arrived, doubtful, repeated)
        kept = with_key & ~repeated
        self._remember(found[kept], arrived[kept], int(arrived[-1]))
        return repeated

    def _decide(self, keys: Any, times: Any, doubtful: Any, repeated: Any) -> None:
        """Look at single records, in the order of the log."""
        last: dict[tuple[int, int], int] = {}
        for place in doubtful:
            key, time = (int(keys[place, 0]), int(keys[place, 1])), int(times[place])
            if key not in last:
                last[key] = self._last(key)
            if time - last[key] <= self._window:
                repeated[place] = True
            else:
                last[key] = time

    def _known(self, firsts: Any) -> Any:
        """Whether a key may be there: its first half is."""
        known = np.zeros(len(firsts), bool)
        order = np.argsort(firsts)
        wanted = firsts[order]  # in order, they are found much more quickly
        for each in self._sorted:
            at = np.searchsorted(each.first, wanted)
            at[at == len(each)] = 0
            known[order] |= each.first[at] == wanted
        return known

    def _last(self, key: tuple[int, int]) -> int:
        """When a key was last kept; long ago if it was not."""
        last = -(2**62)
        for each in self._sorted:
            low = np.searchsorted(each.first, np.uint64(key[0]))
            high = np.searchsorted(each.first, np.uint64(key[0]), side="right")
            same = each.second[low:high] == np.uint64(key[1])
            if same.any():
                last = max(last, int(each.times[low:high][same].max()))
        return last

    def _remember(self, keys: Any, times: Any, newest: int) -> None:
        oldest = newest - self._window
        parts = [each for each in self._sorted if len(each) and each.times.max() >= oldest]
        if len(times):
            parts.append(_SortedKeys.of(keys, times))
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            small, large = parts.pop(), parts.pop()
            parts.append(large.since(oldest).with_(small))
        self._sorted = parts


def _several(firsts: Any) -> Any:
    """Which of these are there more than once."""
    order = np.argsort(firsts, kind="stable")
    ordered = firsts[order]
    same = ordered[1:] == ordered[:-1]
    found = np.zeros(len(firsts), bool)
    found[order[1:][same]] = True
    found[order[:-1][same]] = True
    return found


def _arrays(keys: bytes, times: bytes) -> tuple[Any, Any]:
    return np.frombuffer(keys, np.uint64).reshape(-1, 2), np.frombuffer(times, np.int64)
