"""The one rule about names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import topics
from headwater.errors import Code, Refusal

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@pytest.mark.property
@given(topic=text, limit=st.integers(1, 60))
def test_a_topic_is_as_long_as_its_bytes(topic: str, limit: int) -> None:
    if len(topic.encode()) <= limit:
        assert topics.check(topic, limit) == topic
    else:
        with pytest.raises(Refusal) as refused:
            topics.check(topic, limit)
        assert refused.value.code is Code.TOO_LARGE


@pytest.mark.parametrize("topic", ["a", "/", "//", "a//b", " ", "A", "é", "a/+", "\n", "a" * 1024])
def test_what_may_be_a_topic(topic: str) -> None:
    """Levels may be empty, and no character but NUL is special here."""
    assert topics.check(topic, 1024) == topic


@pytest.mark.parametrize("topic", ["", "\0", "a\0", "a/\0/b"])
def test_what_may_not(topic: str) -> None:
    with pytest.raises(Refusal) as refused:
        topics.check(topic, 1024)
    assert refused.value.code is Code.MALFORMED


@pytest.mark.parametrize("topic", ["\ud800", "a\udfff", "a" * 600 + "\ud800"])
def test_text_that_has_no_utf_8_is_no_topic(topic: str) -> None:
    """JSON can spell half of a surrogate pair; the log could not store it."""
    with pytest.raises(Refusal) as refused:
        topics.check(topic, 1024)
    assert refused.value.code is Code.MALFORMED
