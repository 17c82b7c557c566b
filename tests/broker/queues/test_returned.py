"""Messages that consumers leave: how many are kept, and how."""

import asyncio
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.broker.broker import Broker
from headwater.broker.queues import ledger
from headwater.broker.queues import queue as module
from headwater.queue_spec import QueueSpec
from tests.broker.client import Client
from tests.broker.queues.test_queue import EVERYONE, SHARED, run, settle

KEPT = replace(SHARED, dead_topic="dead/q")


def test_state_of_an_earlier_version_is_read() -> None:
    content = struct.pack(">Q", 9) + struct.pack(">QH", 3, 1) + struct.pack(">QH", 6, 2)
    assert ledger.decode(content, 100) == (9, [(3, 1), (6, 2)])
    assert ledger.decode(struct.pack(">Q", 9), 5) == (5, [])


@pytest.mark.parametrize(
    "spec", [KEPT, replace(EVERYONE, dead_topic="dead/q")], ids=["shared", "broadcast"]
)
def test_of_what_too_many_consumers_leave_the_oldest_become_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: QueueSpec
) -> None:
    monkeypatch.setattr(module, "MOST_RETURNED", 10)

    async def leave_much(broker: Broker) -> None:
        publisher = Client(broker)
        for number in range(3):
            consumers = [Client(broker) for _ in range(2)]
            for consumer in consumers:
                consumer.consume(spec)
            publisher.publish("a", *[b"%d.%d" % (number, n) for n in range(10)])
            await settle(broker)
            for consumer in consumers:
                consumer.leave()
        queue = broker.queues[spec.name]
        assert queue.to_repeat == 10
        async with asyncio.timeout(60):
            while queue.buried:
                await asyncio.sleep(0.001)

    async def find_all(broker: Broker) -> None:
        found, _ = await broker.engine.read(0, lambda topic: topic.startswith("dead/"), 1 << 20)
        letters = {payload for batch in found for payload in batch.run.payloads}
        last = Client(broker)
        last.consume(spec, prefetch=100)
        await settle(broker)
        left = {payload for _, payload, _ in last.delivered}
        assert len(letters | left) == 30 and len(left) == 10
        assert min(left) > max(letters)

    run(tmp_path, leave_much, find_all)
