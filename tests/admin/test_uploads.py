"""Payloads that come in pieces: put together, and bounded in number, size and time."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps

import pytest

from headwater.admin import uploads
from headwater.admin.uploads import MOST_UPLOADS, Uploads
from headwater.errors import Code, Refusal

Test = Callable[..., Coroutine[None, None, None]]


def in_a_loop(test: Test) -> Callable[..., None]:
    @wraps(test)
    def run(**fixtures: object) -> None:
        asyncio.run(test(**fixtures))

    return run


def refused(act: Callable[[], object]) -> Code:
    with pytest.raises(Refusal) as error:
        act()
    return error.value.code


@in_a_loop
async def test_pieces_become_one() -> None:
    made = Uploads(100)
    one = made.add(None, b"a")
    other = made.add(None, b"x")
    assert made.add(one, b"b") == one
    made.add(other, b"y")
    assert made.take(one) == b"ab"
    assert made.take(other) == b"xy"
    assert refused(lambda: made.take(one)) is Code.NOT_FOUND
    assert refused(lambda: made.add(one, b"c")) is Code.NOT_FOUND


@in_a_loop
async def test_one_that_grows_too_large_is_dropped() -> None:
    made = Uploads(10)
    one = made.add(None, bytes(10))
    assert refused(lambda: made.add(one, b"!")) is Code.TOO_LARGE
    assert refused(lambda: made.take(one)) is Code.NOT_FOUND
    assert refused(lambda: made.add(None, bytes(11))) is Code.TOO_LARGE


@in_a_loop
async def test_there_are_only_so_many() -> None:
    made = Uploads(10)
    numbers = [made.add(None, b"x") for _ in range(MOST_UPLOADS)]
    assert refused(lambda: made.add(None, b"x")) is Code.UNAVAILABLE
    made.take(numbers[0])
    assert made.take(made.add(None, b"y")) == b"y"


@in_a_loop
async def test_who_does_not_go_on_has_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "IDLE_SECONDS", 0.2)
    made = Uploads(10)
    left, kept = made.add(None, b"x"), made.add(None, b"y")
    # Who goes on has all of the time again: so much of it that a busy machine cannot use it up.
    monkeypatch.setattr(uploads, "IDLE_SECONDS", 600.0)
    made.add(kept, b"y")
    await asyncio.sleep(0.5)
    assert refused(lambda: made.take(left)) is Code.NOT_FOUND
    assert made.take(kept) == b"yy"
