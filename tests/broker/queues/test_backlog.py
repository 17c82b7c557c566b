"""What waits too long in a queue that nobody consumes is dropped, counted, and nothing else is."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.broker.broker import Broker
from headwater.filters import LevelFilter
from headwater.log.embedded.engine import LogSettings
from headwater.queue_spec import QueueSpec
from tests.broker.client import Client
from tests.broker.queues.test_queue import offsets, run, settle, until

QUEUE = QueueSpec("test/limited", (LevelFilter.exact("a"),), prefetch=1, backlog_seconds=0.2)
PATIENT = replace(QUEUE, name="test/patient", backlog_seconds=3600.0)
DROPPED = (
    r"queue test/limited: (\d+) messages were dropped, because nobody has consumed them for 200ms"
)
UNLIMITED = replace(QUEUE, name="test/unlimited", backlog_seconds=None)


def test_messages_that_nobody_consumes_are_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(broker: Broker) -> None:
        queue, patient, unlimited = map(broker.queue, (QUEUE, PATIENT, UNLIMITED))
        client = Client(broker)
        client.publish("a", b"0", b"1")
        client.publish("b", b"2", b"3")  # not the queue's: they are not counted
        client.publish("a", b"4")
        await until(lambda: queue.dropped == 3)
        assert queue.position == 5 and queue.dropped_at > 0
        assert [each.position for each in (patient, unlimited)] == [0, 0]
        assert patient.dropped == unlimited.dropped == 0
        said = [re.fullmatch(DROPPED, each) for each in caplog.messages if "dropped" in each]
        assert sum(int(each[1]) for each in said if each) == 3  # in one line, or in several
        client.consume(QUEUE)
        client.publish("a", b"5")
        await settle(broker)
        assert offsets(client) == [5]

    async def after_a_restart(broker: Broker) -> None:
        queue = broker.queue(QUEUE)
        assert (queue.position, queue.to_repeat, queue.dropped) == (6, 1, 0)

    run(tmp_path, check, after_a_restart)


def test_nothing_is_dropped_while_someone_consumes(tmp_path: Path) -> None:
    other = replace(QUEUE, name="test/other")

    async def check(broker: Broker) -> None:
        consumed, dropping = broker.queue(QUEUE), broker.queue(other)
        client = Client(broker)
        client.consume(QUEUE)
        client.publish("a", b"0", b"1", b"2")
        await until(lambda: dropping.dropped == 3)  # the time of all of them is over
        await settle(broker)
        assert (consumed.dropped, consumed.position) == (0, 1)
        for offset in range(3):
            client.acknowledge(offset)
            await settle(broker)
        assert offsets(client) == [0, 1, 2]

    run(tmp_path, check)


def test_what_came_back_waits_on(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        queue, client = broker.queue(QUEUE), Client(broker)
        client.consume(QUEUE)
        client.publish("a", b"0", b"1")
        await settle(broker)
        client.leave()
        await until(lambda: queue.dropped == 1)
        assert queue.to_repeat == 1
        again = Client(broker)
        again.consume(QUEUE)
        await settle(broker)
        assert offsets(again) == [0]

    run(tmp_path, check)


def test_what_retention_took_is_a_gap_and_was_not_dropped(tmp_path: Path) -> None:
    async def check(broker: Broker) -> None:
        queue, client = broker.queue(PATIENT), Client(broker)
        for _ in range(40):
            client.publish("a", *[os.urandom(1 << 16) for _ in range(16)])
            await settle(broker)
        await until(lambda: broker.engine.start > 0)
        end = broker.engine.watermark
        left = queue.skip_to(end)  # from where on there was anything left to drop
        assert left == broker.gaps.count and left > 0
        assert queue.position == end and queue.skip_to(end) is None

    run(tmp_path, check, log=LogSettings(segment_bytes=1 << 20, retention_bytes=2 << 20))
