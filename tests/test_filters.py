"""Filters against simple definitions; PCRE where Python's `re` differs; patterns that run away."""

import contextlib
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.errors import Code, Refusal
from headwater.filters import BindingFilter, LevelFilter, RegexFilter

words = st.sampled_from(["a", "b", "", "ab", "é", "a+", "*b", "."])
topics = st.lists(words, min_size=1, max_size=5).map("/".join).filter(bool)
wild = st.lists(words | st.just("+"), max_size=5)
filters = st.tuples(wild, st.booleans()).map(
    lambda parts: "/".join([*parts[0], "*"] if parts[1] else parts[0])
)

#: Of the work of `measure`. The costliest of what is tried here takes a fifth of it; without the
#: limits that keep the broker alive, it would be hundreds, or there would be no end.
STALL = 20.0
TRIES = 5


def measure() -> None:
    """A piece of work to compare others with, about 5 ms: how quick a machine is, and how busy,
    is the same for both."""
    sum(number * number for number in range(100_000))


def least_work(act: Callable[[], object]) -> float:
    """The work of this thread alone, and without what came in between, such as a collection of
    garbage in a process in which many tests have run."""
    taken = [(_seconds(act), _seconds(measure)) for _ in range(TRIES)]
    return min(mine for mine, _ in taken) / min(measured for _, measured in taken)


def _seconds(act: Callable[[], object]) -> float:
    start = time.thread_time()
    act()
    return time.thread_time() - start


def defined(text: str, topic: str) -> bool:
    """`+` is whatever has no slash in it, a last `*` is the rest: as an expression of levels."""
    levels = text.split("/")
    rest = levels.pop() if levels[-1] == "*" else None
    parts = ["[^/]*" if level == "+" else re.escape(level) for level in levels]
    if rest:
        parts.append(".*")
    return re.fullmatch("/".join(parts), topic, re.DOTALL) is not None


# Levels


@pytest.mark.property
@given(text=filters.filter(bool), topic=topics)
@example(text="locationA/*", topic="locationA")
def test_levels_match_as_defined(text: str, topic: str) -> None:
    assert LevelFilter.parse(text).matches(topic) is defined(text, topic)


@pytest.mark.property
@given(one=topics, other=topics)
def test_a_topic_matches_itself_alone(one: str, other: str) -> None:
    assert LevelFilter.exact(one).matches(one)
    assert LevelFilter.exact(one).matches(other) is (one == other)


@pytest.mark.parametrize(
    ("text", "topic", "expected"),
    [
        ("locationA/sensorA", "locationA/sensorA", True),
        ("locationA/sensorA", "LOCATIONa/SENSORa", False),
        ("locationA/+", "locationA/sensorA", True),
        ("locationA/+", "locationA/sensorB", True),
        ("locationA/+", "locationA/sensorA/uptime", False),
        ("locationA/+", "locationA", False),
        ("locationA/+", "locationA/", True),
        ("locationA/*", "locationA/sensorA", True),
        ("locationA/*", "locationA/sensorB", True),
        ("locationA/*", "locationA/sensorA/uptime", True),
        ("locationA/*", "locationA", False),
        ("locationA/*", "locationA/", True),
        ("locationA/*", "locationAB/sensorA", False),
        ("+", "a", True),
        ("+", "a/b", False),
        ("*", "a", True),
        ("*", "a/b/c", True),
        ("+/*", "a", False),
        ("+/*", "a/b/c", True),
        ("+/+", "/", True),
        ("a//b", "a/b", False),
        ("a/+/b", "a//b", True),
        ("a+", "a+", True),
        ("a+", "ab", False),
        ("*a", "*a", True),
    ],
)
def test_the_examples_of_the_document_and_their_neighbours(
    text: str, topic: str, expected: bool
) -> None:
    assert LevelFilter.parse(text).matches(topic) is expected


@pytest.mark.parametrize("text", ["", "*/a", "a/*/b", "*/*", "*/+"])
def test_levels_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        LevelFilter.parse(text)
    assert refused.value.code is Code.MALFORMED


