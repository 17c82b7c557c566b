"""Rights that change while a call goes on: it is refused then, and never tells less than it asked
for as if that were all."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight

from headwater import local_tokens
from headwater.control import call
from headwater.errors import Refusal
from headwater.flight import requests
from headwater.flight.entrance import Caller
from headwater.flight.requests import Read
from headwater.flight.stages import Stages
from headwater.identity.book import AccessBook
from headwater.rights import Rule
from tests.e2e.process import BrokerProcess, eventually
from tests.flight.client import Client, rows
from tests.flight.stand import EVERYTHING, FlightStand, caller_of, standing
from tests.flight.test_appending import batch, interrupt, staged

LARGE = 1 << 20


def allow(caller: Caller, *topics: str) -> None:
    """Of its own rules there are only these from now on."""
    rules = [Rule(str(caller.rights.principal), EVERYTHING, each) for each in topics]
    caller.rights.change(rules)


# Reading


async def fill(stand: FlightStand, *topics: str) -> None:
    """Several pieces that are read one by one, each of one topic."""
    for sequence, topic in enumerate(topics):
        await stand.append(caller_of(""), sequence, *[batch(topic, size=LARGE)] * 8)


async def read(stand: FlightStand, caller: Caller, **wanted: Any) -> Iterator[Any]:
    request = Read(0, stand.broker.engine.watermark, **wanted)
    _, chunks = await asyncio.to_thread(stand.service.reader.read, request, caller)
    return chunks


async def topics_of(chunks: Iterator[Any]) -> set[str]:
    found = await asyncio.to_thread(list, chunks)
    return {topic for chunk in found for topic in chunk.column("topic").to_pylist()}


@pytest.mark.parametrize("wanted", [{}, {"topics": ["a", "b"]}, {"pattern": "a|b"}])
def test_a_reader_that_loses_a_topic_is_told(tmp_path: Path, wanted: dict[str, Any]) -> None:
    async def check() -> None:
        async with standing(tmp_path) as stand:
            await fill(stand, "a", "b", "a")
            alice = caller_of("alice")
            chunks = await read(stand, alice, **wanted)
            next(chunks)
            allow(alice, "b")
            with pytest.raises(Refusal, match="user:alice may not read the history of a"):
                await topics_of(chunks)

    asyncio.run(check())


def test_topics_that_come_later_are_not_forgotten_either(tmp_path: Path) -> None:
    """Those that the reader has seen nothing of yet."""

    async def check() -> None:
        async with standing(tmp_path) as stand:
            await fill(stand, "a", "b")
            alice = caller_of("alice")
            chunks = await read(stand, alice)
            next(chunks)
            allow(alice, "a")
            with pytest.raises(Refusal, match="user:alice may not read the history of b"):
                await topics_of(chunks)

    asyncio.run(check())


def test_a_change_that_takes_nothing_from_a_reader_does_not_disturb_it(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path) as stand:
            await fill(stand, "a", "b", "c")
            alice = caller_of("alice")
            allow(alice, "a", "b", "x")
            chunks = await read(stand, alice)
            next(chunks)
            allow(alice, "a", "b", "y")
            assert await topics_of(chunks) == {"a", "b"}
            chunks = await read(stand, alice, topics=["a"])
            next(chunks)
            allow(alice, "a")
            assert await topics_of(chunks) == {"a"}

    asyncio.run(check())


def test_a_reader_that_is_removed_is_told_whatever_comes_next(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path) as stand:
            await fill(stand, "a", "c")
            alice = caller_of("alice")
            allow(alice, "a")
            chunks = await read(stand, alice)
            next(chunks)
            alice.rights.end()
            with pytest.raises(Refusal, match="user:alice is not known any more"):
                await topics_of(chunks)

    asyncio.run(check())


# Writing


def changing(caller: Caller, *parts: Any) -> Iterator[Any]:
    """The caller may publish only to `b` after the first part."""
    first, *rest = parts
    yield first
    allow(caller, "b")
    yield from rest


def test_a_topic_is_asked_for_again_in_a_write_that_goes_on(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path) as stand:
            alice = caller_of("alice")
            with pytest.raises(Refusal, match="user:alice may not publish to a"):
                await stand.stage(alice, 1, changing(alice, batch("a"), batch("b"), batch("a")))
            assert not staged(tmp_path)

    asyncio.run(check())


def test_staged_rows_are_committed_by_who_may_publish_them(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path) as stand:
            alice = caller_of("alice")
            await stand.stage(alice, 1, iter([batch("b", "a", "b")]))
            allow(alice, "b")
            with pytest.raises(Refusal, match="user:alice may not publish to a"):
                await stand.commit(alice, 1)
            assert not Stages(tmp_path).intents()
            assert stand.broker.engine.end == 0
        async with standing(tmp_path) as stand:
            assert stand.broker.engine.end == 0  # nobody has finished it
            allow(alice, "a", "b")
            assert (await stand.commit(alice, 1))["count"] == 3

    asyncio.run(check())


def test_an_append_that_is_refused_in_the_end_leaves_nothing(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path) as stand:
            alice = caller_of("alice")
            with pytest.raises(Refusal, match="user:alice may not publish to a"):
                append, parts = requests.Append("p", 1), changing(alice, batch("a"))
                await asyncio.to_thread(stand.service.append, append, alice, parts)
            assert not Stages(tmp_path).intents() and not staged(tmp_path)
            assert stand.broker.engine.end == 0

    asyncio.run(check())


@pytest.mark.parametrize("visible", [0, 1])
def test_an_interrupted_commit_is_refused_or_finished_as_a_whole(
    tmp_path: Path, visible: int
) -> None:
    async def check() -> None:
        async with standing(tmp_path) as stand:
            await interrupt(stand, tmp_path, visible)
            alice = caller_of("alice")
            allow(alice, "b")
            if visible:
                assert (await stand.commit(alice, 1))["count"] == 2
            else:
                with pytest.raises(Refusal, match="user:alice may not publish to a"):
                    await stand.commit(alice, 1)
                assert stand.broker.engine.end == 0
            assert not Stages(tmp_path).intents()

    asyncio.run(check())


# Over Flight

Change = Callable[[Path], None]


def removed(data: Path) -> None:
    call(data, "user.remove", name="alice")


def revoked(data: Path) -> None:
    call(data, "access.revoke", who="alice", may=["publish", "history"], topics="a/*")


@contextmanager
def broker_of_alice(data: Path) -> Iterator[tuple[BrokerProcess, Client]]:
    """And her client; she may use what is below `a`."""
    book = AccessBook(data)
    book.add_user("alice", "mine")
    book.allow("alice", ["publish", "history"], "a/*")
    token = book.add_token("alice")["token"]
    with (
        BrokerProcess(data, HEADWATER_LISTENER_FLIGHT_ANONYMOUS="auto") as broker,
        closing(Client(broker.ports["flight"], token)) as alice,
    ):
        yield broker, alice


CHANGES = pytest.mark.parametrize(
    ("change", "told"),
    [
        (removed, "user:alice is not known any more"),
        (revoked, "user:alice may not .* a/1"),
    ],
)


@CHANGES
def test_a_stream_ends_with_the_reason(tmp_path: Path, change: Change, told: str) -> None:
    with broker_of_alice(tmp_path / "data") as (broker, alice):
        for sequence in range(6):
            part = rows(*[("a/1", b"x" * LARGE)] * 8)
            alice.put(part, do="append", producer="p", sequence=sequence)
        chunks = alice.chunks(start=0, end=48)
        next(chunks)
        change(broker.data)
        with pytest.raises(flight.FlightUnauthorizedError, match=told):
            list(chunks)


@CHANGES
def test_a_write_ends_with_the_reason(tmp_path: Path, change: Change, told: str) -> None:
    with broker_of_alice(tmp_path / "data") as (broker, alice):
        part = rows(("a/1", b"x" * LARGE))
        with pytest.raises(flight.FlightUnauthorizedError, match=told):  # noqa: SIM117
            with alice.writing(part.schema, do="append", producer="p", sequence=1) as write:
                write(part)
                for _ in eventually():  # until the broker has it
                    unfinished = (broker.data / "stages").rglob("*.part")
                    if any(each.stat().st_size > LARGE for each in unfinished):
                        break
                change(broker.data)
                write(part)
        owner = Client(broker.ports["flight"], local_tokens.kept_in(broker.data))
        assert owner.act("log")["end"] == 0
        assert not staged(broker.data)


def test_a_commit_is_refused_with_the_reason(tmp_path: Path) -> None:
    with broker_of_alice(tmp_path / "data") as (broker, alice):
        alice.put(rows(("a/1", b"x")), do="stage", query="q", batch=1, partition=0, attempt="x")
        revoked(broker.data)
        commit: dict[str, Any] = {"query": "q", "batch": 1, "parts": {"0": "x"}}
        with pytest.raises(flight.FlightUnauthorizedError, match="may not publish to a/1"):
            alice.act("commit", **commit)
        broker.keep_ports()
        broker.stop()
        broker.start()
        assert alice.act("log")["end"] == 0
        call(broker.data, "access.allow", who="alice", may=["publish"], topics="a/*")
        assert alice.act("commit", **commit) == {"first": 0, "count": 1, "repeated": False}
