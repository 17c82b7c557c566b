"""What patterns tell of themselves, against PCRE."""

from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater import pcre
from headwater.shapes import PatternShape, shape_of


@pytest.mark.parametrize(
    ("pattern", "shape"),
    [
        ("", PatternShape(True)),
        (r"s/(\w+)/17/.*", PatternShape(True, "/17/")),
        ("a.*", PatternShape(True, "a")),
        ("sensors/.*/temperature", PatternShape(True, "/temperature")),
        ("ab+c", PatternShape(True, "ab")),
        ("ab?c", PatternShape(True, "a")),
        ("ab{0}c", PatternShape(True, "a")),
        ("a|b", PatternShape(True)),
        ("x(a|b)yz", PatternShape(True, "yz")),
        ("x(abc)?", PatternShape(True, "x")),
        ("x(abc)d", PatternShape(True, "abc")),
        (r"a\.b[^/]+", PatternShape(True, "a.b")),
        (r"[a-z\d]+", PatternShape(True)),
        ("^a$", PatternShape(True, "a")),
        ("(a+)+$", PatternShape(False)),
        ("(a*b){2}", PatternShape(False)),
        ("(?=a)b", PatternShape(False)),
        ("(?i)abc", PatternShape(False)),
        (r"\p{Greek}", PatternShape(False)),
        (r"\Qa*\E", PatternShape(False)),
        (r"(a)\1", PatternShape(False)),
        ("(*UTF)a", PatternShape(False)),
        ("[[:alpha:]]", PatternShape(False)),
        ("a{", PatternShape(False)),
        ("a)", PatternShape(False)),
        ("(a", PatternShape(False)),
        (".*" * 17, PatternShape(False)),
        ("(" * 1000, PatternShape(False)),
    ],
)
def test_shapes(pattern: str, shape: PatternShape) -> None:
    assert shape_of(pattern) == shape


PIECES = st.sampled_from(
    (
        *("a", "b", "/", ".", r"\w", r"\d", r"\.", "[ab]", "[^/]", "(", "(?:", ")", "|"),
        *("*", "+", "?", "^", "$", "{2}", "{0}", "{1,}", "{0,2}", "(?i)", r"\b"),
        *(r"\Q", r"\E", "(?#", "(?x) "),
    )
)


TOPICS = ["".join(each) for size in range(5) for each in product("ab/.", repeat=size)]


@pytest.mark.property
@given(st.lists(PIECES, max_size=10).map("".join))
@example("a?b|/")
@example("(?i)A")
def test_what_matches_contains_the_literal(pattern: str) -> None:
    literal = shape_of(pattern).literal
    try:
        matches = pcre.compiled(pattern)
    except pcre.PatternError:
        return
    assert [topic for topic in TOPICS if literal not in topic and matches(topic)] == []
