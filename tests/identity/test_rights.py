"""Rules and rights: against a plain reference, and case by case."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.actions import ACTIONS, ANONYMOUS
from headwater.errors import Refusal
from headwater.filters import RESERVED, LevelFilter, RegexFilter, names_reserved
from headwater.rights import (
    EVERY_TOPIC,
    NOBODY,
    Principal,
    Rights,
    Rule,
    everything,
)

ALICE = Principal("user", "alice", "devices")
levels = st.sampled_from(["a", "b", "alice", "$audit", "$delayed", "$x", ""])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
patterns = st.tuples(
    st.lists(levels | st.sampled_from(["+", "{user}"]), max_size=3), st.sampled_from(["", "*"])
).map(lambda parts: "/".join([*parts[0], *([parts[1]] if parts[1] else [])]))
subjects = st.sampled_from(["user:alice", "user:bob", "app:alice", "role:devices", ANONYMOUS])
principals = st.sampled_from(
    [ALICE, Principal("user", "bob"), Principal("app", "alice", "app"), Principal(ANONYMOUS)]
)
rules = st.lists(
    st.builds(
        Rule,
        subjects,
        st.frozensets(st.sampled_from(list(ACTIONS)), min_size=1),
        patterns.filter(bool),
    ),
    max_size=6,
)


def reference(principal: Principal, rules: list[Rule], action: str, topic: str) -> bool:
    """What the documentation says, in other words: patterns as regular expressions."""
    mine = {str(principal), f"role:{principal.role}"}
    for rule in rules:
        if rule.who not in mine or action not in rule.actions:
            continue
        text = rule.topics.replace("{user}", principal.name) if principal.name else rule.topics
        words = text.split("/")
        rest = words[-1] == "*"
        words = words[:-1] if rest else words
        said = ["[^/]*" if word == "+" else re.escape(word) for word in words]
        pattern = "/".join([*said, *([".*"] if rest else [])])
        first = topic.split("/")[0]
        if re.fullmatch(pattern, topic, re.DOTALL) and (
            first not in RESERVED or first in words[:1]
        ):
            return True
    return False


@pytest.mark.property
@given(principals, rules, st.sampled_from(list(ACTIONS)), topics)
def test_rights_are_what_the_reference_says(
    principal: Principal, rules: list[Rule], action: str, topic: str
) -> None:
    allowed = Rights(principal, rules).of(action)
    expected = reference(principal, rules, action, topic)
    assert allowed.may(topic) == expected
    assert allowed.may(topic) == expected  # from memory
    assert (allowed.grant_for(topic) is not None) == expected


@pytest.mark.property
@given(principals, rules, rules, st.lists(topics, max_size=5))
def test_rules_can_change(
    principal: Principal, before: list[Rule], after: list[Rule], asked: list[str]
) -> None:
    rights = Rights(principal, before)
    for topic in asked:
        rights.publish.may(topic)
        rights.replay.may(topic)
    rights.change(after)
    fresh = Rights(principal, after)
    for topic in asked:
        for action in ACTIONS:
            assert rights.of(action).may(topic) == fresh.of(action).may(topic)
        both = fresh.subscribe.may(topic) and fresh.history.may(topic)
        assert rights.replay.may(topic) == both


@pytest.mark.property
@given(rules, patterns.filter(lambda text: bool(text) and "{" not in text), topics)
def test_a_subscription_is_refused_only_if_it_could_get_nothing(
    rules: list[Rule], text: str, topic: str
) -> None:
    wanted = LevelFilter.parse(text)
    allowed = Rights(ALICE, rules).subscribe
    if allowed.may(topic) and wanted.matches(topic):
        assert allowed.may_some(wanted)


def test_a_subscription_to_one_topic_is_refused_exactly() -> None:
    allowed = Rights(ALICE, [Rule("user:alice", frozenset(["subscribe"]), "a/+")]).subscribe
    assert allowed.may_some(LevelFilter.exact("a/b"))
    assert not allowed.may_some(LevelFilter.exact("a/b/c"))
    assert allowed.may_some(LevelFilter.parse("+/b"))
    assert allowed.may_some(LevelFilter.parse("*"))
    assert not allowed.may_some(LevelFilter.parse("b/*"))
    assert not allowed.may_some(LevelFilter.parse("a"))
    assert allowed.may_some(RegexFilter.parse("x.*"))
    assert not Rights(ALICE).subscribe.may_some(RegexFilter.parse("x.*"))


def test_refusals_name_who_and_what() -> None:
    with pytest.raises(Refusal, match="user:alice may not publish to a/b"):
        raise Rights(ALICE).refusal("publish", "a/b")
    with pytest.raises(Refusal, match="log in"):
        raise Rights(NOBODY).refusal("publish", "a/b")


def test_everything() -> None:
    rights = everything()
    for topic in ("a", "a/b", "$audit/login", "$delayed", "$x"):
        for action in ACTIONS:
            assert rights.of(action).may(topic)
    assert all(LevelFilter.parse(each) for each in EVERY_TOPIC)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [(r"\$audit/.*", True), (".*", False), (r"\$audit/login", True), (".*login", False)],
)
def test_patterns_that_ask_for_what_the_broker_writes(pattern: str, expected: bool) -> None:
    assert names_reserved(RegexFilter.parse(pattern), "$audit/login") is expected
