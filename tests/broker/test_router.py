"""The router against its definition: ask every filter."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker import router as module
from headwater.broker.router import OwnedSubscription, Router
from headwater.filters import BindingFilter, LevelFilter, RegexFilter


@dataclass(frozen=True)
class Owner:
    number: int
    durable: bool = False

    def decided(self) -> None: ...
    def unwanted(self, sentence: str) -> None: ...


words = st.sampled_from(["a", "b", "", "a+"])
topics = st.lists(words | st.just("+"), min_size=1, max_size=5).map("/".join).filter(bool)
levels = (
    st.tuples(st.lists(words | st.just("+"), max_size=5), st.booleans())
    .map(lambda parts: "/".join([*parts[0], "*"] if parts[1] else parts[0]))
    .filter(bool)
    .map(LevelFilter.parse)
)
patterns = st.sampled_from([".*", "a.*", "a/[^/]*", "(?:a|b)/.*", "x", "", ".*a"]).map(
    RegexFilter.parse
)
bindings = st.builds(
    BindingFilter.parse,
    st.lists(words | st.sampled_from("*#"), min_size=1, max_size=5).map("/".join).filter(bool),
    st.sampled_from([None, "a"]),
)
filters = st.one_of(levels, topics.map(LevelFilter.exact), patterns, bindings)
owners = st.builds(Owner, st.integers(0, 3)) | st.just(Owner(9, durable=True))
subscriptions = st.lists(
    st.builds(
        lambda wanted, owner, tag: OwnedSubscription((wanted.text, tag), wanted, owner, 0),
        filters,
        owners,
        st.sampled_from("xyz"),
    ),
    max_size=25,
)


def found(router: Router[Owner], topic: str) -> set[OwnedSubscription[Owner]]:
    """What a route holds; each subscription is in it once, under its owner, in the right half."""
    route = router.route(topic)
    every = [each for _, wanted in (*route.live, *route.durable) for each in wanted]
    assert len(every) == len(set(every))
    assert all(not owner.durable for owner, _ in route.live)
    assert all(owner.durable for owner, _ in route.durable)
    assert dict((*route.live, *route.durable)) == route.by_owner
    assert len(route.live) + len(route.durable) == len(route.by_owner)
    assert all(each.owner == owner for owner, wanted in route.by_owner.items() for each in wanted)
    return set(every)


def matching(held: Iterable[OwnedSubscription[Owner]], topic: str) -> set[OwnedSubscription[Owner]]:
    return {each for each in held if each.filter.matches(topic)}


def is_empty(router: Router[Owner]) -> bool:
    return router._root.empty() and not router._holders


@pytest.mark.plain  # hypothesis takes weak references
@pytest.mark.property
@given(held=subscriptions, asked=st.lists(topics, min_size=1, max_size=6), data=st.data())
def test_routes_are_what_the_filters_say(
    held: list[OwnedSubscription[Owner]], asked: list[str], data: st.DataObject
) -> None:
    """While subscriptions come and go in any order, and when the last one is gone."""
    router: Router[Owner] = Router()
    present: dict[OwnedSubscription[Owner], None] = {}
    for subscription in held:
        router.add(subscription)
        present[subscription] = None
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(list(present)))
            router.remove(gone)
            del present[gone]
        assert all(found(router, topic) == matching(present, topic) for topic in asked)
    for subscription in data.draw(st.permutations(list(present))):
        router.remove(subscription)
        del present[subscription]
        assert all(found(router, topic) == matching(present, topic) for topic in asked)
    assert is_empty(router)


def test_an_owner_is_named_once_with_all_that_match() -> None:
    router: Router[Owner] = Router()
    owner = Owner(1)
    wanted = [LevelFilter.parse("a"), LevelFilter.parse("+"), LevelFilter.parse("*")]
    held = [OwnedSubscription((each.text, "_0"), each, owner, 0) for each in wanted]
    for subscription in held:
        router.add(subscription)
    ((named, matched),) = router.route("a").live
    assert named == owner
    assert set(matched) == set(held)


def test_the_same_pattern_of_two_owners_is_asked_once() -> None:
    router: Router[Owner] = Router()
    first, second = (
        OwnedSubscription(("a.*", ""), RegexFilter.parse("a.*"), Owner(number), 0)
        for number in (1, 2)
    )
    router.add(first)
    router.add(second)
    assert len(router._holders) == 1
    assert found(router, "ab") == {first, second}
    router.remove(first)
    assert found(router, "ab") == {second}
    router.remove(second)
    assert is_empty(router)


def test_equal_texts_of_other_kinds_are_other_filters() -> None:
    """To a pattern `#` is a character; and two bindings can differ in what is reserved."""
    router: Router[Owner] = Router()
    wanted = [
        BindingFilter.parse("a/#/.*"),
        BindingFilter.parse("a/#/.*", "b"),
        RegexFilter.parse("a/#/.*"),
    ]
    held = [OwnedSubscription((each.text, ""), each, Owner(1), 0) for each in wanted]
    for subscription in held:
        router.add(subscription)
    assert found(router, "a/.*") == {held[0], held[1]}
    assert found(router, "a/#/b") == {held[2]}
    for subscription in held:
        router.remove(subscription)
    assert is_empty(router)


def test_a_pattern_is_asked_once_per_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    router: Router[Owner] = Router()
    router.add(OwnedSubscription(("a.*", ""), RegexFilter.parse("a.*"), Owner(1), 0))
    asked: list[str] = []

    def note(self: RegexFilter, topic: str) -> bool:
        asked.append(topic)
        return True

    monkeypatch.setattr(RegexFilter, "matches", note)
    for _ in range(3):
        router.route("ab")
    assert asked == ["ab"]


def test_levels_are_found_without_asking_each_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the cost depends on the topic, not on the number of subscriptions."""
    router: Router[Owner] = Router()
    held = [
        OwnedSubscription((text, "_0"), LevelFilter.parse(text), Owner(0), 0)
        for number in range(1000)
        for text in (f"a/{number}", f"a/{number}/*", f"{number}/+")
    ]
    for subscription in held:
        router.add(subscription)

    def fail(self: LevelFilter, topic: str) -> bool:
        raise AssertionError("a filter was asked")

    monkeypatch.setattr(LevelFilter, "matches", fail)
    assert {each.key[0] for each in found(router, "a/7/b")} == {"a/7/*"}


