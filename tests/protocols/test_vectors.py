"""Every wire vector, fed whole, byte by byte, and with trailing bytes."""

from dataclasses import replace

import pytest

from headwater.registry import REGISTRY
from tests.protocols.vectors import (
    CLIENTS,
    Conversation,
    Feed,
    Send,
    Vector,
    escape,
    files,
    pattern_of,
    play,
    play_client,
    unescape,
)

FILES = {file.protocol: file for file in files()}
VECTORS = [vector for file in FILES.values() for vector in file.vectors]
CLIENT_VECTORS = [vector for file in FILES.values() for vector in file.clients]


def named(vector: Vector) -> str:
    return f"{vector.protocol}-{vector.name}"


@pytest.mark.parametrize("feed", Feed, ids=lambda feed: feed.value.replace(" ", "-"))
@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_broker(vector: Vector, feed: Feed) -> None:
    play(vector, FILES[vector.protocol].greeting, feed)


@pytest.mark.parametrize("feed", Feed, ids=lambda feed: feed.value.replace(" ", "-"))
@pytest.mark.parametrize("vector", CLIENT_VECTORS, ids=named)
def test_client(vector: Vector, feed: Feed) -> None:
    play_client(vector, feed)


@pytest.mark.parametrize("vector", VECTORS, ids=named)
def test_more_bytes_than_asked_for_end_nothing(vector: Vector) -> None:
    """What follows a vector is the beginning of a frame: it must be waiting, not refused."""
    conversation = Conversation(vector.protocol, vector.terms, vector.settings)
    for step in (*vector.introduction, *vector.steps):
        conversation.perform(step)
    if not conversation.closed:
        assert vector.next, "say how the next frame begins"
        conversation.receive(vector.next)
        assert not conversation.closed


def test_every_protocol_has_vectors_for_both_sides() -> None:
    assert set(FILES) == set(REGISTRY) == set(CLIENTS)
    assert all(file.vectors and file.clients for file in FILES.values())


@pytest.mark.parametrize("vector", VECTORS + CLIENT_VECTORS, ids=named)
def test_every_vector_names_its_clause(vector: Vector) -> None:
    assert vector.clause
    assert vector.steps


def test_the_escapes() -> None:
    assert unescape(r"a\0\x1f\\\{3*b\xff}é") == b"a\x00\x1f\\b\xffb\xffb\xff\xc3\xa9"
    assert escape(b"a\x00\x1f\\\xff\"'") == r"a\0\x1f\\\xff" + "\"'"
    assert pattern_of(r"a.\?\*\0").fullmatch(b"a.\x00prose\x00")
    assert not pattern_of(r"a.").fullmatch(b"ab")
    assert not pattern_of(r"a\*").fullmatch(b"a\x00")


@pytest.mark.parametrize("data", [b"", bytes(range(256)), b"\\0\\x00"])
def test_escaping_is_undone(data: bytes) -> None:
    assert unescape(escape(data)) == data


def test_a_wrong_vector_fails() -> None:
    """Otherwise a mistake in the player would make everything above pass."""
    right = FILES["psmb"].vectors[0]
    (step,) = right.steps
    for wrong in (
        replace(step, answer="NO"),
        replace(step, told=("advertise a",)),
        replace(step, closed=True),
    ):
        with pytest.raises(AssertionError):
            play(replace(right, steps=(wrong,)), "", Feed.WHOLE)
    with pytest.raises(AssertionError):
        play(right, "HELLO", Feed.WHOLE)


def test_vectors_send_something() -> None:
    for vector in VECTORS:
        for step in vector.steps:
            assert not isinstance(step.what, Send) or step.what.data, vector.name
