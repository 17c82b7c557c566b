"""The index of a segment: what each of its frames holds, without decoding it.

One entry per frame: base offset, position, first timestamp, topics. It answers "where is this
offset", "which frame has this time", "can this frame hold a wanted topic". The index of the active
segment grows with it; a sealed segment carries its index as a footer; for any other it is made
from the frames' headers, which tell neither times nor topics.

Rules:
- One thread adds, others look up at the same time. `bases` is extended last: whoever sees an entry
  there sees the whole entry.
- Unknown is allowed for times and topics, and means "look into the frame".
"""

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headwater.log import record
from headwater.message import Batch

#: A frame with more topics than this is not worth a list of them.
MAX_TOPICS = 256

UNKNOWN_TIME = -1

Topics = tuple[str, ...] | None

FOOTER_SCHEMA = pa.schema(
    [
        pa.field("base", pa.uint64(), nullable=False),
        pa.field("position", pa.uint64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        # How many messages of which topic; null if there are too many topics.
        pa.field("topics", pa.map_(pa.string(), pa.int64())),
    ]
)


class Index:
    """The frames of one segment."""

    __slots__ = ("_count_stops", "_counts", "_seen", "bases", "positions", "timestamps", "topics")

    def __init__(self, base: int, position: int) -> None:
        # Both have one entry more than there are frames: where a further frame would begin.
        self.bases = array("Q", [base])
        self.positions = array("Q", [position])
        self.timestamps = array("q")
        self.topics: list[Topics] = []
        self._seen: dict[Topics, Topics] = {}
        # How many messages of each of its topics a frame has, where that is known: of all frames in
        # one row, and where those of each frame stop. An object for each would keep the memory
        # around it from being free.
        self._counts = array("Q")
        self._count_stops = array("Q")

    def __len__(self) -> int:
        return len(self.bases) - 1

    @property
    def end(self) -> int:
        """The offset behind the last record."""
        return self.bases[-1]

    @property
    def stop(self) -> int:
        """The position behind the last frame."""
        return self.positions[-1]

    def add(
        self,
        end: int,
        stop: int,
        timestamp: int = UNKNOWN_TIME,
        topics: Topics = None,
        counts: Sequence[int] = (),
    ) -> None:
        """One more frame, given by where it ends. With more than one topic, `counts` may tell how
        many messages each of them has."""
        self._counts.extend(counts)
        self._count_stops.append(len(self._counts))
        # Most frames have the topics of another one: one tuple serves them all.
        self.topics.append(self._seen.setdefault(topics, topics))
        self.timestamps.append(timestamp)
        self.positions.append(stop)
        self.bases.append(end)

    def cut(self, frames: int) -> None:
        """Forget all frames but the first ones."""
        del self.bases[frames + 1 :]
        del self.positions[frames + 1 :]
        del self.timestamps[frames:]
        del self.topics[frames:]
        del self._count_stops[frames:]
        del self._counts[self._count_stops[-1] if frames else 0 :]

    def counts(self, frame: int) -> Mapping[str, int] | None:
        """How many messages of which topic a frame has, if that is known."""
        topics = self.topics[frame]
        if topics is None:
            return None
        if len(topics) == 1:
            return {topics[0]: self.bases[frame + 1] - self.bases[frame]}
        start = self._count_stops[frame - 1] if frame else 0
        counts = self._counts[start : self._count_stops[frame]]
        return dict(zip(topics, counts, strict=True)) if counts else None

    def find(self, offset: int) -> int:
        """The frame that holds `offset`; len(self) if it lies behind the last one."""
        return bisect_right(self.bases, offset) - 1

    def before(self, timestamp: int, look: Callable[[int], int]) -> int:
        """The last frame that begins before `timestamp`, or 0; `look` tells an unknown time."""

        def begins(frame: int) -> int:
            known = self.timestamps[frame]
            return look(frame) if known == UNKNOWN_TIME else known

        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if begins(middle) < timestamp:
                low = middle + 1
            else:
                high = middle
        return max(low - 1, 0)

    def may_hold(self, frame: int, wanted: Callable[[str], bool]) -> bool:
        """Whether the frame can hold a wanted topic."""
        topics = self.topics[frame]
        return topics is None or any(map(wanted, topics))


def topics_of(batches: Sequence[Batch]) -> tuple[Topics, Sequence[int]]:
    """The topics of a frame as the index keeps them, and how many messages each of them has."""
    if len(batches) == 1:
        return (batches[0].run.topic,), ()
    counts: dict[str, int] = {}
    for batch in batches:
        topic = batch.run.topic
        counts[topic] = counts.get(topic, 0) + len(batch.run.payloads)
    if len(counts) > MAX_TOPICS:
        return None, ()
    return tuple(counts), tuple(counts.values()) if len(counts) > 1 else ()


def write_footer(index: Index, counts: Sequence[Mapping[str, int] | None]) -> Any:
    """The index as a compressed Arrow IPC message."""
    frames = len(index)
    columns = [
        pa.array(index.bases[:frames], pa.uint64()),
        pa.array(index.positions[:frames], pa.uint64()),
        pa.array(index.timestamps, pa.int64()),
        pa.array(
            [None if count is None else list(count.items()) for count in counts],
            FOOTER_SCHEMA.field("topics").type,
        ),
    ]
    return record.compress(pa.RecordBatch.from_arrays(columns, schema=FOOTER_SCHEMA))


def read_footer(message: bytes) -> Any:
    """The record batch of a footer. Raises pyarrow.ArrowException if it is none."""
    return pa.ipc.read_record_batch(message, FOOTER_SCHEMA)


def from_footer(footer: Any, end: int, stop: int) -> Index:
    """The index that was written as a footer."""
    bases, positions, timestamps, counts = (column.to_pylist() for column in footer.columns)
    if not bases:
        return Index(end, stop)
    index = Index(bases[0], positions[0])
    edges = zip([*bases[1:], end], [*positions[1:], stop], timestamps, counts, strict=True)
    for next_base, next_position, timestamp, count in edges:
        topics = None if count is None else tuple(topic for topic, _ in count)
        known = () if count is None or len(count) < 2 else [number for _, number in count]
        index.add(next_base, next_position, timestamp, topics, known)
    return index
