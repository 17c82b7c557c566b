"""What a client is told to have is on the disk: a durable subscription, a queue."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.broker import Broker
from headwater.commands import Consume, Subscribe
from headwater.errors import LogUnavailable
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.log.embedded.notes import EmbeddedNotes
from headwater.log.embedded.state import StateDatabase
from headwater.queue_spec import QueueSpec
from headwater.slowing import SAVING
from tests.broker.client import KEY, Client

TOPIC = LevelFilter.exact("a")
QUEUE = QueueSpec("test/q", (TOPIC,))
SUBSCRIBE = Subscribe(KEY, TOPIC, answer=b"yes", durable="name", from_start=False)
CONSUME = Consume(KEY, QUEUE, answer=b"yes")
MAKES = pytest.mark.parametrize("makes", [SUBSCRIBE, CONSUME], ids=["subscription", "queue"])


class Waiting(Client):
    saves_at_once = False


def run(directory: Path, check: Callable[[Broker], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        engine = await EmbeddedEngine.open(directory, LogSettings())
        broker = Broker(engine)
        await check(broker)
        broker.close()
        await engine.close()

    asyncio.run(all_of_it())


async def until(state: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not state():
            await asyncio.sleep(0.001)


@MAKES
def test_the_answer_comes_when_it_is_saved(
    tmp_path: Path, makes: Subscribe | Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[str] = []
    save = StateDatabase.save

    def saving(state: StateDatabase, *what: Any) -> None:
        save(state, *what)
        cursors, _, queues, synced = what
        assert synced
        saved.extend([*cursors, *queues])

    async def check(broker: Broker) -> None:
        monkeypatch.setattr(StateDatabase, "save", saving)
        client, publisher = Waiting(broker), Waiting(broker)
        client.peer.handle(makes)
        assert client.paused == {SAVING}
        publisher.publish("a", b"1")
        assert not client.answers
        await until(lambda: bool(client.answers))
        assert saved in (["name"], ["test/q"])
        assert client.answers == [b"yes"] and not client.paused
        broker.engine.hurry()
        await until(lambda: bool(client.delivered))
        assert [payload for _, payload, _ in client.delivered] == [b"1"]
        monkeypatch.undo()

    run(tmp_path, check)


@MAKES
def test_what_is_known_need_not_be_saved(tmp_path: Path, makes: Subscribe | Consume) -> None:
    async def check(broker: Broker) -> None:
        first = Waiting(broker)
        first.peer.handle(makes)
        await until(lambda: bool(first.answers))
        first.leave()
        second = Waiting(broker)
        second.peer.handle(makes)
        assert second.answers == [b"yes"]

    run(tmp_path, check)


@MAKES
def test_whoever_cannot_have_it_saved_is_told(
    tmp_path: Path, makes: Subscribe | Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(notes: EmbeddedNotes) -> None:
        raise LogUnavailable("positions cannot be saved: the disk is full")

    async def check(broker: Broker) -> None:
        monkeypatch.setattr(EmbeddedNotes, "flush", fail)
        client = Waiting(broker)
        client.peer.handle(makes)
        await until(lambda: client.closed)
        assert not client.answers and not client.paused
        monkeypatch.undo()

    run(tmp_path, check)


def test_many_are_saved_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes = []
    flush = EmbeddedNotes.flush

    async def counted(notes: EmbeddedNotes) -> None:
        flushes.append(1)
        await flush(notes)

    async def check(broker: Broker) -> None:
        monkeypatch.setattr(EmbeddedNotes, "flush", counted)
        clients = [Waiting(broker) for _ in range(100)]
        for number, client in enumerate(clients):
            spec = QueueSpec(f"test/{number}", (TOPIC,))
            client.peer.handle(Consume(KEY, spec, answer=b"yes"))
        await until(lambda: all(client.answers for client in clients))
        assert len(flushes) == 1
        monkeypatch.undo()

    run(tmp_path, check)
