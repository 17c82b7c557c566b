"""Messages that are stored exactly once although they come again, on a real log."""

import asyncio
from pathlib import Path

import pytest

from headwater.broker import broker as broker_module
from headwater.broker.broker import Broker
from headwater.broker.repeats import MOST_DECLINED, RepeatWindow, Resent, keys_of
from headwater.errors import LogUnavailable
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.log.embedded.notes import EmbeddedNotes
from headwater.message import EXACTLY_ONCE, Run
from tests.broker.client import Client
from tests.broker.queues.test_queue import broker_on, run, settle, until
from tests.engines.test_embedded import FailingDisk

KITCHEN, CELLAR = (("producer_id", "kitchen"),), (("producer_id", "cellar"),)


async def stored(broker: Broker) -> list[bytes]:
    await settle(broker)
    batches, _ = await broker.engine.read(0, lambda topic: True, 1 << 20)
    return [payload for batch in batches for payload in batch.run.payloads]


def test_repeats_inside_the_window_are_not_stored_but_answered(tmp_path: Path) -> None:
    async def first(broker: Broker) -> None:
        client = Client(broker)
        client.publish("a", b"1", b"2", once=[1, 2])
        client.publish("a", b"2", b"3", once=[3, 4], again=True)
        assert await stored(broker) == [b"1", b"2", b"3"]
        client.publish("a", b"1", b"2", b"3", once=[5, 3, 4], again=True)
        client.publish("b", b"1", once=[6], again=True)  # another topic: no repeat
        client.publish("a", b"1", once=[7])  # says that it is none
        assert await stored(broker) == [b"1", b"2", b"3", b"1", b"1"]
        assert b"".join(client.answers) == b"OK" * 9

    async def after_a_restart(broker: Broker) -> None:
        client = Client(broker)
        client.publish("a", b"3", b"4", once=[1, 2], again=True)
        await settle(broker)
        assert broker.engine.watermark == 6
        assert b"".join(client.answers) == b"OKOK"

    run(tmp_path, first, after_a_restart)


