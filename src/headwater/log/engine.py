"""What the broker needs of a log, and nothing else. Every engine passes the same contract tests.

An engine lives in one event loop. It hands out offsets at once, makes batches durable in groups,
and reports each group. Nothing here waits for a disk in the loop.

    start ≤ watermark ≤ end     retained from `start`, durable before `watermark`,
                                appended before `end`
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mypy_extensions import mypyc_attr

from headwater.errors import LogUnavailable
from headwater.message import Batch, Group, Run
from headwater.timings import Timings

#: Says whether a topic is wanted, so that a reader can skip blocks without decoding them.
Wanted = Callable[[str], bool]

#: Hears how an append ended: None, or why it was not stored.
Settled = Callable[[LogUnavailable | None], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Receipt(ABC):
    """Who hears how one append ended."""

    #: The offset behind what was appended, for the engine.
    end = 0

    @abstractmethod
    def settled(self, error: LogUnavailable | None) -> None:
        """It is durable, or why it was not stored."""


@dataclass(slots=True)
class Topic:
    """What is retained of one topic. Times are those of the blocks that hold its messages."""

    count: int
    first: int
    last: int
    #: About what it takes on the disk: its share of the messages of each segment.
    bytes: int = 0

    def add(self, count: int, first: int, last: int, size: int = 0) -> None:
        self.count += count
        self.bytes += size
        self.first, self.last = min(self.first, first), max(self.last, last)


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One part of the log that is kept or dropped as a whole: a segment."""

    base: int
    end: int
    bytes: int
    last_timestamp: int
    sealed: bool


class CommitListener(Protocol):
    """Who hears about the log's progress (the broker)."""

    def committed(self, batches: Sequence[Batch]) -> None:
        """These batches are durable; the watermark has passed them."""

    def rewound(self, end: int) -> None:
        """Everything from `end` on was not stored; its offsets will be given out again."""


class Notes(Protocol):
    """What has to be remembered beside the log. On disk within 100 ms, and before the engine's
    `close` returns."""

    @property
    def fault(self) -> str | None:
        """Why nothing can be remembered now, if that is so."""

    @property
    def warning(self) -> str | None:
        """What of the things remembered did not fit the log when it was opened, or was lost."""

    def warn(self, sentence: str) -> None:
        """Tell an operator the same of what others remember beside the log."""

    def load_cursor(self, name: str) -> int | None:
        """The remembered position of a durable subscription, never beyond the end of the log."""

    def save_cursor(self, name: str, offset: int) -> None: ...

    def load_number(self, name: str) -> int | None:
        """A remembered number that is no position."""

    def save_number(self, name: str, value: int) -> None: ...

    def load_queue(self, name: str) -> bytes | None:
        """The remembered state of a queue."""

    def save_queue(self, name: str, snapshot: Callable[[], bytes]) -> None:
        """Remember the state of a queue as it is when it is written: `snapshot` is called then."""

    def delete_queue(self, name: str) -> None:
        """Forget a queue."""

    def queue_names(self, prefix: str = "") -> list[str]:
        """Those of queues. What begins with "$" is the broker's own, and told only if asked for."""

    def when_saved(self, done: Settled) -> None:
        """Call `done` once all that was noted so far is on the disk, as by `flush`; or with the
        reason why it cannot be."""

    async def flush(self) -> None:
        """Returns when all that was noted is on the disk, also if the machine loses its power.
        Raises LogUnavailable if that cannot be done."""


