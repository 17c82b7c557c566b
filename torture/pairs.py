"""Two consumers of a queue end within milliseconds of each other, again and again.

Each has messages in its hands, some of them acknowledged, most no longer in the broker's memory. A
third one stays, and takes what they leave. Now and then the broker is killed just then. In the end:

- every message was acknowledged by someone: none is forgotten;
- none was delivered again whose acknowledgement is safe (accounts.py);
- the queue is empty.
"""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from random import Random

from headwater.client import PrismClient
from headwater.control import call
from tests.e2e.clients import drop, holds_back, prism
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, BrokerProcess
from torture import backlog
from torture.accounts import Accounts, is_up
from torture.backlog import key_of
from torture.log import stored_payloads
from torture.verdict import Verdict, faults_about, faults_of

QUEUE = f"prism/{APP}/default"
EMPTY = {"waiting": 0, "in_flight": 0, "returned": 0, "dead": 0}
# How long one of a pair waits for a message: there may be none.
MESSAGE_SECONDS = 1.0
APART_SECONDS = 0.005


class Queue:
    """The queue, its broker, and what its consumers have seen."""

    def __init__(self, broker: BrokerProcess, prefetch: int, chance: Random) -> None:
        self.broker, self.accounts = broker, Accounts()
        self._prefetch, self._chance = prefetch, chance
        #: The one that stays waits a little with each message, until the others are through.
        self.pause = 0.005

    async def stay(self) -> None:
        """Take all that there is. To ask for a message acknowledges the one before."""
        async with prism(self.broker, self._prefetch) as client:
            await client.subscribe()
            async for message in client:
                self.accounts.receive(key_of(message.payload))
                self.accounts.done.add(key_of(message.payload))
                await asyncio.sleep(self.pause)

    async def pair(self) -> None:
        """Two come, take some messages, and end."""
        both = await asyncio.gather(*(self._join() for _ in range(2)))
        for client in both:
            await (drop(client) if self._chance.random() < 0.7 else client.close())
            await asyncio.sleep(self._chance.uniform(0, APART_SECONDS))

    async def _join(self) -> PrismClient:
        """One that has acknowledged some messages, and holds others."""
        chance, client = Random(self._chance.random()), prism(self.broker, self._prefetch)
        await client.open()
        await client.subscribe()
        if done := await self._take(client, chance.randint(0, 20)):
            client._finish()
            client._flush()
            self.accounts.done.update(done)
            if is_up(client):
                await self.accounts.ping(client, done)
        await self._take(holds_back(client), chance.randint(1, self._prefetch))
        return client

    async def _take(self, client: PrismClient, most: int) -> list[bytes]:
        taken: list[bytes] = []
        with contextlib.suppress(TimeoutError):
            while len(taken) < most:
                message = await asyncio.wait_for(anext(client), MESSAGE_SECONDS)
                self.accounts.receive(key := key_of(message.payload))
                taken.append(key)
        return taken

    async def kill(self) -> None:
        now = asyncio.get_running_loop().time
        before = now()
        await asyncio.to_thread(self.broker.kill)
        self.accounts.kills.append((before, now()))
        await asyncio.to_thread(self.broker.start)

    async def drain(self) -> bool:
        """Whether nothing is left of the queue. What has not come by then is forgotten."""
        self.pause = 0.0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    shown = await asyncio.to_thread(
                        call, self.broker.data, "queue.show", name=QUEUE
                    )
                    if EMPTY.items() <= shown.items():
                        return True
                    await asyncio.sleep(0.05)
        return False


async def _cycle(directory: Path, chance: Random) -> Verdict:
    prefetch = chance.choice((5, 20, 100))
    limits = "[prism]\nmax_deliveries = 1000000\n"
    with BrokerProcess(
        directory / "data", toml=limits + ALL_FIVE, HEADWATER_LOG_SEGMENT_BYTES="1MiB"
    ) as broker:
        broker.keep_ports()
        queue = Queue(broker, prefetch, chance)
        sent = await asyncio.to_thread(backlog.publish, broker, chance)
        staying = asyncio.create_task(queue.stay())
        try:
            rounds = chance.randint(5, 20)
            killed = chance.randrange(rounds * 3)  # one time out of three
            for number in range(rounds):
                await queue.pair()
                if number == killed:
                    await queue.kill()
            empty = await queue.drain()
        finally:
            staying.cancel()
            await asyncio.wait({staying})
        faults = faults_of(broker, await asyncio.to_thread(broker.stop))
    if not empty:
        faults += ("the queue is not empty",)
    harm = {"pairs ended": rounds, "broker killed": len(queue.accounts.kills)}
    return _verdict(queue, sent, harm, faults)


def _verdict(
    queue: Queue, sent: set[bytes], harm: dict[str, int], faults: tuple[str, ...]
) -> Verdict:
    stored = Counter(key_of(payload) for payload in stored_payloads(queue.broker.data))
    accounts = queue.accounts
    forgotten = stored.keys() - accounts.done
    return Verdict(
        harm=harm,
        sent=len(sent),
        acknowledged=len(sent),
        found=len(stored),
        lost=len(forgotten | sent - stored.keys()),
        twice=len({*accounts.wrong, *(stored - Counter(sent))}),
        faults=faults
        + faults_about(
            published_and_lost=sent - stored.keys(),
            delivered_and_forgotten=forgotten & accounts.received.keys(),
            never_delivered=forgotten - accounts.received.keys(),
            acknowledged_and_delivered_again=accounts.wrong,
        ),
    )


def cycle(directory: Path, chance: Random) -> Verdict:
    return asyncio.run(_cycle(directory, chance))
