"""What a torture has found: messages are counted, and whatever must not be is a fault."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tests.e2e.process import BrokerProcess

_SHOWN = 5
TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The accounts of a torture, after the last harm was done."""

    #: What was done, and how often: "broker killed".
    harm: Mapping[str, int]
    sent: int
    #: Those that the broker has promised to keep.
    acknowledged: int
    #: Those that are where they have to be in the end.
    found: int
    #: Acknowledged, or stored, and not where they have to be.
    lost: int
    #: There more often than once, where once was promised.
    twice: int
    #: Sentences about all that is wrong: what is lost, what is there twice, and anything else.
    faults: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.faults)

    def plus(self, other: "Verdict") -> "Verdict":
        """Of both together."""
        return Verdict(
            Counter(self.harm) + Counter(other.harm),
            *(
                getattr(self, name) + getattr(other, name)
                for name in ("sent", "acknowledged", "found", "lost", "twice", "faults")
            ),
        )

    def __str__(self) -> str:
        harm = ", ".join(f"{what} {number:,}" for what, number in self.harm.items())
        counts = (
            f"sent {self.sent:,}, acknowledged {self.acknowledged:,}, found {self.found:,}, "
            f"lost {self.lost:,}, twice {self.twice:,}"
        )
        return "\n".join([f"{harm or 'no harm'}; {counts}", *self.faults])


def faults_about(**wrong: Collection[object]) -> tuple[str, ...]:
    """A sentence for each kind of which there are some, with examples; `_` stands for a blank."""
    return tuple(
        f"{kind.replace('_', ' ')}: {len(some):,}, such as "
        + ", ".join(map(str, list(some)[:_SHOWN]))
        for kind, some in wrong.items()
        if some
    )


def _first(log: str) -> str:
    """The first traceback, with what was said before it."""
    at = log.index(TRACEBACK)
    return log[max(at - 500, 0) : at + 6000]


def faults_of(broker: BrokerProcess, code: int = 0, *, expected: int = 0) -> tuple[str, ...]:
    """What is wrong with a broker that has ended, with this code and so many tracebacks where
    those are `expected`."""
    found = []
    if code:
        found.append(f"the broker ended with {code}: {broker.log[-3000:]}")
    if (told := broker.log.count(TRACEBACK)) > expected:
        found.append(f"the broker logged {told} tracebacks: {_first(broker.log)}")
    return tuple(found)
