"""Who reads the log over Flight, as it is told for the audit trail.

A read is told when it begins. But a stream of Spark's is a read every moment, for ever, and what
is on record is a message of the log itself, which such a stream reads, too. So of whoever goes on
reading, what has been read is put together, and told every ten minutes: how many reads there were,
with what they brought, from the first on. Nothing is told of those who have read nothing since.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.flight.entrance import Caller
from headwater.flight.requests import Read
from headwater.rights import Principal

TELL_SECONDS = 600.0
# Of so many readers it is known what they have read. Of more, all is told of those who have been
# quiet for the longest time.
MOST_READERS = 1000
# Of what one reader asked for, so much is told.
MOST_ASKED = 10
MOST_TOPICS = 10
MOST_CHARACTERS = 200


@dataclass(slots=True)
class ReadSoFar:
    """What somebody at one address has read since it was told the last time."""

    told_at: float
    reads: int = 0
    messages: int = 0
    bytes: int = 0
    start: int | None = None
    end: int = 0
    #: The different topics and patterns; and whether there were others than those.
    asked: list[dict[str, Any]] = field(default_factory=list)
    others: bool = False

    @property
    def is_empty(self) -> bool:
        return self.start is None

    def cover(self, request: Read) -> None:
        self.start = request.start if self.start is None else min(self.start, request.start)
        self.end = max(self.end, request.end)
        asked = _asked(request)
        if asked not in self.asked:
            self.others |= len(self.asked) == MOST_ASKED
            self.asked = [*self.asked, asked][:MOST_ASKED]

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {"with": {"start": self.start, "end": self.end}}
        told |= {"reads": self.reads, "messages": self.messages, "bytes": self.bytes}
        return told | {"asked": self.asked} | ({"others": True} if self.others else {})


class Exports:
    """Any thread may use it, and `tell` is called by any: it is told who, and what.

    `now` is the time of a clock that only goes forward.
    """

    def __init__(self, tell: Callable[[Principal, dict[str, Any]], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._readers: OrderedDict[tuple[Principal, str], ReadSoFar] = OrderedDict()

    def begin(self, caller: Caller, request: Read, now: float) -> None:
        """A read begins."""
        if request.start >= request.end:
            return  # nothing is read
        with self._lock:
            self._reader(caller, request, now).reads += 1

    def sent(self, caller: Caller, request: Read, messages: int, size: int, now: float) -> None:
        """It has brought so much more."""
        with self._lock:
            reader = self._reader(caller, request, now)
            reader.messages += messages
            reader.bytes += size

    def look(self, now: float) -> None:
        """Tell what it is time for. Call it now and then."""
        with self._lock:
            for key, reader in list(self._readers.items()):
                if now - reader.told_at >= TELL_SECONDS:
                    self._end(key)
                    if not reader.is_empty:
                        self._readers[key] = ReadSoFar(now)

    def end(self) -> None:
        """Tell all that is left."""
        with self._lock:
            for key in list(self._readers):
                self._end(key)

    def _reader(self, caller: Caller, request: Read, now: float) -> ReadSoFar:
        key = caller.rights.principal, caller.host
        reader = self._readers.get(key)
        if reader is None:
            reader = self._readers[key] = ReadSoFar(now)
            asked = {"start": request.start, "end": request.end, **_asked(request)}
            self._tell(key[0], {"from": key[1], "with": asked})
        reader.cover(request)
        self._readers.move_to_end(key)
        if len(self._readers) > MOST_READERS:
            self._end(next(iter(self._readers)))
        return reader

    def _end(self, key: tuple[Principal, str]) -> None:
        reader = self._readers.pop(key)
        if not reader.is_empty:
            self._tell(key[0], {"from": key[1], **reader.told()})


def _asked(request: Read) -> dict[str, Any]:
    """Of which topics; nothing: of all that may be read."""
    if request.pattern is not None:
        return {"pattern": request.pattern[:MOST_CHARACTERS]}
    if request.topics is None:
        return {}
    shown = [topic[:MOST_CHARACTERS] for topic in request.topics[:MOST_TOPICS]]
    further = len(request.topics) - len(shown)
    return {"topics": shown, **({"further_topics": further} if further else {})}
