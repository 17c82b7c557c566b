"""Alerts: each appears when something is wrong, and goes away when it is not any more.

Most of it with a real broker, asked over HTTP as its console does it. What takes a quarter of an
hour there is tried with other thresholds.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.admin.alerts import Alerts, Thresholds
from headwater.admin.loop import LoopWatch
from headwater.admin.queues import QueueHandlers
from headwater.admin.topics import TopicHandlers
from headwater.broker.broker import Broker
from headwater.client import PrismClient
from headwater.commands import Subscribe
from headwater.control import call
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.protocols.psmb import codec as psmb
from headwater.queue_spec import QueueSpec
from headwater.transport.tcp import Bounds, Connections
from tests.broker.client import Client, settle
from tests.console.stand import client_of, console_of
from tests.e2e.disk import small_disk
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET, BrokerProcess, Wire, eventually

SLOW = Thresholds().slow_offsets


class Eye:
    """Looks at the overview of a broker through the API."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def alerts(self) -> dict[str, dict[str, Any]]:
        response = self._client.get("/api/v1/overview")
        assert response.status_code == 200, response.text
        return {each["kind"]: each for each in response.json()["alerts"]}

    def sees(self, kind: str) -> dict[str, Any]:
        """The alert, as soon as it is there."""
        for _ in eventually():
            if (found := self.alerts().get(kind)) is not None:
                return found
        raise AssertionError

    def sees_no(self, kind: str) -> None:
        for _ in eventually():
            if kind not in self.alerts():
                return


@contextmanager
def watched(
    data: Path, toml: str = ALL_FIVE, **settings: str
) -> Iterator[tuple[BrokerProcess, Eye]]:
    with console_of(data, toml, **settings) as broker, client_of(broker) as client:
        eye = Eye(client)
        assert eye.alerts() == {}
        yield broker, eye
        assert "Traceback" not in broker.log


def lazy_subscriber(broker: BrokerProcess, topic: str) -> Wire:
    """A PSMB client that reads when it is told to, with little room for what it has not read."""
    wire = broker.psmb()
    wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    wire.send(psmb.PsmbClientSession.hello(2) + psmb.PsmbClientSession.subscribe(topic, None))
    wire.expect(b"OK\0\0\0\0\0OK\0")
    return wire


