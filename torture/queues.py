"""Kill the broker while queues are at work, again and again, and account for every message.

Publishers send numbered messages over BMTP, to be stored exactly once: what had no answer when the
broker died is sent again, marked as a repeat. Consumers share a queue of Prism, acknowledge what
they take, and now and then drop their connection. The broker is killed with SIGKILL at a random
moment and started again. In the end:

- no message is stored twice, and every message that was answered is stored;
- every stored message was delivered;
- a message whose acknowledgement the broker has heard was not delivered again, unless a kill came
  too soon after it. The answer to a ping that follows the acknowledgement proves that it was heard.
"""

import asyncio
import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from headwater.client import BmtpClient, PrismClient
from headwater.errors import HeadwaterError
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET, BrokerProcess
from torture.log import stored_payloads
from torture.verdict import Verdict, faults_about, faults_of

TOPIC = "bmtp/1"
# What was heard is on disk after 100 ms; the rest is for a disk that others use as well.
SAFE_SECONDS = 0.1 + 2.9
# So many messages are acknowledged before a ping asks whether the broker has heard it.
PING_EVERY = 20


@dataclass
class Publisher:
    name: str
    broker: BrokerProcess
    sent: int = 0
    answered: set[bytes] = field(default_factory=set)

    async def run(self, stop: asyncio.Event) -> None:
        client = BmtpClient("127.0.0.1", self.broker.ports["bmtp"], qos=2)
        async with client:
            while not stop.is_set():
                numbers = range(self.sent, self.sent + random.choice((1, 10, 200)))
                self.sent = numbers.stop
                batch = [b"%s.%d" % (self.name.encode(), number) for number in numbers]
                await self._publish(client, batch)
                await asyncio.sleep(random.uniform(0, 0.02))

    async def _publish(self, client: BmtpClient, batch: list[bytes]) -> None:
        """Again and again until all of it is answered."""
        again = False
        while True:
            try:
                await client.publish(TOPIC, *batch, again=again)
            except HeadwaterError:
                again = True
                await asyncio.sleep(0.01)
            else:
                self.answered.update(batch)
                return


@dataclass(frozen=True)
class Heard:
    """The broker has heard an acknowledgement at some moment between the two."""

    asked: float
    answered: float


@dataclass
class Accounts:
    """What all consumers together have seen."""

    received: Counter[bytes] = field(default_factory=Counter)
    heard: dict[bytes, Heard] = field(default_factory=dict)
    kills: list[tuple[float, float]] = field(default_factory=list)
    wrong: list[bytes] = field(default_factory=list)

    def receive(self, key: bytes) -> None:
        self.received[key] += 1
        heard = self.heard.get(key)
        if heard is not None and not self._may_be_lost(heard):
            self.wrong.append(key)

    def _may_be_lost(self, heard: Heard) -> bool:
        return any(
            heard.asked <= after and before <= heard.answered + SAFE_SECONDS
            for before, after in self.kills
        )


async def consume(broker: BrokerProcess, accounts: Accounts, stop: asyncio.Event) -> None:
    while not stop.is_set():
        with contextlib.suppress(HeadwaterError):
            client = PrismClient("127.0.0.1", broker.ports["prism"], app=APP, secret=SECRET)
            await client.open()
            try:
                await client.subscribe()
                await take(client, accounts, random.randrange(50, 5000))
            finally:
                await client.close()  # whatever it holds comes back
        await asyncio.sleep(0.01)


async def take(client: PrismClient, accounts: Accounts, most: int) -> None:
    """Messages are acknowledged when the next one is asked for. Pings that are still open at the
    end fail with the connection."""
    done: list[bytes] = []
    pings: set[asyncio.Task[None]] = set()
    for _ in range(most):
        message = await asyncio.wait_for(anext(client), 0.5)
        if len(done) >= PING_EVERY:
            client._flush()
            if _hears(client):
                pings.add(asyncio.create_task(_ping(client, accounts, done)))
            done = []
        accounts.receive(message.payload)
        done.append(message.payload)


def _hears(client: PrismClient) -> bool:
    """Is the connection that the last message came from still the one that is open?"""
    (session,) = client._acknowledge.args  # type: ignore[attr-defined]
    return client._link._transport is not None and client._link._session is session


async def _ping(client: PrismClient, accounts: Accounts, done: list[bytes]) -> None:
    """`done` was acknowledged just now. Is the answer lost, nobody knows what has become of it."""
    now = asyncio.get_running_loop().time
    asked = now()
    with contextlib.suppress(HeadwaterError):
        await client._link.ask(client._codec.ping())
        heard = Heard(asked, now())
        accounts.heard.update((key, heard) for key in done)


async def _torture(directory: Path, cycles: int, seconds: float) -> Verdict:
    broker = BrokerProcess(directory / "data", toml=ALL_FIVE, HEADWATER_LOG_SEGMENT_BYTES="1MiB")
    await asyncio.to_thread(broker.start)
    broker.keep_ports()
    loop = asyncio.get_running_loop()
    accounts, stop = Accounts(), asyncio.Event()
    publishers = [Publisher(f"p{number}", broker) for number in range(3)]
    publishing = [asyncio.create_task(publisher.run(stop)) for publisher in publishers]
    done = asyncio.Event()
    consuming = [asyncio.create_task(_patiently(broker, accounts, done)) for _ in range(4)]
    try:
        for _ in range(cycles):
            await asyncio.sleep(random.uniform(0.2, 1.0) * seconds)
            before = loop.time()
            await asyncio.to_thread(broker.kill)
            accounts.kills.append((before, loop.time()))
            await asyncio.to_thread(broker.start)
        await asyncio.sleep(seconds)
        stop.set()
        await asyncio.gather(*publishing)
        answered = set().union(*(publisher.answered for publisher in publishers))
        with contextlib.suppress(TimeoutError):  # what has not come by then is lost
            async with asyncio.timeout(PATIENCE):
                while not answered <= accounts.received.keys():
                    await asyncio.sleep(0.05)
    finally:
        stop.set()
        done.set()
        await asyncio.gather(*publishing, *consuming, return_exceptions=True)
        code = await asyncio.to_thread(broker.stop)
    stored = Counter(await asyncio.to_thread(stored_payloads, directory / "data"))
    return _verdict(accounts, stored, publishers, faults_of(broker, code))


def _verdict(
    accounts: Accounts,
    stored: Counter[bytes],
    publishers: list[Publisher],
    faults: tuple[str, ...],
) -> Verdict:
    answered = set().union(*(publisher.answered for publisher in publishers))
    lost, undelivered = answered - stored.keys(), stored.keys() - accounts.received.keys()
    twice = [key for key, times in stored.items() if times > 1]
    return Verdict(
        kills={"broker": len(accounts.kills)},
        sent=sum(publisher.sent for publisher in publishers),
        acknowledged=len(answered),
        found=len(stored),
        lost=len(lost | undelivered),
        twice=len({*twice, *accounts.wrong}),
        faults=faults
        + faults_about(
            answered_and_lost=sorted(lost),
            stored_and_not_delivered=sorted(undelivered),
            stored_twice=sorted(twice),
            acknowledged_and_delivered_again=accounts.wrong,
        ),
    )


async def _patiently(broker: BrokerProcess, accounts: Accounts, done: asyncio.Event) -> None:
    while not done.is_set():
        with contextlib.suppress(TimeoutError):
            await consume(broker, accounts, done)


def torture(directory: Path, cycles: int, seconds: float) -> Verdict:
    return asyncio.run(_torture(directory, cycles, seconds))
