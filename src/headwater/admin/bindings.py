"""Bindings that take nothing of what has been published so far.

Levels of a topic are separated by `/`, and one who writes `.` there has a topic of one level. Both
ways of spelling meet in a broker of several protocols, so a binding can look right and match
nothing. That is told, with a topic that would match in the other spelling.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass

from headwater.filters import Filter
from headwater.queue_spec import DEAD

_SWAP = str.maketrans("./", "/.")
# Topics that are looked at before the clock is.
_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class UnmatchedBinding:
    binding: str  # as topics are spelled
    #: A topic that would match if its `.` and `/` changed places.
    near: str | None = None

    def __str__(self) -> str:
        if self.near is None:
            return f"{self.binding} matches no topic that has been published so far"
        return (
            f"{self.binding} matches no topic that has been published so far; {self.near} would "
            "match if its . and / changed places (levels of a topic are separated by /)"
        )

    def as_dict(self) -> dict[str, str | None]:
        return {**asdict(self), "note": str(self)}


def unmatched(
    filters: Sequence[Filter], topics: Collection[str], seconds: float
) -> list[UnmatchedBinding]:
    """Those of the filters that match none of the topics. What is not known in time is left out.
    Where there are no topics, there is nothing to say."""
    until = time.monotonic() + seconds
    found = [_look(each, topics, until) for each in filters] if topics else []
    return [each for each in found if each is not None]


def _look(wanted: Filter, topics: Collection[str], until: float) -> UnmatchedBinding | None:
    """None: it matches, or there was no time to find out."""
    near = None
    for number, topic in enumerate(_likely_first(wanted, topics)):
        if wanted.matches(topic):
            return None
        if near is None and _nearly_matches(wanted, topic):
            near = topic
        if number % _TOGETHER == 0 and time.monotonic() > until:
            return None
    return UnmatchedBinding(wanted.text, near)


def _nearly_matches(wanted: Filter, topic: str) -> bool:
    is_dead_letter = topic.startswith(f"{DEAD}/")  # which nobody gets by chance
    return not is_dead_letter and wanted.matches(topic.translate(_SWAP))


def _likely_first(wanted: Filter, topics: Collection[str]) -> Iterator[str]:
    """Most filters are a topic, literally."""
    for spelling in (wanted.text, wanted.text.translate(_SWAP)):
        if spelling in topics:
            yield spelling
    yield from topics
