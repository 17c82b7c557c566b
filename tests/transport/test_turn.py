"""Turns: what is written is gathered, who costs much waits, nothing is lost or reordered."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headwater.transport import connection, turn
from headwater.transport.turn import Flushable, Turn
from tests.transport.stand import TurnStand, run, until


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_what_a_turn_writes_to_a_client_goes_out_together(tmp_path: Path, loop: str) -> None:
    async def check(stand: TurnStand) -> None:
        subscriber = await stand.subscriber("t/*")
        publishers = [await stand.client() for _ in range(50)]
        writes = stand.connections.turn.writes
        for number, publisher in enumerate(publishers):
            publisher.send(publisher.publish(f"t/{number}", b"x"))
        await subscriber.read_until(lambda wire: len(wire.delivered) == 50)
        # One or a few: the kernel may have had only some of them ready.
        assert stand.connections.turn.writes - writes <= 5

    run(tmp_path, check, loop)


def test_answers_of_one_commit_go_out_together(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        publisher = await stand.client()
        writes = stand.connections.turn.writes
        topics = [f"t/{number % 7}" for number in range(70)]
        publisher.send(b"".join([publisher.publish(topic, b"x", ack=True) for topic in topics]))
        await publisher.read_until(lambda wire: wire.answers == 71)
        assert stand.connections.turn.writes - writes <= 5

    run(tmp_path, check)


def test_others_have_their_turn_during_a_flood(tmp_path: Path) -> None:
    """A flood of subscriptions takes long; a client that comes later is answered meanwhile."""

    async def check(stand: TurnStand) -> None:
        flooder, other = await stand.client(), await stand.client()
        flood = b"".join([flooder.session.subscribe(f"flood/{n}") for n in range(20_000)])
        sending = asyncio.create_task(flooder.send_all(flood))
        await until(lambda: stand.broker.subscriptions > 0)
        other.send(other.publish("t", b"x", ack=True))
        await other.read_until(lambda wire: wire.answers == 2)
        assert stand.broker.subscriptions < 20_000
        await flooder.read_until(lambda wire: wire.answers == 20_001)
        await sending
        assert stand.broker.subscriptions == 20_000

    run(tmp_path, check)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_what_is_worked_off_in_slices_keeps_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.0)  # every command is a slice of its own

    async def check(stand: TurnStand) -> None:
        subscriber, publisher = await stand.subscriber("t/*"), await stand.client()
        sent = [(f"t/{number % 13}", b"%d" % number) for number in range(3_000)]
        data = b"".join([publisher.publish(topic, payload, ack=True) for topic, payload in sent])
        sending = asyncio.create_task(publisher.send_all(data))
        await subscriber.read_until(lambda wire: len(wire.delivered) == 3_000)
        await publisher.read_until(lambda wire: wire.answers == 3_001)
        await sending
        assert subscriber.delivered == sent

    run(tmp_path, check, loop)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_publisher_that_hangs_up_had_all_it_sent_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.0)

    async def check(stand: TurnStand) -> None:
        subscriber, publisher = await stand.subscriber("t/*"), await stand.client()
        sent = [(f"t/{number % 13}", b"%d" % number) for number in range(500)]
        publisher.send(b"".join([publisher.publish(topic, payload) for topic, payload in sent]))
        publisher.socket.close()
        await subscriber.read_until(lambda wire: len(wire.delivered) == 500)
        assert subscriber.delivered == sent
        await until(lambda: len(stand.connections.open) == 1)

    run(tmp_path, check, loop)


def test_a_reset_does_not_undo_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is gone before its commands are carried out, with an error."""
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.0)

    async def check(stand: TurnStand) -> None:
        publisher = await stand.client()
        sent = b"".join([publisher.publish(f"t/{number % 13}", b"x") for number in range(500)])
        publisher.send(sent)
        (served,) = stand.connections.open.values()
        await until(lambda: stand.engine.end > 0)
        served.transport.abort()
        await until(lambda: not stand.connections.open)
        assert stand.engine.end == 500

    run(tmp_path, check)