class Readers(Protocol):
    """Those who read the log, for everyone whose messages are not in memory."""

    @property
    def waiting(self) -> int:
        """How many reads wait for their turn."""

    @property
    def waits(self) -> Timings:
        """How long reads had to wait for their turn."""

    @property
    def times(self) -> Timings:
        """How long they took then."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Engine(ABC):
    """One totally ordered log.

    Reading takes turns: who has read least lately goes first. `reader` says who that is; without
    it, one counts as nobody, of whom there is one.
    """

    notes: Notes

    @property
    @abstractmethod
    def start(self) -> int: ...
    @property
    @abstractmethod
    def watermark(self) -> int: ...
    @property
    @abstractmethod
    def end(self) -> int: ...
    @property
    @abstractmethod
    def timestamp(self) -> int:
        """When the newest message came, in microseconds since 1970."""

    @property
    @abstractmethod
    def congested(self) -> bool:
        """Too much is waiting for the disk: publishers should pause."""

    @property
    @abstractmethod
    def refusal(self) -> str | None:
        """Why the log takes nothing now, if it does not."""

    @property
    @abstractmethod
    def syncs(self) -> Timings:
        """How long it took to have things on the disk."""

    @property
    @abstractmethod
    def readers(self) -> Readers:
        """How busy those are who read the log."""

    @abstractmethod
    def segments(self) -> list[SegmentInfo]:
        """What the log is made of, the oldest first."""

    @abstractmethod
    def attach(self, listener: CommitListener) -> None:
        """Report progress to `listener` from now on."""

    @abstractmethod
    def when_dead(self, done: Callable[[str], None]) -> None:
        """Call `done` with the reason when the log can never be written again by this process; at
        once if that is so."""

    @abstractmethod
    def give_up(self, why: str) -> None:
        """Refuse everything from now on: something that the broker cannot do without has ended."""

    @abstractmethod
    async def close(self) -> None:
        """Make everything durable, then let go of the log."""

    @abstractmethod
    def check_writable(self) -> None:
        """Raise LogUnavailable while the log takes nothing."""

    @abstractmethod
    def append(self, run: Run, receipt: Receipt | None = None) -> Batch:
        """Give the run its place. Raises LogUnavailable while the log takes nothing. `receipt`
        hears of it as by `when_durable`."""

    @abstractmethod
    def append_all(self, group: Group) -> Sequence[Batch]:
        """Append runs that become durable, and so visible, in one step."""

    @abstractmethod
    def hurry(self) -> None:
        """Someone waits for what was appended to become durable: do not gather more first."""

    @abstractmethod
    def when_durable(self, offset: int, done: Settled) -> None:
        """Call `done` once everything before `offset` (the end of an appended batch) is durable,
        at once if it is; with the reason if that batch could not be stored."""

    @abstractmethod
    def when_relieved(self, done: Callable[[], None]) -> None:
        """Call `done` once the log is no longer congested."""

    @abstractmethod
    def rest(self) -> None:
        """Nothing has come for a while: let go of what is only in memory to be found sooner."""

    @abstractmethod
    def recent(self, offset: int) -> Batch | None:
        """The batch that holds `offset`, if it is still in memory."""

    @abstractmethod
    async def offset_at(self, timestamp: int, reader: Hashable = None) -> int:
        """The first durable offset whose message came at that time (µs) or later."""

    @abstractmethod
    async def read(
        self, offset: int, wanted: Wanted, max_bytes: int, reader: Hashable = None
    ) -> tuple[list[Batch], int]:
        """Durable batches from `offset` on that hold wanted topics, and the offset to go on from.

        An `offset` before `start` reads from `start`. It takes some milliseconds: where little is
        wanted, there may be nothing found yet.
        """

    @abstractmethod
    async def count(
        self,
        offset: int,
        wanted: Wanted,
        seconds: float,
        end: int | None = None,
        reader: Hashable = None,
    ) -> tuple[int, int, int | None]:
        """How many durable messages with wanted topics there are from `offset` on (and before
        `end`), up to which offset they were counted in about so many seconds, and when the oldest
        came."""

    # What follows may be called by any thread, and takes as long as it takes.

    @abstractmethod
    def read_flat(
        self, offset: int, wanted: Wanted | None, max_bytes: int, end: int
    ) -> tuple[list[Any], int]:
        """As `read`, one row per message: record batches of record.FLAT_SCHEMA."""

    @abstractmethod
    def split(self, start: int, end: int, size: int) -> list[tuple[int, int, int]]:
        """Cut a range into pieces of about `size` bytes: (start, end, bytes)."""

    @abstractmethod
    def topics(self) -> dict[str, Topic]:
        """All that is retained, by topic."""