def test_repeats_are_found_behind_what_a_start_has_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was killed before it had noted that there are such messages. Something else that
    the crash has interrupted is finished before the log is searched for them."""
    monkeypatch.setattr(EmbeddedNotes, "save_number", lambda self, name, value: None)

    async def check() -> None:
        async with broker_on(tmp_path) as broker:
            Client(broker).publish("a", b"1", once=[1])
            assert await stored(broker) == [b"1"]
        engine = await EmbeddedEngine.open(tmp_path, LogSettings())
        broker = Broker(engine)
        monkeypatch.setattr(broker_module, "UNNOTED_MICROSECONDS", 0)
        Client(broker).publish("b", b"late")
        await settle(broker)
        await broker.recall()
        Client(broker).publish("a", b"1", once=[1], again=True)
        assert await stored(broker) == [b"1", b"late"]
        broker.close()
        await engine.close()

    asyncio.run(check())


def test_repeats_outside_the_window_are_stored(tmp_path: Path) -> None:
    async def check() -> None:
        async with broker_on(tmp_path, repeat_seconds=0.1) as broker:
            Client(broker).publish("a", b"1", once=[1])
            assert await stored(broker) == [b"1"]
            (key,) = keys_of(Run("a", [b"1"], protocol="", headers=(EXACTLY_ONCE,)))
            await until(lambda: not broker.repeats.count(key))  # forgotten by now
            Client(broker).publish("a", b"1", once=[1], again=True)
            assert await stored(broker) == [b"1", b"1"]

    asyncio.run(check())


def test_a_message_of_another_sender_is_no_repeat(tmp_path: Path) -> None:
    async def first(broker: Broker) -> None:
        client = Client(broker)
        client.publish("a", b"21.5", once=[1], headers=KITCHEN)
        client.publish("a", b"21.5", once=[2], headers=CELLAR, again=True)
        assert await stored(broker) == [b"21.5"] * 2

    async def after_a_restart(broker: Broker) -> None:
        client = Client(broker)
        for number, sender in enumerate((KITCHEN, CELLAR, ())):
            client.publish("a", b"21.5", once=[number], headers=sender, again=True)
        assert await stored(broker) == [b"21.5"] * 3

    run(tmp_path, first, after_a_restart)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("arrived", [0, 1, 2, 3])
@pytest.mark.parametrize("apart", [False, True])
def test_equal_messages_that_are_sent_again_are_all_stored(
    tmp_path: Path, arrived: int, restart: bool, apart: bool
) -> None:
    """A client has had no answer to three messages, and so many have arrived."""

    async def first(broker: Broker) -> None:
        client = Client(broker)
        for number in range(arrived):
            client.publish("a", b"21.5", once=[number])
        assert await stored(broker) == [b"21.5"] * arrived
        client.leave()
        if not restart:
            await second(broker)

    async def second(broker: Broker) -> None:
        client = Client(broker)
        for _ in range(2):  # under the same numbers they are the same messages
            if apart:
                for number in (7, 8, 9):
                    client.publish("a", b"21.5", once=[number], again=True)
                    await settle(broker)
            else:
                client.publish("a", *[b"21.5"] * 3, once=[7, 8, 9], again=True)
        assert await stored(broker) == [b"21.5"] * 3
        client.publish("a", b"21.5", once=[7])  # a new message has the number now
        client.publish("a", b"21.5", once=[5], again=True)  # so this may be the one that had it
        assert await stored(broker) == [b"21.5"] * 4

    if restart:
        run(tmp_path, first, second)
    else:
        run(tmp_path, first)


def test_a_message_that_was_refused_is_stored_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if an equal one was stored before."""

    async def check(broker: Broker) -> None:
        disk, client = FailingDisk(monkeypatch), Client(broker)
        client.publish("a", b"21.5", once=[1])
        assert await stored(broker) == [b"21.5"]
        disk.failures = 1
        client.publish("a", b"21.5", once=[2])  # refused when the disk fails
        await until(lambda: len(client.refused) == 1)
        client.publish("a", b"21.5", once=[3], again=True)  # refused at once
        assert len(client.refused) == 2
        await until(lambda: writable(broker))
        client.publish("a", b"21.5", once=[3], again=True)
        assert await stored(broker) == [b"21.5"] * 2
        client.publish("a", b"21.5", once=[3], again=True)
        assert await stored(broker) == [b"21.5"] * 2
        assert b"".join(client.answers) == b"OK" * 3

    run(tmp_path, check)


def writable(broker: Broker) -> bool:
    try:
        broker.engine.check_writable()
    except LogUnavailable:
        return False
    return True


def test_what_was_not_stored_is_not_remembered() -> None:
    window = RepeatWindow(60.0, lambda: 0.0)
    window.remember([1, 2], 0, durable=0)
    window.remember([1], 2, durable=2)
    window.remember([3, 3], 3, durable=2)
    window.rewind(3)
    assert [window.count(key) for key in (1, 2, 3)] == [2, 1, 0]
    window.rewind(2)
    assert [window.count(key) for key in (1, 2, 3)] == [1, 1, 0]
    window.rewind(0)  # it was durable
    assert [window.count(key) for key in (1, 2, 3)] == [1, 1, 0]


def test_refusals_do_not_fill_the_memory() -> None:
    window = RepeatWindow(60.0, lambda: 0.0)
    resent = Resent(window)
    for key in range(3 * MOST_DECLINED):
        window.remember([key], key, durable=key)
        resent.decline([1], [key])
    remembered = [key for key in range(3 * MOST_DECLINED) if resent.add([1], [key])]
    assert 0 < len(remembered) <= MOST_DECLINED + 1
    assert remembered[-1] == 3 * MOST_DECLINED - 1
