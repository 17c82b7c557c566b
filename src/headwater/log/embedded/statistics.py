"""Where things are in a log, told from its indexes: how to cut a range, and which topics there are.

Used by readers of ranges (Arrow Flight), in threads of theirs. Sealed segments tell all this in
their footers; what is behind them is looked at frame by frame, once.
"""

import threading
from collections.abc import Iterator
from itertools import pairwise

from headwater.log.embedded.reader import LogReader
from headwater.log.embedded.segment import Segment
from headwater.log.engine import Topic

#: A range of offsets, and about how many bytes it has on disk.
Range = tuple[int, int, int]


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
        smaller than that."""
        pieces: list[Range] = []
        first, weight = start, 0
        for low, high, held in self._blocks(start, end):
            parts = max(1, held // size)
            if weight and (weight + held > size or parts > 1):
                pieces.append((first, low, weight))
                first, weight = low, 0
            if parts > 1:
                edges = [low + (high - low) * number // parts for number in range(parts + 1)]
                pairs = pairwise(edges)
                pieces += [(one, two, held // parts) for one, two in pairs if two > one]
                first = high
            else:
                weight += held
        if first < end:
            pieces.append((first, end, weight))
        return pieces

    def _blocks(self, start: int, end: int) -> Iterator[Range]:
        """The blocks that hold a range, as far as they do."""
        for segment in self._log.segments:
            if segment.end <= start or segment.base >= end:
                continue
            index = self._log.opened(segment)[1].index
            for number in range(index.find(max(start, segment.base)), len(index)):
                base, stop = index.bases[number], index.bases[number + 1]
                if base >= end:
                    break
                low, high = max(base, start), min(stop, end)
                held = index.positions[number + 1] - index.positions[number]
                yield low, high, held * (high - low) // max(stop - base, 1)

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
