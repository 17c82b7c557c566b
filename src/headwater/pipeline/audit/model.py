"""The findings of an audit."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

#: missing, there too often, with another content, or there although it should not be.
DifferenceKind = Literal["missing", "repeated", "changed", "strange"]
#: Called with the number of records that were looked at.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Difference:
    """Offsets from `first` to `last`, of which `count` are not as they should be."""

    kind: DifferenceKind
    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class AuditOutcome:
    """The result of one comparison. All is well if there are no differences."""

    what: str
    records: int
    differences: list[Difference] = field(default_factory=list)
    #: Sentences that a person should read, although they are no errors.
    remarks: list[str] = field(default_factory=list)

    def count(self, *kinds: DifferenceKind) -> int:
        return sum(each.count for each in self.differences if each.kind in kinds)


@dataclass(frozen=True, slots=True)
class AuditReport:
    first: int
    last: int
    outcomes: list[AuditOutcome]
    seconds: float

    @property
    def gaps(self) -> int:
        return sum(each.count("missing") for each in self.outcomes)

    @property
    def duplicates(self) -> int:
        return sum(each.count("repeated") for each in self.outcomes)

    @property
    def others(self) -> int:
        """Records that are there once, but not as they should be."""
        return sum(each.count("changed", "strange") for each in self.outcomes)

    @property
    def records(self) -> int:
        return max((each.records for each in self.outcomes), default=0)

    @property
    def well(self) -> bool:
        return not any(each.differences for each in self.outcomes)


def stretches(kind: DifferenceKind, offsets: Any, counts: Any = None) -> list[Difference]:
    """Sorted offsets, neighbours together. `counts`: how much is wrong with each of them."""
    if not len(offsets):
        return []
    weights = np.ones(len(offsets), np.int64) if counts is None else counts
    starts = np.flatnonzero(np.diff(offsets, prepend=offsets[0] - 2) != 1)
    ends = np.append(starts[1:], len(offsets)) - 1
    sums = np.add.reduceat(weights, starts)
    return [
        Difference(kind, int(offsets[low]), int(offsets[high]), int(count))
        for low, high, count in zip(starts, ends, sums, strict=True)
    ]
