"""What a user may use of the broker, and how fast it may publish."""

import asyncio
from pathlib import Path

import pytest

from headwater.broker.broker import Broker
from headwater.broker.quotas import Bucket, Quotas, Share
from headwater.commands import Subscribe
from headwater.errors import OVER_LIMITS, Code, Refusal
from headwater.filters import LevelFilter, RegexFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.message import Run
from headwater.queue_spec import QueueSpec
from headwater.rights import Principal, Rights, Rule
from tests.broker.client import Client

EVERYTHING = frozenset(("publish", "subscribe", "history", "queues"))


def rights(name: str, who: str = "") -> Rights:
    return Rights(Principal("user", name, "mine"), [Rule(who or f"user:{name}", EVERYTHING, "*")])


async def settled(client: Client, answers: int) -> None:
    while len(client.answers) + len(client.refused) < answers:
        await asyncio.sleep(0.005)


def test_a_bucket() -> None:
    bucket = Bucket(10, now=0.0)
    assert bucket.take(10, now=0.0) == 0  # what it did not use before
    assert bucket.take(5, now=0.0) == pytest.approx(0.5)
    assert bucket.take(0, now=0.25) == pytest.approx(0.25)
    assert bucket.take(1, now=100.0) == 0
    assert bucket.take(10, now=100.0) == pytest.approx(0.1)


async def open_broker(data: Path, **quotas: int) -> Broker:
    engine = await EmbeddedEngine.open(data, LogSettings())
    return Broker(engine, quotas=Quotas(**quotas))


async def close(broker: Broker) -> None:
    broker.close()
    await broker.engine.close()


def test_topics_and_bytes_of_a_user_are_known_after_a_restart(tmp_path: Path) -> None:
    async def first() -> None:
        before = OVER_LIMITS["topics_per_user"]
        broker = await open_broker(tmp_path, topics_per_user=2, stored_bytes_per_user=2000)
        alice, bob = Client(broker, rights=rights("alice")), Client(broker, rights=rights("bob"))
        for topic in ("a", "b", "a", "c"):
            alice.publish(topic, b"x")
        bob.publish("c", b"x")
        await settled(alice, 4)
        await settled(bob, 1)
        assert (len(alice.answers), len(bob.answers)) == (3, 1)
        assert [error.code for error in alice.refused] == [Code.NO_SPACE]
        assert "limits.topics_per_user" in str(alice.refused[0])
        assert OVER_LIMITS["topics_per_user"] == before + 1
        await close(broker)

    async def second() -> None:
        broker = await open_broker(tmp_path, topics_per_user=2, stored_bytes_per_user=2000)
        alice = Client(broker, rights=rights("alice"))
        for topic, payload in (("c", b"x"), ("a", b"x" * 1500), ("b", b"x" * 1500)):
            alice.publish(topic, payload)
        await settled(alice, 3)
        assert len(alice.answers) == 1
        assert [str(error) for error in alice.refused] == [
            "user:alice may have 2 topics (limits.topics_per_user)",
            "user:alice may have 2000 bytes stored (limits.stored_bytes_per_user)",
        ]
        await close(broker)

    asyncio.run(first())
    asyncio.run(second())


def test_what_is_stored_in_one_step_is_refused_or_counted_as_a_whole(tmp_path: Path) -> None:
    async def check() -> None:
        broker = await open_broker(tmp_path, topics_per_user=2, stored_bytes_per_user=2000)
        account = broker.accounts.of(rights("alice"))
        assert account is not None

        def share(*topics: str, size: int = 1) -> Share:
            made = Share(broker.accounts.quotas)
            for topic in topics:
                made.add(Run(topic, [b"x" * size], protocol="test"))
            return made

        for much, limit in ((share("a", "b", "c"), "topics"), (share(*"ab", size=1001), "bytes")):
            with pytest.raises(Refusal, match=limit):
                account.check(much)
        all_of_it = share("a", "a", "b", size=600)
        account.check(all_of_it)
        account.published(all_of_it, 3)
        assert account.stored == 1800
        account.check(share("b", "a", size=100))
        with pytest.raises(Refusal, match="topics_per_user"):
            account.check(share("a", "c"))
        await close(broker)

    asyncio.run(check())


def test_what_the_log_could_not_keep_is_not_stored(tmp_path: Path) -> None:
    async def check() -> None:
        broker = await open_broker(tmp_path, stored_bytes_per_user=2000)
        alice = Client(broker, rights=rights("alice"))
        alice.publish("a", b"x" * 1500)
        await settled(alice, 1)
        account = broker.accounts.of(rights("alice"))
        assert account is not None
        account.published(account.share(Run("a", [b"x" * 400], protocol="test")), 2)
        assert account.stored == 1900
        broker.rewound(1)
        assert account.stored == 1500
        await close(broker)

    asyncio.run(check())