def flood(broker: BrokerProcess, topic: str, count: int, size: int) -> None:
    publisher = broker.publisher(topic)
    for _ in range(count // 1000):
        publisher.messages(*[os.urandom(size) for _ in range(1000)])


def test_a_subscriber_that_does_not_read_is_slow_until_it_does(tmp_path: Path) -> None:
    little = {"HEADWATER_LIMITS_OUTPUT_BUFFER_BYTES": "64KiB"}
    with watched(tmp_path / "data", **little) as (broker, eye):
        lazy = lazy_subscriber(broker, "flood")
        reads = broker.subscriber("other")
        total = SLOW + 60_000
        began = time.time()
        flood(broker, "flood", total, 100)
        alert = eye.sees("slow")
        assert alert["severity"] == "warning"
        assert alert["message"] == "a subscriber is 100,000 messages or more behind"
        assert int(began * 1e6) <= alert["since"] <= time.time() * 1e6
        # The broker looks again, and the console does not answer with what it has kept: it is the
        # same alert, not a new one.
        again = call(broker.data, "overview")["alerts"]
        assert [each["since"] for each in again if each["kind"] == "slow"] == [alert["since"]]
        for _ in range(total):
            lazy.message()
        eye.sees_no("slow")
        reads.close()


def test_messages_that_retention_took_from_a_subscriber(tmp_path: Path) -> None:
    settings = {
        "HEADWATER_LOG_SEGMENT_BYTES": "1MiB",
        "HEADWATER_LOG_RETENTION_BYTES": "4MiB",
        "HEADWATER_LIMITS_OUTPUT_BUFFER_BYTES": "64KiB",
    }
    with watched(tmp_path / "data", **settings) as (broker, eye):
        lazy = lazy_subscriber(broker, "flood")
        flood(broker, "flood", 48_000, 1000)
        broker.publisher("flood").messages(b"end")
        for _ in eventually():  # until retention has dropped all that it will
            if call(broker.data, "log.show")["bytes"] <= 4 << 20:
                break
        assert "gap" not in eye.alerts()  # nobody has missed anything before reading on
        got = 1
        while lazy.message() != b"end":
            got += 1
        missed = 48_001 - got
        assert missed > 0
        assert eye.sees("gap")["message"] == (
            f"retention took up to {missed:,} messages before a subscriber or a queue got them,"
            " since the broker started"
        )


def test_dead_letters_until_they_are_redriven_or_purged(tmp_path: Path) -> None:
    toml = f"[prism]\nack_seconds = 0.1\nmax_deliveries = 1\n{ALL_FIVE}"
    with watched(tmp_path / "data", toml) as (broker, eye):

        async def poison(count: int) -> None:
            async with PrismClient(
                "127.0.0.1", broker.ports["prism"], app=APP, secret=SECRET
            ) as client:
                await client.subscribe()
                await client.publish("order/new", *[b"bad"] * count)
                while call(broker.data, "queue.show", name=f"{APP}/default")["dead"] < count:
                    await asyncio.sleep(0.05)

        asyncio.run(asyncio.wait_for(poison(3), PATIENCE))
        assert eye.sees("dead")["message"] == f"3 dead letters in prism/{APP}/default"
        for _ in eventually():  # what is put back must not go to the one that has just left
            if call(broker.data, "queue.show", name=f"{APP}/default")["consumers"] == 0:
                break
        call(broker.data, "queue.redrive", name=f"{APP}/default", limit=2)
        for _ in eventually():
            if eye.sees("dead")["message"] == f"1 dead letter in prism/{APP}/default":
                break
        call(broker.data, "queue.purge", name=f"{APP}/default")
        eye.sees_no("dead")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 16, "the rule itself is tested below") as made:
        yield made


def test_a_disk_that_is_nearly_full_and_then_full(disk: Path) -> None:
    with watched(disk / "data") as (broker, eye):
        room = os.statvfs(disk)
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - (1 << 19)))
        alert = eye.sees("disk")
        assert (alert["severity"], alert["message"]) == ("warning", "the disk has 0 MiB left")
        assert "log" not in eye.alerts()
        wire = broker.bpsp()
        while wire.publish("t", os.urandom(50_000)) == 200:
            pass
        alert = eye.sees("log")
        assert alert["severity"] == "critical"
        assert alert["message"] == "the log cannot be written: the disk is full"
        ballast.unlink()
        eye.sees_no("log")
        eye.sees_no("disk")
        assert wire.publish("t", b"after") == 200


def test_a_default_queue_that_nobody_consumes(tmp_path: Path) -> None:
    name, soon = f"prism/{APP}/default", {"HEADWATER_PRISM_DEFAULT_BACKLOG_AGE": "1s"}
    with watched(tmp_path / "data", **soon) as (broker, eye):
        broker.publisher("order/new").messages(b"1", b"2", b"3")
        for _ in eventually():  # they may go one by one
            shown = call(broker.data, "queue.show", name=name)
            if shown["dropped"] == 3:
                break
        assert (shown["waiting"], shown["backlog_seconds"]) == (0, 1.0)
        late = "that nobody consumed in time, since the broker started"
        for _ in eventually():
            alert = eye.sees("dropped")
            if alert["message"] == f"{name} dropped 3 messages {late}":
                break
        assert alert["severity"] == "warning"
        assert f"queue {name}: " in broker.log and "were dropped" in broker.log
        sample = f'headwater_queue_dropped_total{{protocol="prism",queue="{name}"}} 3.0'
        with client_of(broker) as client:
            for _ in eventually():
                if sample in client.get("/metrics").text.splitlines():
                    break


GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "size", "nearly_full"),
    [
        (2 * GIB, 1000 * GIB, False),
        (GIB - 1, 1000 * GIB, True),
        (GIB // 2, 2 * GIB, False),
        (GIB // 20, 2 * GIB, True),
        (0, GIB, True),
        (0, 0, False),  # a file system that does not tell its size
    ],
)
def test_when_a_disk_is_nearly_full(free: int, size: int, nearly_full: bool) -> None:
    assert Thresholds().is_nearly_full(free, size) is nearly_full


# With other thresholds, in this process

# However full this machine is.
QUIET = Thresholds(free_bytes=0)


class Lazy(Client):
    """Takes nothing until it is awake."""

    awake = False

    def deliver(self, batch: Any, subscriptions: Any) -> int:
        return super().deliver(batch, subscriptions) if self.awake else 0

    def listen(self, topic: str, name: str) -> None:
        self.peer.handle(Subscribe(("", topic), LevelFilter.exact(topic), durable=name))


Test = Callable[[Broker, Callable[[], list[dict[str, Any]]]], Coroutine[Any, Any, None]]
#: Counts the messages of queues, and says which alerts there are.
Look = Callable[[], Coroutine[Any, Any, list[dict[str, Any]]]]


def with_fresh_alerts(
    directory: Path,
    thresholds: Thresholds,
    test: Callable[[Broker, Look], Coroutine[Any, Any, None]],
) -> None:
    async def main() -> None:
        engine = await EmbeddedEngine.open(directory, LogSettings())
        broker = Broker(engine)

        async def look() -> list[dict[str, Any]]:
            queues = QueueHandlers(broker, lambda name: None, TopicHandlers(broker))
            await queues.refresh()
            connections = Connections(Bounds(), broker.join)
            return Alerts(
                broker=broker,
                connections=connections,
                queues=queues,
                loop=LoopWatch(broker, connections),
                data=directory,
                thresholds=thresholds,
            ).current()

        try:
            await test(broker, look)
        finally:
            broker.close()
            await engine.close()

    asyncio.run(main())


def with_alerts(directory: Path, settings: LogSettings, thresholds: Thresholds, test: Test) -> None:
    async def main() -> None:
        engine = await EmbeddedEngine.open(directory, settings)
        broker = Broker(engine)
        queues = QueueHandlers(broker, lambda name: None, TopicHandlers(broker))
        connections = Connections(Bounds(), broker.join)
        alerts = Alerts(
            broker=broker,
            connections=connections,
            queues=queues,
            loop=LoopWatch(broker, connections),
            data=directory,
            thresholds=thresholds,
        )
        try:
            await test(broker, alerts.current)
        finally:
            broker.close()
            await engine.close()

    asyncio.run(main())


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not so():
            await asyncio.sleep(0.02)


def test_a_gap_is_old_news_some_day(tmp_path: Path) -> None:
    async def test(broker: Broker, current: Callable[[], list[dict[str, Any]]]) -> None:
        lazy, publisher = Lazy(broker), Client(broker)
        lazy.listen("t", "lazy")
        for _ in range(40):  # more than is kept in memory and by retention
            publisher.publish("t", *[os.urandom(1 << 16)] * 16)
            await asyncio.sleep(0)
        await until(lambda: broker.engine.start > 0)
        assert current() == []
        lazy.awake = True
        lazy.peer.drained()
        await until(lambda: [each["kind"] for each in current()] == ["gap"])
        await until(lambda: current() == [])

    settings = LogSettings(segment_bytes=1 << 20, retention_bytes=1 << 20)
    # It has to be seen while it is news.
    with_alerts(tmp_path, settings, replace(QUIET, gap_seconds=5.0), test)


def test_since_begins_anew_when_it_comes_back(tmp_path: Path) -> None:
    async def test(broker: Broker, current: Callable[[], list[dict[str, Any]]]) -> None:
        publisher = Client(broker)

        def fall_behind(name: str) -> Lazy:
            lazy = Lazy(broker)
            lazy.listen("t", name)
            publisher.publish("t", *[b"x"] * 3)
            return lazy

        first = fall_behind("first")
        await until(lambda: bool(current()))
        (alert,) = current()
        assert alert["message"] == "a subscriber is 2 messages or more behind"
        second = fall_behind("second")
        await until(lambda: current()[0]["message"].startswith("2 subscribers are 2"))
        assert current()[0]["since"] == alert["since"]
        first.leave()
        second.leave()
        assert current() == []
        third = fall_behind("third")
        await until(lambda: bool(current()))
        assert current()[0]["since"] > alert["since"]
        third.leave()

    with_alerts(tmp_path, LogSettings(), replace(QUIET, slow_offsets=2), test)


UNCONSUMED = QueueSpec("test/q", (LevelFilter.exact("t"),), backlog_seconds=3600.0)


@pytest.mark.parametrize(
    "thresholds",
    [
        replace(QUIET, backlog_messages=3),
        replace(QUIET, backlog_seconds=0.0),
    ],
)
def test_a_backlog_that_nobody_consumes(tmp_path: Path, thresholds: Thresholds) -> None:
    async def test(broker: Broker, alerts: Look) -> None:
        broker.queue(UNCONSUMED)
        assert await alerts() == []
        client = Client(broker)
        client.publish("t", b"1", b"2", b"3")
        await settle(broker)
        (alert,) = await alerts()
        assert (alert["severity"], alert["kind"]) == ("warning", "backlog")
        assert alert["message"] == "nobody consumes test/q: 3 messages waiting"
        client.consume(UNCONSUMED)
        assert await alerts() == []
        client.leave()  # they are returned, not waiting for their first delivery
        assert await alerts() == []

    with_fresh_alerts(tmp_path, thresholds, test)


DAY = 86400.0


@pytest.mark.parametrize(
    ("messages", "age", "limit", "backlog"),
    [
        (0, 9 * DAY, None, False),
        (1, DAY - 1, None, False),
        (1, DAY, None, True),
        (99_999, 60.0, None, False),
        (100_000, 60.0, None, True),
        (1, DAY, 7 * DAY, True),
        (1, 1799.0, 3600.0, False),
        (1, 1800.0, 3600.0, True),  # half an hour before it is dropped
    ],
)
def test_when_messages_wait_too_long(
    messages: int, age: float, limit: float | None, backlog: bool
) -> None:
    assert Thresholds().is_backlog(messages, age, limit) is backlog


def test_a_data_directory_that_is_gone(tmp_path: Path) -> None:
    async def test(broker: Broker, current: Callable[[], list[dict[str, Any]]]) -> None:
        assert current() == []
        (tmp_path / "data").rename(tmp_path / "elsewhere")
        (alert,) = current()
        assert (alert["severity"], alert["kind"]) == ("critical", "disk")
        assert alert["message"] == "the data directory is gone: No such file or directory"
        (tmp_path / "elsewhere").rename(tmp_path / "data")
        assert current() == []

    with_alerts(tmp_path / "data", LogSettings(), QUIET, test)


def test_a_state_that_did_not_fit_is_told_for_a_while(tmp_path: Path) -> None:
    async def publish(broker: Broker, current: Callable[[], list[dict[str, Any]]]) -> None:
        Client(broker).publish("t", b"something")
        assert current() == []

    async def look(broker: Broker, current: Callable[[], list[dict[str, Any]]]) -> None:
        (alert,) = current()
        assert (alert["kind"], alert["severity"]) == ("state", "warning")
        assert alert["message"].startswith("state.db is missing or empty")

    async def look_later(broker: Broker, current: Callable[[], list[dict[str, Any]]]) -> None:
        assert current() == []

    ample = Thresholds(free_bytes=0)
    with_alerts(tmp_path, LogSettings(), ample, publish)
    (tmp_path / "state.db").unlink()
    with_alerts(tmp_path, LogSettings(), ample, look)
    (tmp_path / "state.db").unlink()
    with_alerts(tmp_path, LogSettings(), replace(ample, gap_seconds=0.0), look_later)
