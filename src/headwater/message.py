"""What travels through the broker: runs of payloads, and batches, runs with a place in the log.

One read from a socket carries many messages. They stay together all the way, so nothing here
describes a single message: a run of one is simply a short run.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from struct import iter_unpack
from typing import overload

from mypy_extensions import mypyc_attr

Headers = tuple[tuple[str, str], ...]

#: The header that says how often a message may reach a consumer, where its publisher said so: "0"
#: at most once, "2" exactly once. Without it: at least once.
QOS = "qos"
AT_MOST_ONCE = (QOS, "0")
EXACTLY_ONCE = (QOS, "2")

#: Headers in which a publisher says when messages are to be delivered, and until when: milliseconds
#: since 1970, or from now on. The broker stores the former.
DELIVER_AT, DELIVER_AFTER = "deliver-at", "deliver-after"
EXPIRE_AT, EXPIRE_AFTER = "expire-at", "expire-after"
TIMES = frozenset((DELIVER_AT, DELIVER_AFTER, EXPIRE_AT, EXPIRE_AFTER))


# Of how many kinds of subscribers a run keeps the bytes, besides the first.
MOST_VARIANTS = 3


@mypyc_attr(allow_interpreted_subclasses=True)
class Packed(Sequence[bytes]):
    """Payloads that are not Python objects yet, and may never become any."""

    __slots__ = ()

    @property
    @abstractmethod
    def total_bytes(self) -> int: ...

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class Tiles(Packed):
    """Payloads of one size, still where they arrived: in one buffer, each behind a header.

        data:  | header | payload | header | payload | …       (nothing before, nothing behind)

    Most messages travel on as they came, to the log and to subscribers of the same protocol.
    Cutting each of them out first, and letting go of it later, would be half of the work.
    """

    __slots__ = ("data", "header", "size")

    def __init__(self, data: bytes, header: int, size: int) -> None:
        self.data = data
        self.header = header
        self.size = size

    @property
    def step(self) -> int:
        return self.header + self.size

    @property
    def total_bytes(self) -> int:
        return self.size * len(self)

    def __len__(self) -> int:
        return len(self.data) // self.step

    def __iter__(self) -> Iterator[bytes]:
        cut = iter_unpack(f"{self.header}x{self.size}s", self.data)
        return iter([payload for (payload,) in cut])

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...

    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, int):
            start = range(len(self))[index] * self.step
            return self.data[start + self.header : start + self.step]
        start, stop, stride = index.indices(len(self))
        if stride != 1:
            return list(self)[index]
        return Tiles(self.data[start * self.step : stop * self.step], self.header, self.size)


class Run:
    """Payloads that one publisher sent in a row to one topic, with the same headers.

    Treat it as frozen; a plain class with slots because building a frozen dataclass takes three
    times as long, and a publisher that sends one message at a time pays that per message.
    """

    __slots__ = (
        "_frames",
        "_others",
        "_variant",
        "headers",
        "payloads",
        "protocol",
        "publisher",
        "size",
        "topic",
        "weight",
    )

    def __init__(
        self,
        topic: str,
        payloads: Sequence[bytes],
        *,
        protocol: str,
        publisher: str = "",
        headers: Headers = (),
    ) -> None:
        self.topic = topic
        self.payloads = payloads
        self.protocol = protocol
        self.publisher = publisher
        self.headers = headers
        # Asking an abstract class whether something is its instance takes long.
        if type(payloads) is list:
            self.size = len(payloads[0]) if len(payloads) == 1 else sum(map(len, payloads))
        elif isinstance(payloads, Packed):
            self.size = payloads.total_bytes
        else:
            self.size = sum(map(len, payloads))
        #: Roughly the memory it takes, so that limits also hold for floods of tiny messages.
        self.weight = self.size + 48 * len(payloads) + 1024
        # Bytes built for subscribers, by whatever a codec tells its variants apart with. Built
        # once, sent to every subscriber that wants the same bytes. Most runs have one variant.
        self._variant: object = None
        self._frames = b""
        self._others: dict[object, bytes] | None = None

    def like(self, payloads: Sequence[bytes]) -> "Run":
        """Other payloads with all that this run's have in common."""
        return Run(
            self.topic,
            payloads,
            protocol=self.protocol,
            publisher=self.publisher,
            headers=self.headers,
        )

    def moved(self, topic: str, headers: Headers) -> "Run":
        """The same payloads elsewhere, from the same publisher."""
        return Run(
            topic,
            self.payloads,
            protocol=self.protocol,
            publisher=self.publisher,
            headers=headers,
        )

    def recall(self, variant: object) -> bytes | None:
        """What was built for one kind of subscriber, if it was kept."""
        if self._variant is None:
            return None
        if self._variant == variant:
            return self._frames
        return None if self._others is None else self._others.get(variant)

    def remember(self, variant: object, frames: bytes) -> bytes:
        """Keep what was built for one kind of subscriber. A run stays in memory for a while, so
        there is a limit: where everyone wants other bytes, keeping them would not help anyway."""
        if self._variant is None:
            self._variant, self._frames = variant, frames
            return frames
        if self._others is None or len(self._others) >= MOST_VARIANTS:
            self._others = {}
        self._others[variant] = frames
        return frames

    def __len__(self) -> int:
        return len(self.payloads)

    def __repr__(self) -> str:
        return f"Run({self.topic!r}, {len(self.payloads)} payloads, {self.size} bytes)"


class Batch:
    """A run that has its place in the log: the offset of its first message and the time it came."""

    __slots__ = ("end", "offset", "run", "timestamp")

    def __init__(self, offset: int, timestamp: int, run: Run) -> None:
        self.offset = offset
        #: The offset behind the last message.
        self.end = offset + len(run.payloads)
        #: Microseconds since 1970, UTC; never smaller than that of the batch before.
        self.timestamp = timestamp
        self.run = run

    def since(self, offset: int) -> "Batch":
        """This batch without the messages before `offset`."""
        return self.part(offset, self.end)

    def part(self, start: int, end: int) -> "Batch":
        """The messages of this batch from offset `start` on and before `end`."""
        if start <= self.offset and end >= self.end:
            return self
        start, end = max(start, self.offset), min(end, self.end)
        run = self.run
        payloads = run.payloads[start - self.offset : end - self.offset]
        return Batch(start, self.timestamp, run.like(payloads))

    def __repr__(self) -> str:
        return f"Batch({self.offset}..{self.end}, {self.run!r})"


def weight_of(batches: Sequence[Batch]) -> int:
    """Roughly the memory that batches take."""
    weight = 0
    for batch in batches:
        weight += batch.run.weight
    return weight


class Group:
    """Runs that are to become durable in one step. There can be very many of them, so any thread
    may make this, and what is left to do when they get their places is little."""

    def __init__(self, runs: Sequence[Run]) -> None:
        #: With offsets from 0 on, until they are appended.
        self.batches: list[Batch] = []
        end = 0
        for run in runs:
            batch = Batch(end, 0, run)
            self.batches.append(batch)
            end = batch.end
        self.count = end
        self.weight = sum([run.weight for run in runs])

    def place(self, offset: int, timestamp: int) -> None:
        for batch in self.batches:
            batch.offset += offset
            batch.end += offset
            batch.timestamp = timestamp