@pytest.mark.plain
def test_an_error_ends_one_connection_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SLICE_SECONDS", 0.0)

    async def check(stand: TurnStand) -> None:
        bad, good = await stand.client(), await stand.client()
        (served, _) = stand.connections.open.values()
        handle, handled = served.peer.handle, 0

        def fail_at_third(command: Any) -> None:
            nonlocal handled
            handled += 1
            if handled == 3:
                raise RuntimeError("a bug")
            handle(command)

        monkeypatch.setattr(served.peer, "handle", fail_at_third)
        bad.send(b"".join([bad.publish(f"t/{number}", b"x") for number in range(5)]))
        good.send(b"".join([good.publish(f"t/{n}", b"x", ack=True) for n in range(5)]))
        await good.read_until(lambda wire: wire.answers == 6)
        await until(lambda: len(stand.connections.open) == 1)
        assert stand.engine.end == 7

    run(tmp_path, check)


def test_who_is_held_has_no_command_carried_out(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        client = await stand.client()
        (served,) = stand.connections.open.values()
        served.pause("a reason")
        client.send(client.publish("t", b"x", ack=True))
        other = await stand.client()
        other.send(other.publish("t", b"y", ack=True))
        await other.read_until(lambda wire: wire.answers == 2)
        assert stand.engine.end == 1
        served.resume("a reason")
        await client.read_until(lambda wire: wire.answers == 2)

    run(tmp_path, check)


class Sender:
    """Sends as fast as it is read from."""

    def __init__(self, number: int, order: list[int]) -> None:
        self._number, self._order = number, order

    def work(self) -> bool:
        return True

    def hold_back(self) -> None: ...

    def fail(self) -> None: ...

    def read_on(self) -> None:
        self._order.append(self._number)


def test_those_who_send_much_are_read_from_in_turns() -> None:
    async def check() -> None:
        shared, order = Turn(), list[int]()
        for number in range(2 * turn.READ_ON_AT_ONCE + 1):
            shared.rest(Sender(number, order))
        while (before := len(order)) < 2 * turn.READ_ON_AT_ONCE + 1:
            await asyncio.sleep(0)  # one turn at most
            assert len(order) - before <= turn.READ_ON_AT_ONCE
        assert order == list(range(len(order)))

    asyncio.run(check())


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_after_a_large_read_others_go_first(tmp_path: Path, loop: str) -> None:
    """Nothing is lost by it: large messages arrive whole and in order."""

    async def check(stand: TurnStand) -> None:
        subscriber, publisher = await stand.subscriber("t"), await stand.client()
        payloads = [bytes([number]) * 3_000_000 for number in range(5)]
        data = b"".join([publisher.publish("t", payload) for payload in payloads])
        sending = asyncio.create_task(publisher.send_all(data))
        await subscriber.read_until(lambda wire: len(wire.delivered) == 5)
        await sending
        assert [payload for _, payload in subscriber.delivered] == payloads

    run(tmp_path, check, loop)


def test_the_more_wait_the_less_one_may_have_cost() -> None:
    async def check() -> None:
        shared = Turn()
        assert not shared.is_too_much(-1.0)
        assert not shared.is_too_much(turn.BURST_SECONDS / 2)
        assert shared.is_too_much(turn.BURST_SECONDS * 2)
        for number in range(3):
            shared.wait(Sender(number, []))
        assert shared.is_too_much(turn.BURST_SECONDS / 2)
        assert not shared.is_too_much(turn.BURST_SECONDS / 8)
        assert not shared.is_too_much(0.0)

    asyncio.run(check())


def test_many_who_leave_at_once_leave_in_turns(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        clients = [await stand.subscriber(f"t/{number}") for number in range(100)]
        assert stand.broker.subscriptions == 100
        for client in clients:
            client.socket.close()
        await until(lambda: not stand.connections.open)
        assert stand.broker.subscriptions == 0

    run(tmp_path, check)


class Receiver(Flushable):
    """Is sent something."""

    def __init__(self, sent: list["Receiver"]) -> None:
        self._sent = sent

    def flush(self) -> None:
        self._sent.append(self)


def test_where_very_many_are_sent_something_the_first_do_not_wait_for_the_last() -> None:
    async def check() -> None:
        shared, sent = Turn(), list[Receiver]()
        receivers = [Receiver(sent) for _ in range(turn.SENT_AT_ONCE + 1)]
        for receiver in receivers[:-1]:
            shared.owe(receiver)
        assert sent == []
        shared.owe(receivers[-1])
        assert sent == receivers[:-1]
        while len(sent) < len(receivers):
            await asyncio.sleep(0)
        assert sent == receivers

    asyncio.run(check())
