"""What is written over Flight is on the account of its user, as what is published is."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.broker.quotas import OverQuota
from headwater.errors import OVER_LIMITS, Refusal
from headwater.flight import requests
from headwater.flight.requests import HEADERS, WRITE_SCHEMA
from headwater.flight.rows import runs_of
from headwater.flight.stages import Stages
from tests.broker.client import Client, settle
from tests.flight.client import rows
from tests.flight.stand import FlightStand, caller_of, rights_of, standing

ALICE = caller_of("alice")


def batch(*topics: str, size: int = 1) -> Any:
    return rows(*[(topic, b"x" * size) for topic in topics])


def stored(stand: FlightStand) -> int:
    account = stand.broker.accounts.of(ALICE.rights)
    assert account is not None
    return account.stored


def staged(data: Path) -> list[Path]:
    return list((data / "stages").rglob("*.arrow"))


def test_a_batch_without_room_is_refused_as_a_whole(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, stored_bytes_per_user=2000) as stand:
            before = OVER_LIMITS["stored_bytes_per_user"]
            await stand.append(ALICE, 1, batch("a", "b", size=500))
            client = Client(stand.broker, rights=rights_of("alice"))
            client.publish("a", b"x" * 500)  # it is the same account
            assert stored(stand) == 1500
            sentence = r"user:alice may have 2000 bytes stored \(limits.stored_bytes_per_user\)"
            with pytest.raises(OverQuota, match=sentence):
                await stand.append(ALICE, 2, batch("a", "b", size=500))
            assert stand.broker.engine.end == 3
            assert not staged(tmp_path)
            assert OVER_LIMITS["stored_bytes_per_user"] == before + 1
            # What there is room for is taken, also under the number of what was refused.
            assert not (await stand.append(ALICE, 2, batch("a", size=500)))["repeated"]
            assert stored(stand) == 2000
            for other in (caller_of("bob"), caller_of("")):
                assert (await stand.append(other, 2, batch("a", size=1500)))["count"] == 1

    asyncio.run(check())


def test_all_topics_of_a_batch_are_counted_at_once(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, topics_per_user=3) as stand:
            before = OVER_LIMITS["topics_per_user"]
            await stand.append(ALICE, 1, batch("a", "b"))
            with pytest.raises(OverQuota, match="may have 3 topics"):
                await stand.append(ALICE, 2, batch("b", "c", "d"))
            await stand.append(ALICE, 2, batch("b", "c", "a"))
            client = Client(stand.broker, rights=rights_of("alice"))
            client.publish("d", b"x")
            assert OVER_LIMITS["topics_per_user"] == before + 2

    asyncio.run(check())


def test_a_refused_commit_can_be_made_again_and_its_rows_are_kept(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, stored_bytes_per_user=2000) as stand:
            await stand.stage(ALICE, 1, iter([batch("a", size=3000)]))
            with pytest.raises(OverQuota):
                await stand.commit(ALICE, 1)
            assert not Stages(tmp_path).intents()
            assert len(staged(tmp_path)) == 1
        async with standing(tmp_path, stored_bytes_per_user=4000) as stand:
            assert stand.broker.engine.end == 0  # nobody has finished it
            assert (await stand.commit(ALICE, 1))["count"] == 1

    asyncio.run(check())


def test_what_is_committed_already_is_neither_counted_nor_refused(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, stored_bytes_per_user=2000, topics_per_user=1) as stand:
            await stand.append(ALICE, 1, batch("a", size=2000))
            await stand.stage(ALICE, 1, iter([batch("a", size=0)]))
            await stand.commit(ALICE, 1)
            assert (await stand.append(ALICE, 1, batch("a", size=2000)))["repeated"]
            assert (await stand.commit(ALICE, 1))["repeated"]
            assert stored(stand) == 2000

    asyncio.run(check())


async def interrupt(stand: FlightStand, data: Path, visible: int) -> None:
    """Leave it as it is when so many rows of a batch of two are in the log at its end."""
    await stand.stage(ALICE, 1, iter([batch("a", "b", size=600)]))
    commit = requests.Commit("user:alice/q", 1, {"0": "x"})
    intent, _ = Stages(data).begin(commit, stand.broker.engine.end)
    runs = list(runs_of(Stages(data).rows(intent.files), intent.publisher))
    if visible:
        stand.broker.publish_all(stand.broker.prepare(runs[:visible]))


@pytest.mark.parametrize("visible", [0, 1])
def test_a_restart_finishes_what_was_begun_whatever_the_limits_say(
    tmp_path: Path, visible: int
) -> None:
    async def begin() -> None:
        async with standing(tmp_path) as stand:
            await interrupt(stand, tmp_path, visible)

    async def finish() -> None:
        async with standing(tmp_path, stored_bytes_per_user=1024, topics_per_user=1) as stand:
            assert not Stages(tmp_path).intents()
            assert stand.broker.engine.watermark == 2
            assert (await stand.commit(ALICE, 1))["repeated"]

    asyncio.run(begin())
    asyncio.run(finish())


def test_what_is_visible_in_part_becomes_so_as_a_whole(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, stored_bytes_per_user=1024, topics_per_user=1) as stand:
            await interrupt(stand, tmp_path, 1)
            await stand.append(ALICE, 1, batch("b", size=600))  # meanwhile
            assert (await stand.commit(ALICE, 1))["count"] == 2
            assert stored(stand) == 1200

    asyncio.run(check())


def test_a_commit_that_has_left_nothing_in_the_log_is_refused_as_others_are(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path, stored_bytes_per_user=1024) as stand:
            await interrupt(stand, tmp_path, 0)
            with pytest.raises(OverQuota):
                await stand.commit(ALICE, 1)
            assert not Stages(tmp_path).intents()
            assert stand.broker.engine.end == 0

    asyncio.run(check())


def test_a_batch_whose_times_make_no_sense_leaves_no_intent(tmp_path: Path) -> None:
    async def check() -> None:
        async with standing(tmp_path) as stand:
            bad = rows(("a", b"x")).set_column(
                2, WRITE_SCHEMA.field("headers"), pa.array([[("deliver-after", "soon")]], HEADERS)
            )
            with pytest.raises(Refusal, match="deliver-after"):
                await stand.append(ALICE, 1, bad)
            assert not Stages(tmp_path).intents()
            assert (await stand.append(ALICE, 1, batch("a")))["count"] == 1

    asyncio.run(check())


def test_others_publish_while_a_large_batch_is_appended(tmp_path: Path) -> None:
    """They are not held up, and what they publish comes between its rows."""

    async def check() -> None:
        async with standing(tmp_path) as stand:
            part = rows(*[("a", bytes(1 << 20))] * 16)
            await stand.stage(ALICE, 1, iter([part, part]))
            client, engine = Client(stand.broker), stand.broker.engine
            committing = asyncio.create_task(stand.commit(ALICE, 1))
            while not committing.done():
                client.publish("b", b"x")
                await settle(stand.broker)
                assert not engine.congested
            done = await committing
            assert done["count"] == 32
            batches, _ = await engine.read(done["first"], lambda topic: True, 64 << 20)
            topics = [batch.run.topic for batch in batches]
            last = max(at for at, topic in enumerate(topics) if topic == "a")
            assert "b" in topics[:last]

    asyncio.run(check())