def test_connections_of_a_user(tmp_path: Path) -> None:
    async def check() -> None:
        broker = await open_broker(tmp_path, connections_per_user=2)
        first, _ = (Client(broker, rights=rights("alice")) for _ in range(2))
        with pytest.raises(Refusal, match=r"may have 2 connections \(limits.connections_per_user"):
            Client(broker, rights=rights("alice"))
        Client(broker, rights=rights("bob"))
        for _ in range(5):
            Client(broker)  # anonymous ones are bounded by their address
        first.leave()
        Client(broker, rights=rights("alice"))
        await close(broker)

    asyncio.run(check())


def test_subscriptions_and_patterns(tmp_path: Path) -> None:
    async def check() -> None:
        before = OVER_LIMITS["patterns"]
        broker = await open_broker(tmp_path, subscriptions=3, patterns=1)
        client = Client(broker)
        for number, wanted in enumerate(
            (RegexFilter.parse("a.*"), RegexFilter.parse("b.*"), *map(LevelFilter.exact, "xyz"))
        ):
            client.peer.handle(Subscribe((str(number), ""), wanted, b"OK"))
        assert client.answers == [b"OK"] * 3
        assert [str(error) for error in client.refused] == [
            "a client may have 1 patterns (limits.patterns)",
            "a client may have 3 subscriptions (limits.subscriptions)",
        ]
        # No protocol of ours lets one client have two patterns, so no socket shows it.
        assert OVER_LIMITS["patterns"] == before + 1
        await close(broker)

    asyncio.run(check())


def test_queues_belong_to_who_made_them(tmp_path: Path) -> None:
    spec = QueueSpec("q/x", (LevelFilter.exact("x"),))
    other = QueueSpec("q/y", (LevelFilter.exact("y"),))

    async def first() -> None:
        broker = await open_broker(tmp_path, queues_per_user=1)
        alice, bob = Client(broker, rights=rights("alice")), Client(broker, rights=rights("bob"))
        alice.consume(spec)
        bob.consume(spec)
        assert [str(error) for error in bob.refused] == ["the queue q/x belongs to user:alice"]
        alice.leave()
        again = Client(broker, rights=rights("alice"))
        again.consume(spec)
        assert not again.refused
        third = Client(broker, rights=rights("alice"))
        third.consume(other)
        assert "limits.queues_per_user" in str(third.refused[0])
        await close(broker)

    async def second() -> None:
        broker = await open_broker(tmp_path, queues_per_user=1)
        bob = Client(broker, rights=rights("bob"))
        bob.consume(spec)
        assert [str(error) for error in bob.refused] == ["the queue q/x belongs to user:alice"]
        alice = Client(broker, rights=rights("alice"))
        alice.consume(other)
        assert "limits.queues_per_user" in str(alice.refused[0])
        broker.forget_queue("q/x")
        another = Client(broker, rights=rights("bob"))
        another.consume(spec)
        assert not another.refused
        await close(broker)

    asyncio.run(first())
    asyncio.run(second())


def test_a_queue_of_a_role_is_shared_by_all_who_have_it(tmp_path: Path) -> None:
    async def check() -> None:
        broker = await open_broker(tmp_path)
        spec = QueueSpec("q/x", (LevelFilter.exact("x"),))
        clients = [Client(broker, rights=rights(name, "role:mine")) for name in ("alice", "bob")]
        for client in clients:
            client.consume(spec)
            assert not client.refused
        assert broker.owners.of("q/x") == "role:mine"
        stranger = Rights(Principal("user", "eve", "other"), [Rule("user:eve", EVERYTHING, "*")])
        eve = Client(broker, rights=stranger)
        eve.consume(spec)
        assert "belongs to role:mine" in str(eve.refused[0])
        await close(broker)

    asyncio.run(check())


def test_who_publishes_too_fast_is_not_read_from_for_a_while(tmp_path: Path) -> None:
    async def check() -> None:
        broker = await open_broker(tmp_path, messages_per_second=10, bytes_per_second_per_user=1000)
        alice, bob = Client(broker, rights=rights("alice")), Client(broker, rights=rights("bob"))
        alice.publish("a", *[b"x"] * 10)
        assert not alice.paused
        alice.publish("a", b"x")
        assert alice.paused == {"rate"}
        bob.publish("a", b"x" * 1005)
        assert bob.paused == {"rate"}
        while alice.paused or bob.paused:
            await asyncio.sleep(0.005)
        await settled(alice, 2)
        await settled(bob, 1)
        assert not alice.refused and not bob.refused
        await close(broker)

    asyncio.run(check())


def test_a_durable_name_belongs_to_whoever_uses_it(tmp_path: Path) -> None:
    async def check() -> None:
        broker = await open_broker(tmp_path)
        alice, bob = Client(broker, rights=rights("alice")), Client(broker, rights=rights("bob"))
        for client in (alice, bob):
            wanted = LevelFilter.exact("x")
            client.peer.handle(Subscribe(("x", ""), wanted, b"OK", durable="psmb/7/x"))
        assert not alice.closed and not bob.closed
        assert not alice.refused and not bob.refused
        again = Client(broker, rights=rights("alice"))
        again.peer.handle(Subscribe(("x", ""), wanted, b"OK", durable="psmb/7/x"))
        assert alice.closed and not bob.closed  # her own newer connection has taken over
        await close(broker)

    asyncio.run(check())