def test_wildcards_in_an_exact_filter_are_text() -> None:
    """A topic published through a protocol without wildcards may contain them."""
    assert LevelFilter.exact("a/+").matches("a/+")
    assert not LevelFilter.exact("a/+").matches("a/b")
    assert not LevelFilter.exact("*").matches("a")


# Bindings

bindings = st.lists(words | st.sampled_from("*#"), min_size=1, max_size=6).map("/".join)
dead_topics = st.lists(words | st.just("dead"), min_size=1, max_size=5).map("/".join)


def bound(words: list[str], levels: list[str]) -> bool:
    """What a binding means, in the simplest words."""
    if not words:
        return not levels
    if words[0] == "#":
        return bound(words[1:], levels) or (bool(levels) and bound(words, levels[1:]))
    return bool(levels) and words[0] in ("*", levels[0]) and bound(words[1:], levels[1:])


@pytest.mark.property
@given(text=bindings.filter(bool), topic=topics)
@example(text="#/a/#/b", topic="b/a/a/b/b")
def test_bindings_match_as_defined(text: str, topic: str) -> None:
    assert BindingFilter.parse(text).matches(topic) is bound(text.split("/"), topic.split("/"))


@pytest.mark.property
@given(text=(bindings | bindings.map("dead/".__add__)).filter(bool), topic=dead_topics.filter(bool))
def test_a_reserved_level_is_only_reached_by_its_name(text: str, topic: str) -> None:
    first, hidden = text.split("/")[0], topic.split("/")[0] == "dead"
    expected = bound(text.split("/"), topic.split("/")) and (not hidden or first == "dead")
    assert BindingFilter.parse(text, "dead").matches(topic) is expected


@pytest.mark.parametrize(
    ("text", "topic", "expected"),
    [
        ("order/new", "order/new", True),
        ("order/new", "order", False),
        ("order/*", "order/new", True),
        ("order/*", "order", False),
        ("order/*", "order/", True),
        ("order/*", "order/new/eu", False),
        ("*/new", "order/new", True),
        ("order/#", "order", True),
        ("order/#", "order/new/eu", True),
        ("order/#", "orders", False),
        ("#/eu", "eu", True),
        ("#/eu", "order/new/eu", True),
        ("#/eu", "order/eu/new", False),
        ("order/#/eu", "order/eu", True),
        ("order/#/eu", "order/a/eu/b/eu", True),
        ("#/*", "a", True),
        ("#/*/*", "a", False),
        ("#", "a//b", True),
        ("a#", "a#", True),
        ("a#", "ab", False),
        ("+", "+", True),
        ("+", "a", False),
    ],
)
def test_bindings_and_their_neighbours(text: str, topic: str, expected: bool) -> None:
    assert BindingFilter.parse(text).matches(topic) is expected


@pytest.mark.parametrize("text", ["a/b", "a/*/b", "*", "#", "+/*", "dead/*"])
def test_bindings_that_a_level_filter_can_say_become_one(text: str) -> None:
    assert isinstance(BindingFilter.parse(text), LevelFilter)


@pytest.mark.parametrize("text", ["#", "*", "*/a", "a/#"])
def test_bindings_that_a_level_filter_cannot_say_stay(text: str) -> None:
    assert isinstance(BindingFilter.parse(text, "dead"), BindingFilter)


def test_an_empty_binding_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        BindingFilter.parse("")
    assert refused.value.code is Code.MALFORMED


def test_a_binding_of_many_wildcards_does_not_stall_the_broker() -> None:
    binding, topic = "/".join(["#", "a"] * 100 + ["b"]), "/".join("a" * 500)
    assert not BindingFilter.parse(binding).matches(topic)
    assert least_work(lambda: BindingFilter.parse(binding).matches(topic)) < STALL


# Patterns


@pytest.mark.property
@given(text=st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1), topic=topics)
def test_a_quoted_text_matches_itself_alone(text: str, topic: str) -> None:
    """Whatever a pattern is made of: quoted, or without special characters, it is a topic."""
    pattern = RegexFilter.parse(re.sub(r"([^A-Za-z0-9])", r"\\\1", text))
    assert pattern.matches(text)
    assert pattern.matches(topic) is (text == topic)


simple = st.recursive(
    st.sampled_from(["a", "b", "/", ".", "[ab]", "[^/]"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda parts: f"(?:{parts[0]}){parts[1]}"),
    ),
    max_leaves=6,
)


