"""The filters that have to be asked one by one, and what they have said of which topics.

What was said is kept: a filter that comes later is asked about a known topic, and no other again.
Asking takes as long as it takes; it can be interrupted, and is then gone on with. What nobody knows
the price of is asked elsewhere (`Matcher`), and the answer comes later.
"""

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

from headwater.broker.matching.matcher import Matcher
from headwater.filters import BindingFilter, RegexFilter

AskedFilter = BindingFilter | RegexFilter

# So many filters are asked between two looks at the clock.
ASKED_AT_ONCE = 16
# Of so many topics is kept what was said of them.
REMEMBERED_TOPICS = 131_072
# The order is made anew when so many filters, and half of all, are gone.
GONE = 64


class Decision:
    """What the filters say of one topic: those that came first, so far."""

    __slots__ = ("asked", "elsewhere", "matching")

    def __init__(self) -> None:
        self.asked = 0
        # Not sets that change: most topics have none, and the collector looks at each of them.
        self.matching: frozenset[AskedFilter] = frozenset()
        self.elsewhere: frozenset[AskedFilter] = frozenset()  # asked, and no answer yet


#: Where there is nothing to ask.
NO_DECISION = Decision()


class Patterns:
    def __init__(
        self,
        matcher: Matcher | None,
        decided: Callable[[str], None],
        refused: Callable[[AskedFilter], None],
        dispose: Callable[[dict[Any, Any]], None],
    ) -> None:
        """`decided` hears of topics about which an answer has come; without a matcher all are given
        at once. `refused` hears of filters that take too long. `dispose` lets go of very many
        things."""
        self._matcher = matcher
        self._decided = decided
        self._refused = refused
        self._dispose = dispose
        self._order: list[AskedFilter | None] = []  # None: gone
        self._places: dict[AskedFilter, int] = {}
        self._decisions: dict[str, Decision] = {}

    def add(self, wanted: AskedFilter) -> None:
        self._places[wanted] = len(self._order)
        self._order.append(wanted)

    def remove(self, wanted: AskedFilter) -> None:
        self._order[self._places.pop(wanted)] = None
        if self._matcher is not None and isinstance(wanted, RegexFilter):
            self._matcher.forget(wanted.text)
        gone = len(self._order) - len(self._places)
        if not self._places or gone > max(GONE, len(self._places)):
            self._order = [each for each in self._order if each is not None]
            self._places = {each: place for place, each in enumerate(self._places)}
            self._forget()

    def ask(self, topic: str, seconds: float) -> Decision:
        """Ask about a topic for so long at most, but for a few filters at least."""
        if not self._order:
            return NO_DECISION
        decision = self._decisions.get(topic)
        if decision is None:
            if len(self._decisions) >= REMEMBERED_TOPICS:
                self._forget()
            decision = self._decisions[topic] = Decision()
        stop = perf_counter() + seconds if len(self._order) > ASKED_AT_ONCE else 0.0
        while decision.asked < len(self._order):
            some = self._order[decision.asked : decision.asked + ASKED_AT_ONCE]
            decision.asked += len(some)
            for wanted in some:
                if wanted is not None:
                    self._ask(wanted, topic, decision)
            if stop and perf_counter() >= stop:
                break
        return decision

    def _forget(self) -> None:
        decisions, self._decisions = self._decisions, {}
        self._dispose(decisions)

    def complete(self, decision: Decision) -> bool:
        return decision.asked >= len(self._order) and self._places.keys().isdisjoint(
            decision.elsewhere
        )

    def asking(self, decision: Decision) -> bool:
        """Whether there is more to ask here."""
        return decision.asked < len(self._order)

    def unanswered(self, decision: Decision) -> Iterator[AskedFilter]:
        """Those that have not said whether they match."""
        yield from decision.elsewhere & self._places.keys()
        for wanted in self._order[decision.asked :]:
            if wanted is not None:
                yield wanted

    def _ask(self, wanted: AskedFilter, topic: str, decision: Decision) -> None:
        if isinstance(wanted, RegexFilter):
            if wanted.literal not in topic:
                return
            if not wanted.simple and self._matcher is not None:
                decision.elsewhere |= {wanted}
                self._ask_elsewhere(self._matcher, wanted, topic)
                return
        if wanted.matches(topic):
            decision.matching |= {wanted}

    def _ask_elsewhere(self, matcher: Matcher, wanted: RegexFilter, topic: str) -> None:
        answer, refused = partial(self._answered, wanted), partial(self._refused, wanted)
        matcher.ask(wanted.text, topic, answer, refused)

    def _answered(self, wanted: AskedFilter, topic: str, found: bool) -> None:
        decision = self._decisions.get(topic)
        if decision is not None:  # otherwise it is asked again when someone wants to know
            decision.elsewhere = decision.elsewhere - {wanted} or frozenset()  # which is but one
            if found:
                decision.matching |= {wanted}
        self._decided(topic)
