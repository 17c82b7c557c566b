"""What turns measure: what a connection costs, why it is slowed, how long a turn is."""

import asyncio
from pathlib import Path

import pytest

from headwater.slowing import COST, MEMORY
from headwater.transport.connection import Connection
from headwater.transport.tcp import Bounds
from tests.transport.stand import BpspWire, TurnStand, run, until

LARGE = 1024 * 1024


def served(stand: TurnStand, client: BpspWire) -> Connection:
    port = client.socket.getsockname()[1]
    return next(
        each for each in stand.connections.open.values() if each.address.endswith(f":{port}")
    )


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_who_costs_much_has_the_larger_part_and_waits(tmp_path: Path, loop: str) -> None:
    async def check(stand: TurnStand) -> None:
        flooder, quiet = await stand.client(), await stand.client()
        costly, cheap = served(stand, flooder), served(stand, quiet)
        flood = b"".join([flooder.session.subscribe(f"flood/{n}") for n in range(10_000)])
        sending = asyncio.create_task(flooder.send_all(flood))
        await until(lambda: costly.slowed.of(COST).now == 1)
        assert stand.connections.slowdowns.of(COST).now == 1
        quiet.send(quiet.publish("t", b"x", ack=True))
        await quiet.read_until(lambda wire: wire.answers == 2)
        await flooder.read_until(lambda wire: wire.answers == 10_001)
        await sending
        assert costly.meter.seconds > 10 * cheap.meter.seconds > 0
        assert not costly.slowed.now and costly.slowed.of(COST).times > 0
        assert costly.slowed.seconds > 0 and not cheap.slowed.by_reason

    run(tmp_path, check, loop)


def test_reasons_are_counted_and_end_with_the_connection(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        client = await stand.client()
        connection, everyone = served(stand, client), stand.connections.slowdowns
        for _ in range(2):
            connection.pause("one")
            connection.pause("one")
            connection.pause("two")
            connection.resume("one")
        assert (connection.slowed.of("one").times, connection.slowed.of("one").now) == (2, 0)
        assert (connection.slowed.of("two").times, connection.slowed.of("two").now) == (1, 1)
        assert COST not in connection.slowed.by_reason
        connection.transport.abort()
        await until(lambda: not stand.connections.open)
        assert (everyone.of("one").times, everyone.of("two").times) == (2, 1)
        assert not everyone.now

    run(tmp_path, check)


def test_who_waits_for_memory_is_slowed_for_that(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        first, second = await stand.client(), await stand.client()
        message = first.publish("t", bytes(LARGE), ack=True)
        await first.send_all(message[:-1])
        await until(lambda: stand.connections.input_ceiling.total == len(message))
        sending = asyncio.create_task(second.send_all(message))
        await until(lambda: served(stand, second).slowed.of(MEMORY).now == 1)
        assert not served(stand, first).slowed.now
        first.send(message[-1:])
        await second.read_until(lambda wire: wire.answers == 2)
        await sending
        assert not stand.connections.slowdowns.now

    run(tmp_path, check, bounds=Bounds(input_bytes=LARGE + LARGE // 2))


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_turns_are_counted_by_their_length(tmp_path: Path, loop: str) -> None:
    async def check(stand: TurnStand) -> None:
        lengths = stand.connections.turn.lengths
        client = await stand.client()
        before, seconds = sum(lengths.counts), lengths.seconds
        for _ in range(10):
            client.answers = 0
            client.send(client.publish("t", b"x", ack=True))
            await client.read_until(lambda wire: wire.answers == 1)
        assert sum(lengths.counts) - before >= 10
        assert lengths.seconds > seconds

    run(tmp_path, check, loop)
