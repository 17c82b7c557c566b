"""Who writes over Flight faster than it may waits, in its own thread."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import Refusal
from headwater.slowing import RATE
from tests.broker.client import Client
from tests.flight.client import rows
from tests.flight.stand import FlightStand, caller_of, rights_of, standing

ALICE = caller_of("alice")


def batches(count: int, size: int = 10) -> Iterator[Any]:
    return iter([rows(*[("a", b"x" * 10)] * size)] * count)


async def slowed(stand: FlightStand, work: "asyncio.Future[Any]") -> None:
    while not stand.slowdowns.of(RATE).now:
        assert not work.done()
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "quotas",
    [
        {"messages_per_second_per_user": 100},
        {"bytes_per_second_per_user": 1000},
        {"messages_per_second": 100},
        {"bytes_per_second": 1000},
    ],
)
def test_a_fast_writer_is_slowed_and_loses_nothing(
    tmp_path: Path, quotas: dict[str, float]
) -> None:
    async def check() -> None:
        async with standing(tmp_path, **quotas) as stand:
            began = time.monotonic()
            # 100 at once; each further 10 take a tenth of a second, and nobody waits for the last.
            assert (await stand.stage(ALICE, 1, batches(16)))["rows"] == 160
            assert time.monotonic() - began >= 0.45
            slowdown = stand.slowdowns.of(RATE)
            assert slowdown.times > 0
            while slowdown.now:
                await asyncio.sleep(0.005)

    asyncio.run(check())


@pytest.mark.parametrize("quota", ["messages_per_second_per_user", "messages_per_second"])
def test_what_one_call_owes_the_next_one_waits_for(tmp_path: Path, quota: str) -> None:
    async def check() -> None:
        async with standing(tmp_path, **{quota: 0.01}) as stand:
            await stand.stage(ALICE, 1, batches(1))  # who was slow before may be fast
            waiting = asyncio.ensure_future(stand.stage(ALICE, 2, batches(1)))
            await slowed(stand, waiting)
            # Others do not wait for it.
            await stand.stage(caller_of("bob", 5001), 1, batches(1))
            stand.service.refuse()
            with pytest.raises(Refusal, match="shutting down"):
                await waiting

    asyncio.run(check())


def test_publishing_and_writing_have_one_rate_for_a_user(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, messages_per_second_per_user=0.01) as stand:
            await stand.stage(ALICE, 1, batches(1))
            client = Client(stand.broker, rights=rights_of("alice"))
            client.publish("a", b"x")
            assert client.paused == {RATE}
            # The owner of the broker has no account, and no limits for users.
            await stand.stage(caller_of(""), 1, batches(3))
            await stand.stage(caller_of(""), 2, batches(3))
            assert not stand.slowdowns.of(RATE).times

    asyncio.run(check())


def test_another_connection_of_a_user_has_a_rate_of_its_own(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, messages_per_second=0.01) as stand:
            for port in range(5000, 5005):
                await stand.stage(caller_of("alice", port), port, batches(1))
            assert not stand.slowdowns.of(RATE).times

    asyncio.run(check())


def test_nobody_waits_for_a_user_that_is_removed(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, messages_per_second=0.01) as stand:
            alice = caller_of("alice")
            waiting = asyncio.ensure_future(stand.stage(alice, 1, batches(2)))
            await slowed(stand, waiting)
            alice.rights.end()
            with pytest.raises(Refusal, match="user:alice is not known any more"):
                await waiting

    asyncio.run(check())


def test_nobody_waits_for_a_client_that_has_gone(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, messages_per_second=0.01) as stand:
            with pytest.raises(Refusal, match="the client has gone"):
                await stand.stage(caller_of("alice", gone=True), 1, batches(2))
            assert not list((tmp_path / "stages").rglob("*.arrow"))

    asyncio.run(check())
