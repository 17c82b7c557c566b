"""The newest batches, kept in memory: about `limit` bytes of durable ones.

Whatever is not durable yet is here, so a subscriber that is a little behind never has to wait for
the disk, nor decode what was just encoded. A subscriber that is further behind reads from the log.
"""

from bisect import bisect_right

from headwater.message import Batch

# Letting go of a batch takes about half a microsecond, with all that is in it.
TRIMMED_AT_ONCE = 2048


class Tail:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._batches: list[Batch | None] = []  # None: let go of
        self._offsets: list[int] = []  # of the same batches, to search in
        self._first = 0  # the first that is not None; the lists are cut now and then
        self._size = 0

    def add(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._offsets.append(batch.offset)
        self._size += batch.run.weight

    def add_all(self, batches: list[Batch], weight: int) -> None:
        self._batches += batches
        self._offsets += [batch.offset for batch in batches]
        self._size += weight

    def find(self, offset: int) -> Batch | None:
        """The batch that holds `offset`."""
        index = bisect_right(self._offsets, offset, self._first) - 1
        if index < self._first:
            return None
        batch = self._batches[index]
        return batch if batch is not None and offset < batch.end else None

    def trim(self, watermark: int) -> bool:
        """Let go of old batches, but only of durable ones, and of so many at once; returns whether
        that was all."""
        batches, first = self._batches, self._first
        stop = first + TRIMMED_AT_ONCE
        while self._size > self._limit and first < len(batches):
            batch = batches[first]
            if batch is None or batch.end > watermark:
                break
            self._size -= batch.run.weight
            batches[first] = None
            first += 1
            if first == stop:
                break
        self._first = first
        if first > 256 and first * 2 > len(batches):
            del batches[:first]
            del self._offsets[:first]
            self._first = 0
        return first < stop

    def clear(self, watermark: int) -> None:
        """Let go of everything that is durable."""
        limit, self._limit = self._limit, 0
        while not self.trim(watermark):
            pass
        self._limit = limit

    def rewind(self, end: int) -> list[Batch]:
        """Take out the batches from `end` on."""
        index = bisect_right(self._offsets, end - 1, self._first)
        lost = [batch for batch in self._batches[index:] if batch is not None]
        del self._batches[index:]
        del self._offsets[index:]
        self._size -= sum(batch.run.weight for batch in lost)
        return lost