@pytest.mark.property
@given(text=simple, topic=st.text("ab/", min_size=1, max_size=8))
def test_where_the_dialects_agree_patterns_are_what_python_says(text: str, topic: str) -> None:
    expected = re.fullmatch(text, topic) is not None
    assert RegexFilter.parse(text).matches(topic) is expected


@pytest.mark.parametrize(
    ("text", "topic", "expected"),
    [
        ("sensors", "sensors", True),
        ("sensors", "sensors/a", False),
        ("sensors/.*", "sensors/a", True),
        ("sensors/.*", "sensors/", True),
        ("sensors/.*", "sensors", False),
        (".*/a", "b/a/c", False),
        ("^sensors$", "sensors", True),
        ("a|ab", "ab", True),  # the first alternative matches, but not the whole topic
        ("a|b", "ab", False),
        ("a.*?", "abc", True),
        ("a$", "a\n", False),  # $ alone would be content with that
        ("(?m)^b$", "a\nb\nc", False),
        ("a.b", "a\nb", False),
        ("", "a", False),
        (r"a\Kb", "ab", True),
        ("a(*ACCEPT)b", "ac", False),
        ("A", "a", False),
        ("(?i)A", "a", True),
    ],
)
def test_patterns_are_anchored_at_both_ends(text: str, topic: str, expected: bool) -> None:
    assert RegexFilter.parse(text).matches(topic) is expected


@pytest.mark.parametrize(
    ("text", "topic", "expected"),
    [
        pytest.param(r"\((?:[^()]|(?R))*\)", "(a(b)(c(d)))", True, id="recursion"),
        pytest.param(r"\((?:[^()]|(?R))*\)", "(a(b)(c(d))", False, id="recursion-unbalanced"),
        pytest.param(r"(a|b(?1)c)", "bbacc", True, id="subroutine"),
        pytest.param(r"\Qa.b\E.", "a.bx", True, id="quoting"),
        pytest.param(r"\Qa.b\E.", "axbx", False, id="quoting-is-literal"),
        pytest.param(r"(?|(a)|(b))\1", "bb", True, id="branch-reset"),
        pytest.param(r"(?<level>a+)/\k<level>", "aa/aa", True, id="named-group"),
        pytest.param(r"[[:alpha:]]+", "abc", True, id="posix-class"),
        pytest.param(r"\p{Lu}\p{Ll}+", "Éa", True, id="unicode-property"),
        pytest.param(r"a\Rb", "a\r\nb", True, id="newline-sequence"),
        pytest.param(r"\h+a", "\t a", True, id="horizontal-space"),
        pytest.param(r"a++b", "aab", True, id="possessive"),
        pytest.param(r"(?>a+)ab", "aaab", False, id="atomic"),
        pytest.param(r"a\Z", "a", True, id="end"),
        pytest.param(r"\x{61}", "a", True, id="hexadecimal-in-braces"),
        pytest.param(r"[\x{2f}]", "/", True, id="hexadecimal-in-a-class"),
        pytest.param(r"\x{e9}", "é", True, id="hexadecimal-beyond-ascii"),
        pytest.param(r"\o{141}", "a", True, id="octal-in-braces"),
    ],
)
def test_patterns_are_pcre(text: str, topic: str, expected: bool) -> None:
    """What Python's `re` does not have, or reads otherwise."""
    assert RegexFilter.parse(text).matches(topic) is expected


