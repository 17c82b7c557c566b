"""Which subscribers a topic reaches.

Filters made of levels live in a tree with one node per level, so finding those that match costs by
the levels of the topic, not by the number of subscriptions. Patterns have to be asked one by one,
but only once per topic (`matching`): the route of a topic is kept until a subscription comes or
goes that may be part of it.

    root ─ sensors ─┬─ a          subscriptions of sensors/a
                    ├─ +          one level
                    └─ * (rest)   one or more levels

Where many patterns have to be asked about a new topic, or such that may take long, nobody waits for
that: their owners are *undecided* for a while. They fall behind like a slow reader, and go on when
it is known whether they want the topic.
"""

from collections.abc import Hashable, Iterable, Iterator
from math import inf
from typing import Any, Generic, Protocol, TypeVar

from headwater.broker.chores import Chores
from headwater.broker.matching.matcher import Matcher
from headwater.broker.matching.patterns import AskedFilter, Decision, Patterns
from headwater.filters import RESERVED, Filter, LevelFilter, names_reserved
from headwater.rights import Allowed

# A route per topic is kept; past this many topics they are dropped and found anew.
REMEMBERED_ROUTES = 131_072
# So long patterns are asked before the publisher of a new topic goes on.
AT_ONCE_SECONDS = 0.0005
TOO_COSTLY = "the pattern takes too long to match"


class Owner(Protocol, Hashable):
    """Who a subscription belongs to."""

    @property
    def durable(self) -> bool:
        """It may only see what is durable."""

    def decided(self) -> None:
        """It is known now of some topic whether the owner wants it."""

    def unwanted(self, sentence: str) -> None:
        """A filter of the owner is refused."""


#: Where messages are that are to be delivered later. It reaches nobody.
DELAYED = "$delayed"

O = TypeVar("O", bound=Owner)  # noqa: E741


class OwnedSubscription(Generic[O]):
    """One filter of one owner."""

    def __init__(
        self,
        key: tuple[str, str],
        wanted: Filter,
        owner: O,
        since: int,
        allowed: Allowed | None = None,
    ) -> None:
        self.key = key
        self.filter = wanted
        self.owner = owner
        self.since = since  # wants nothing before this offset
        self._allowed = allowed  # gets nothing else; None: may get everything

    def may_get(self, topic: str) -> bool:
        return self._allowed is None or self._allowed.may(topic)

    @property
    def durable(self) -> bool:
        return self.owner.durable


Wants = tuple[O, tuple[OwnedSubscription[O], ...]]


class Route(Generic[O]):
    """Who gets a topic: each owner once, with those of its subscriptions that match."""

    def __init__(
        self,
        by_owner: dict[O, tuple[OwnedSubscription[O], ...]],
        undecided: frozenset[O] = frozenset(),
    ) -> None:
        self.by_owner = by_owner
        #: Who gets a batch as soon as it is appended, and who once it is durable.
        self.live = tuple([item for item in by_owner.items() if not item[0].durable])
        self.durable = tuple([item for item in by_owner.items() if item[0].durable])
        #: Of these it is not known yet whether, or with which of their subscriptions, they want it.
        self.undecided = undecided


def _route_of(matching: tuple[OwnedSubscription[O], ...], undecided: frozenset[O]) -> Route[O]:
    by_owner: dict[O, list[OwnedSubscription[O]]] = {}
    for subscription in matching:
        by_owner.setdefault(subscription.owner, []).append(subscription)
    return Route(
        {
            owner: tuple(subscriptions)
            for owner, subscriptions in by_owner.items()
            if owner not in undecided
        },
        undecided,
    )


class _Node(Generic[O]):
    def __init__(self) -> None:
        self.children: dict[str | None, _Node[O]] = {}  # None stands for `+`
        self.here: dict[OwnedSubscription[O], None] = {}  # end at this level
        self.rest: dict[OwnedSubscription[O], None] = {}  # `*` below this level

    def empty(self) -> bool:
        return not (self.children or self.here or self.rest)


