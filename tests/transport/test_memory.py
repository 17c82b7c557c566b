"""What connections take of the memory, and give back."""

import asyncio
import gc
import weakref
from pathlib import Path

from headwater.protocols.bpsp.wire import TAG
from headwater.transport.outgoing import UNNOTICED_BYTES
from headwater.transport.tcp import Bounds
from tests.transport.stand import TurnStand, run, until

LARGE = 1024 * 1024


def test_who_leaves_gives_back_what_had_arrived(tmp_path: Path) -> None:
    """At once, without waiting for the collector."""

    async def check(stand: TurnStand) -> None:
        client = await stand.client()
        begun = client.publish("t", bytes(LARGE))[:-1]
        await client.send_all(begun)
        (served,) = stand.connections.open.values()
        meter = served.meter
        await until(lambda: meter.bytes_in > len(begun))
        session = weakref.ref(served.session)
        del served
        gc.disable()
        try:
            client.socket.close()
            await until(lambda: not stand.connections.open)
            assert session() is None
            assert stand.connections.input_ceiling.total == 0
        finally:
            gc.enable()

    run(tmp_path, check)


def test_large_messages_wait_for_each_other(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        first, second, small = [await stand.client() for _ in range(3)]
        message = first.publish("t", bytes(LARGE), ack=True)
        await first.send_all(message[:-1])
        ceiling = stand.connections.input_ceiling
        await until(lambda: ceiling.total == len(message))
        sending = asyncio.create_task(second.send_all(message))
        await until(lambda: ceiling.waiting == 1)
        small.send(small.publish("t", b"x", ack=True))
        await small.read_until(lambda wire: wire.answers == 2)
        assert ceiling.total == len(message)
        first.send(message[-1:])
        await first.read_until(lambda wire: wire.answers == 2)
        await second.read_until(lambda wire: wire.answers == 2)
        await sending
        assert (ceiling.total, ceiling.waiting) == (0, 0)

    run(tmp_path, check, bounds=Bounds(input_bytes=LARGE + LARGE // 2))


def test_a_message_that_does_not_go_on_ends_its_connection(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        client, other = await stand.client(), await stand.client()
        client.send(client.publish("t", b"x" * 100)[:-1])
        look = stand.connections
        served = next(iter(look.open.values()))
        await until(lambda: served.session.unfinished > 0)
        for _ in look.sample():
            ...
        assert len(look.open) == 2
        later = look.clock.time() + 31
        for each in list(look.open.values()):
            each.look_at_unfinished(later - 31)
            each.look_at_unfinished(later)
        await until(lambda: len(look.open) == 1)
        other.send(other.publish("t", b"x", ack=True))
        await other.read_until(lambda wire: wire.answers == 2)

    run(tmp_path, check)


def test_a_message_for_many_subscriptions_is_sent_as_there_is_room(tmp_path: Path) -> None:
    """Each of them gets it once, and nothing is built before there is room for it."""

    async def check(stand: TurnStand) -> None:
        subscriber, publisher = await stand.client(), await stand.client()
        for number in range(20):
            subscriber.send(subscriber.session.subscribe("t", f"tag{number}"))
        await subscriber.read_until(lambda wire: wire.answers == 21)
        served = next(iter(stand.connections.open.values()))
        sending = asyncio.create_task(publisher.send_all(publisher.publish("t", bytes(LARGE))))
        await until(lambda: stand.engine.end == 1)
        await sending
        buffered = served.transport.get_write_buffer_size()
        assert 0 < buffered < 4 * LARGE
        await subscriber.read_until(lambda wire: len(wire.delivered) == 20)
        tags = [dict(headers)[TAG] for headers in subscriber.headers]
        assert sorted(tags) == sorted(f"tag{number}" for number in range(20))
        publisher.send(publisher.publish("t", b"x"))
        await subscriber.read_until(lambda wire: len(wire.delivered) == 40)

    run(tmp_path, check, bounds=Bounds(output_buffer_bytes=LARGE))


def test_many_slow_readers_share_what_there_is(tmp_path: Path) -> None:
    async def check(stand: TurnStand) -> None:
        readers = [await stand.subscriber("t") for _ in range(8)]
        publisher = await stand.client()
        payload = bytes(UNNOTICED_BYTES)
        for _ in range(200):
            await publisher.send_all(publisher.publish("t", payload))
        await until(lambda: stand.engine.end == 200)
        served = list(stand.connections.open.values())
        buffered = sum(each.transport.get_write_buffer_size() for each in served)
        assert buffered <= 2 * LARGE + 8 * 2 * len(payload)
        for reader in readers:
            await reader.read_until(lambda wire: len(wire.delivered) == 200)

    run(tmp_path, check, bounds=Bounds(output_bytes=2 * LARGE))