@pytest.mark.parametrize(
    "text", ["(", "[", "a{2,1}", "*", "\\", "(?<=a*)b", "(?P<n>a)(?P<n>b)", "(?Rx)", "(" * 600]
)
def test_bad_patterns_are_refused(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        RegexFilter.parse(text)
    assert refused.value.code is Code.MALFORMED


@pytest.mark.parametrize(("text", "position"), [("[", 1), ("ab(", 3), ("a{2,1}", 5)])
def test_an_error_names_the_place_in_the_pattern_as_the_client_wrote_it(
    text: str, position: int
) -> None:
    with pytest.raises(Refusal, match=rf"position {position}\b"):
        RegexFilter.parse(text)


@pytest.mark.parametrize("verb", ["LIMIT_MATCH=4294967295", "UTF", "NO_JIT", "ACCEPT", "nonsense"])
def test_patterns_that_begin_with_a_verb_are_refused(verb: str) -> None:
    """A later LIMIT_MATCH would override the one that keeps the broker alive."""
    with pytest.raises(Refusal):
        RegexFilter.parse(f"(*{verb})a")


@pytest.mark.parametrize(
    "text", [" (*LIMIT_MATCH=9)a", "(?:(*LIMIT_MATCH=9)a)", "a(*LIMIT_MATCH=9)"]
)
def test_limits_are_only_set_at_the_very_beginning(text: str) -> None:
    with pytest.raises(Refusal):
        RegexFilter.parse(text)


# Patterns that run away

LONG = "a" * 1024
WIDE = "\u0101" * 512
FAR_FROM_LETTERS = (
    r"[^\p{Han}\p{Thai}\p{Lao}\p{Khmr}\p{Tibt}\p{Sc}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Me}\p{Nl}\p{No}]"
)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        pytest.param("(a+)+[bc]", LONG, id="nested-repeats"),
        pytest.param("(a|a)*[bc]", LONG, id="ambiguous-alternatives"),
        pytest.param("(a|aa)+[bc]", LONG, id="overlapping-alternatives"),
        pytest.param("(.*)*[bc]", LONG, id="nested-stars"),
        pytest.param("(?:.*.*.*.*.*.*)[bc]", LONG, id="many-stars"),
        pytest.param("(?:a?){500}a{500}[bc]?", LONG, id="optional-then-required"),
        pytest.param(r"(?i)(.*)\1\1[bc]", LONG, id="back-references"),
        pytest.param("(a|(?R))*", LONG, id="recursion"),
        pytest.param("(?R)", LONG, id="endless-recursion"),
        pytest.param("(?=(.*)*x)|a*", LONG, id="look-ahead"),
        # One step of these reads the whole topic, and only steps are counted.
        pytest.param("(?:(?:(?=.*+)){1000}.)*[bc]", LONG, id="possessive-look-ahead"),
        pytest.param(
            f"(?:(?:(?={FAR_FROM_LETTERS}*+)){{200}}.)*[bc]", WIDE, id="properties-in-look-ahead"
        ),
        pytest.param(r"(?:(?:(?=\X*+)){200}.)*[bc]", WIDE, id="clusters-in-look-ahead"),
    ],
)
def test_a_runaway_pattern_does_not_stall_the_broker(text: str, topic: str) -> None:
    patterns = iter([RegexFilter.parse(text) for _ in range(TRIES)])  # results are remembered
    assert least_work(lambda: next(patterns).matches(topic)) < STALL


@pytest.mark.parametrize(
    "text",
    [
        "(" * 240 + "a" + ")" * 240,
        "(?:(?:a{1000}){60})x",
        "((((a{1,60}){1,60}){1,60}){1,60})x",
        "(?:a|b|c)" * 110,
        r"\p{L}" * 200,
        "(?<!a{1,200})b",
        "(a?){60}" * 100,
    ],
)
def test_compiling_does_not_stall_the_broker(text: str) -> None:
    def parse() -> None:
        with contextlib.suppress(Refusal):
            RegexFilter.parse(text)

    assert least_work(parse) < STALL


def test_a_runaway_pattern_is_asked_once_per_topic() -> None:
    pattern = RegexFilter.parse("(a|a)*[bc]")
    assert not pattern.matches(LONG)
    assert least_work(lambda: [pattern.matches(LONG) for _ in range(1000)]) < STALL


def test_patterns_of_ordinary_size_are_far_from_the_limit() -> None:
    """The limit is for runaways: what people write must match the longest topics."""
    topic = "/".join(["sensors", *("level" for _ in range(160)), "x"])
    assert len(topic) < 1024
    for text in (
        "sensors/.*",
        ".*/x",
        "sensors(/[a-z]+)*/x",
        "(?:[^/]+/)*x",
        ".*level.*level.*level.*x",
        "(sensors|actors)/.*(x|y|z)",
    ):
        assert RegexFilter.parse(text).matches(topic), text
