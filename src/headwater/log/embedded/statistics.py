"""Where things are in a log, told from its indexes: how to cut a range, and which topics there are.

Used by readers of ranges (Arrow Flight), in threads of theirs. Sealed segments tell all this in
their footers; what is behind them is looked at frame by frame, once.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from headwater.log.embedded.reader import LogReader
from headwater.log.embedded.segment import Segment
from headwater.log.engine import Topic

#: A range of offsets, and about how many bytes it has on disk.
Range = tuple[int, int, int]

#: A range is cut into so many pieces at most.
MOST_PIECES = 10_000


class LogStatistics:
    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._lock = threading.Lock()
        # What is known of each segment: up to which frame, and the topics in them.
        self._known: dict[Segment, tuple[int, dict[str, Topic]]] = {}
        # The segments that do not grow any more, and all topics in them.
        self._finished: tuple[list[Segment], dict[str, Topic]] = ([], {})

    def split(self, start: int, end: int, size: int) -> list[Range]:
        """Cut a range into pieces of about `size` bytes, along the blocks of the log if these are
        smaller than that. They are larger if there would be more than MOST_PIECES."""
        inside = [each for each in self._log.segments if each.end > start and each.base < end]
        size = max(size, sum(_share(each, start, end) for each in inside) // MOST_PIECES, 1)
        pieces: list[Range] = []
        first, weight = start, 0
        for low, high, held in self._blocks(inside, start, end, size):
            if weight and weight + held > size:
                pieces.append((first, low, weight))
                first, weight = low, 0
            weight += held
            if (parts := held // size) > 1:
                edges = [low + (high - low) * number // parts for number in range(parts + 1)]
                pairs = pairwise(edges)
                pieces += [(one, two, held // parts) for one, two in pairs if two > one]
                first, weight = high, 0
        if first < end:
            pieces.append((first, end, weight))
        return pieces

    def _blocks(
        self, segments: Sequence[Segment], start: int, end: int, size: int
    ) -> Iterator[Range]:
        """What holds a range: blocks that are together no larger than a quarter of `size`, or one
        block each. Of small blocks there can be millions, so the index is searched."""
        for segment in segments:
            index = self._log.opened(segment)[1].index
            number, stop = index.find(max(start, segment.base)), len(index)
            while number < stop and (base := index.bases[number]) < end:
                position = index.positions[number]
                fitting = bisect_right(index.positions, position + size // 4, number, stop + 1) - 1
                behind = index.find(end - 1) + 1
                number = max(min(fitting, behind, stop), number + 1)
                held, last = index.positions[number] - position, index.bases[number]
                low, high = max(base, start), min(last, end)
                yield low, high, held * (high - low) // max(last - base, 1)

    def topics(self) -> dict[str, Topic]:
        """All that is retained, by topic."""
        with self._lock:
            *older, active = row = self._log.segments
            self._known = {each: known for each, known in self._known.items() if each in row}
            if older != self._finished[0]:
                finished: dict[str, Topic] = {}
                for segment in older:
                    self._add(segment, finished)
                self._finished = (older, finished)
            found = {
                name: Topic(each.count, each.first, each.last, each.bytes)
                for name, each in self._finished[1].items()
            }
            self._add(active, found)
        return found

    def _add(self, segment: Segment, found: dict[str, Topic]) -> None:
        weight = segment.size / max(segment.end - segment.base, 1)
        for name, each in self._topics_of(segment).items():
            size = int(each.count * weight)
            mine = found.get(name)
            if mine is None:
                found[name] = Topic(each.count, each.first, each.last, size)
            else:
                mine.add(each.count, each.first, each.last, size)

    def _topics_of(self, segment: Segment) -> dict[str, Topic]:
        done, topics = self._known.get(segment, (0, {}))
        current, opened = self._log.opened(segment)
        # Once: more frames may come meanwhile, and are counted the next time.
        index, frames = opened.index, len(opened.index)
        if current is not segment:  # it was sealed a moment ago: other frames, the same messages
            done, topics = 0, {}
        for number, counts in self._log.count_topics_of(current, opened, done, frames):
            first = index.timestamps[number]
            last = index.timestamps[number + 1] if number + 1 < frames else current.last_timestamp
            for name, count in counts.items():
                if name in topics:
                    topics[name].add(count, first, last)
                else:
                    topics[name] = Topic(count, first, last)
        self._known[segment] = (frames, topics)
        return topics


def _share(segment: Segment, start: int, end: int) -> int:
    """About how many bytes of a segment lie in a range."""
    messages = min(segment.end, end) - max(segment.base, start)
    return segment.size * messages // max(segment.end - segment.base, 1)