class Router(Generic[O]):
    def __init__(self, chores: Chores | None = None, matcher: Matcher | None = None) -> None:
        """Without these, every route is complete at once, whatever that takes."""
        self._root: _Node[O] = _Node()
        self.chores = chores
        self._patterns = Patterns(matcher, self._forget_route, self._refused, self._dispose)
        # Equal filters are asked once for all that hold them.
        self._holders: dict[AskedFilter, dict[OwnedSubscription[O], None]] = {}
        self._routes: dict[str, Route[O]] = {}
        self._shared: dict[tuple[OwnedSubscription[O], ...], Route[O]] = {}
        self._incomplete: dict[str, Route[O]] = {}  # those of them with undecided owners
        self._undecided: set[O] = set()  # the owners of all of these, and maybe more
        self._last_undecided: frozenset[O] = frozenset()
        self._to_ask: dict[str, None] = {}  # topics that patterns are still asked about
        self._waiting: set[O] = set()  # who may go on

    def add(self, subscription: OwnedSubscription[O]) -> None:
        wanted = subscription.filter
        if isinstance(wanted, LevelFilter):
            node = self._root
            for level in wanted.levels:
                node = node.children.setdefault(level, _Node())
            (node.rest if wanted.rest else node.here)[subscription] = None
        else:
            if wanted not in self._holders:
                self._holders[wanted] = {}
                self._patterns.add(wanted)
            self._holders[wanted][subscription] = None
        self._changed(wanted)

    def remove(self, subscription: OwnedSubscription[O]) -> None:
        wanted = subscription.filter
        if isinstance(wanted, LevelFilter):
            self._prune(subscription, wanted)
        else:
            holders = self._holders[wanted]
            del holders[subscription]
            if not holders:
                del self._holders[wanted]
                self._patterns.remove(wanted)
        self._changed(wanted)

    def route(self, topic: str) -> Route[O]:
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= REMEMBERED_ROUTES:
                self._forget_routes()
            route = self._routes[topic] = self.find(topic)
        return route

    def find(self, topic: str) -> Route[O]:
        """The route, found by walking the tree and asking patterns."""
        if topic == DELAYED:
            return Route({})
        undecided: frozenset[O] = frozenset()
        decision = self._patterns.ask(topic, AT_ONCE_SECONDS if self.chores else inf)
        if not self._patterns.complete(decision):
            undecided = frozenset(
                subscription.owner
                for wanted in self._patterns.unanswered(decision)
                for subscription in self._holders[wanted]
            )
            # Most often the same as for the topic before, and there may be very many.
            if undecided == self._last_undecided:
                undecided = self._last_undecided
            else:
                self._last_undecided = undecided
            self._undecided |= undecided
            if self._patterns.asking(decision):
                self._ask_later(topic)
        matching = tuple([each for each in self._matching(topic, decision) if each.may_get(topic)])
        if topic.partition("/")[0] in RESERVED:
            matching = tuple([each for each in matching if names_reserved(each.filter, topic)])
        if undecided:
            route = self._incomplete[topic] = _route_of(matching, undecided)
            return route
        # Topics that go to the same subscriptions have one route in common: there may be very many.
        shared = self._shared.get(matching)
        if shared is None:
            shared = self._shared[matching] = _route_of(matching, undecided)
        return shared

    def forget_all(self) -> None:
        """It has changed what owners may get."""
        self._forget_routes()

    def _changed(self, wanted: Filter) -> None:
        """A subscription with this filter has come or gone. Most name a topic, and are part of no
        other route: to find all of them anew would take long where clients come and go."""
        if isinstance(wanted, LevelFilter) and not wanted.rest and None not in wanted.levels:
            self._forget_route(wanted.text)
            shared, self._shared = self._shared, {}  # of one that has gone, nothing may stay
            self._dispose(shared)
        else:
            self._forget_routes()

    def _forget_routes(self) -> None:
        if self._incomplete:
            incomplete, self._incomplete = self._incomplete, {}
            undecided, self._undecided = self._undecided, set()
            self._last_undecided = frozenset()
            self._wake(undecided)
            self._dispose(incomplete)
        routes, self._routes, self._shared = self._routes, {}, {}
        self._dispose(routes)

    def _dispose(self, gone: dict[Any, Any]) -> None:
        if self.chores is not None:
            self.chores.dispose(gone)

    def _ask_later(self, topic: str) -> None:
        if not self._to_ask and self.chores is not None:
            self.chores.add(self._ask())
        self._to_ask[topic] = None

    def _ask(self) -> Iterator[None]:
        """A chore: go on asking about topics, the oldest first."""
        while self._to_ask:
            topic = next(iter(self._to_ask))
            decision = self._patterns.ask(topic, AT_ONCE_SECONDS)
            if not self._patterns.asking(decision):
                del self._to_ask[topic]
                self._forget_route(topic)
            yield

    def _forget_route(self, topic: str) -> None:
        """A subscription has changed, or an answer has come: the next route is another one."""
        self._routes.pop(topic, None)
        if (route := self._incomplete.pop(topic, None)) is not None:
            self._wake(route.undecided)

    def _refused(self, wanted: AskedFilter) -> None:
        for subscription in list(self._holders.get(wanted, ())):
            subscription.owner.unwanted(TOO_COSTLY)

    def _wake(self, owners: Iterable[O]) -> None:
        """Soon, and each of them once, however many topics there are."""
        if not self._waiting and owners and self.chores is not None:
            self.chores.add(self._wake_all())
        self._waiting.update(owners)

    def _wake_all(self) -> Iterator[None]:
        while self._waiting:
            self._waiting.pop().decided()
            yield

    def _matching(self, topic: str, decision: Decision) -> Iterator[OwnedSubscription[O]]:
        nodes = [self._root]
        for level in topic.split("/"):
            deeper = []
            for node in nodes:
                yield from node.rest
                for name in (level, None):
                    child = node.children.get(name)
                    if child is not None:
                        deeper.append(child)
            nodes = deeper
        for node in nodes:
            yield from node.here
        for wanted in decision.matching:
            yield from self._holders.get(wanted, ())  # it may have gone since

    def _prune(self, subscription: OwnedSubscription[O], wanted: LevelFilter) -> None:
        """Remove from the tree, with the nodes that nothing needs any more."""
        path = [self._root]
        for level in wanted.levels:
            path.append(path[-1].children[level])
        del (path[-1].rest if wanted.rest else path[-1].here)[subscription]
        for parent, level, node in zip(
            reversed(path[:-1]), reversed(wanted.levels), reversed(path[1:]), strict=True
        ):
            if not node.empty():
                break
            del parent.children[level]