def test_routes_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_ROUTES", 10)
    router: Router[Owner] = Router()
    subscription = OwnedSubscription(("*", "_0"), LevelFilter.parse("*"), Owner(1), 0)
    router.add(subscription)
    for number in range(100):
        assert found(router, f"topic {number}") == {subscription}
        assert len(router._routes) <= 10


def test_a_subscription_of_a_topic_leaves_other_routes_alone() -> None:
    """Clients of a fleet come and go, each with a topic of its own."""
    router: Router[Owner] = Router()
    wide = OwnedSubscription(("a/*", ""), LevelFilter.parse("a/*"), Owner(1), 0)
    router.add(wide)
    kept, other = router.route("a/b"), router.route("a/c")
    own = OwnedSubscription(("a/c", ""), LevelFilter.parse("a/c"), Owner(2), 0)
    router.add(own)
    assert router.route("a/b") is kept
    assert found(router, "a/c") == {wide, own}
    router.remove(own)
    assert router.route("a/b") is kept
    assert found(router, "a/c") == {wide}
    assert not any(own in key for key in router._shared)
    router.remove(wide)
    assert (found(router, "a/b"), found(router, "a/c")) == (set(), set())
    assert other.by_owner


def test_removing_what_is_not_there_is_an_error() -> None:
    """A router that forgave it would hide a leak."""
    router: Router[Owner] = Router()
    with pytest.raises(KeyError):
        router.remove(OwnedSubscription(("a", "_0"), LevelFilter.parse("a"), Owner(1), 0))
