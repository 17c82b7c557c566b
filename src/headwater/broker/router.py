"""Which subscribers a topic reaches.

Filters made of levels live in a tree with one node per level, so finding those that match costs by
the levels of the topic, not by the number of subscriptions. Patterns have to be asked one by one,
but only once per topic: the route of a topic is kept until a subscription comes or goes.

    root ─ sensors ─┬─ a          subscriptions of sensors/a
                    ├─ +          one level
                    └─ * (rest)   one or more levels
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from headwater.filters import BindingFilter, Filter, LevelFilter, RegexFilter

# A route per topic is kept; past this many topics they are dropped and found anew.
REMEMBERED_ROUTES = 100_000


class Owner(Protocol, Hashable):
    """Who a subscription belongs to."""

    @property
    def durable(self) -> bool:
        """It may only see what is durable."""


#: Where messages are that are to be delivered later. It reaches nobody.
DELAYED = "$delayed"

O = TypeVar("O", bound=Owner)  # noqa: E741


@dataclass(frozen=True, slots=True, eq=False)
class OwnedSubscription(Generic[O]):
    """One filter of one owner."""

    key: tuple[str, str]
    filter: Filter
    owner: O
    since: int  # wants nothing before this offset

    @property
    def durable(self) -> bool:
        return self.owner.durable


Wants = tuple[O, tuple[OwnedSubscription[O], ...]]


@dataclass(frozen=True, slots=True)
class Route(Generic[O]):
    """Who gets a topic: each owner once, with those of its subscriptions that match."""

    live: tuple[Wants[O], ...]  # as soon as a batch is appended
    durable: tuple[Wants[O], ...]  # once it is durable
    by_owner: dict[O, tuple[OwnedSubscription[O], ...]]


@dataclass(slots=True)
class _Node(Generic[O]):
    children: dict[str | None, "_Node[O]"] = field(default_factory=dict)  # None stands for `+`
    here: dict[OwnedSubscription[O], None] = field(default_factory=dict)  # end at this level
    rest: dict[OwnedSubscription[O], None] = field(default_factory=dict)  # `*` below this level

    def empty(self) -> bool:
        return not (self.children or self.here or self.rest)


class Router(Generic[O]):
    def __init__(self) -> None:
        self._root: _Node[O] = _Node()
        # Equal filters are asked once for all that hold them.
        self._patterns: dict[BindingFilter | RegexFilter, dict[OwnedSubscription[O], None]] = {}
        self._routes: dict[str, Route[O]] = {}

    def add(self, subscription: OwnedSubscription[O]) -> None:
        wanted = subscription.filter
        if isinstance(wanted, LevelFilter):
            node = self._root
            for level in wanted.levels:
                node = node.children.setdefault(level, _Node())
            (node.rest if wanted.rest else node.here)[subscription] = None
        else:
            self._patterns.setdefault(wanted, {})[subscription] = None
        self._routes.clear()

    def remove(self, subscription: OwnedSubscription[O]) -> None:
        wanted = subscription.filter
        if isinstance(wanted, LevelFilter):
            self._prune(subscription, wanted)
        else:
            holders = self._patterns[wanted]
            del holders[subscription]
            if not holders:
                del self._patterns[wanted]
        self._routes.clear()

    def route(self, topic: str) -> Route[O]:
        route = self._routes.get(topic)
        if route is None:
            if len(self._routes) >= REMEMBERED_ROUTES:
                self._routes.clear()
            route = self._routes[topic] = self.find(topic)
        return route

    def find(self, topic: str) -> Route[O]:
        """The route, found by walking the tree."""
        if topic == DELAYED:
            return Route((), (), {})
        by_owner: dict[O, list[OwnedSubscription[O]]] = {}
        for subscription in self._matching(topic):
            by_owner.setdefault(subscription.owner, []).append(subscription)
        wants = {owner: tuple(subscriptions) for owner, subscriptions in by_owner.items()}
        return Route(
            tuple(item for item in wants.items() if not item[0].durable),
            tuple(item for item in wants.items() if item[0].durable),
            wants,
        )

    def _matching(self, topic: str) -> Iterator[OwnedSubscription[O]]:
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
        for pattern, holders in self._patterns.items():
            if pattern.matches(topic):
                yield from holders

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
