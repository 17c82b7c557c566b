"""Kill the broker while queues are at work, again and again, and account for every message.

Publishers send numbered messages over BMTP, to be stored exactly once. Consumers share a queue of
Prism, acknowledge what they take, and now and then drop their connection. The broker is killed with
SIGKILL at a random moment and started again. In the end:

- no message is stored twice, and every message that was answered is stored;
- every stored message was delivered;
- none was delivered again whose acknowledgement is safe (accounts.py).
"""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from random import Random

from headwater.client import PrismClient
from headwater.errors import HeadwaterError
from tests.e2e.clients import prism
from tests.e2e.process import ALL_FIVE, PATIENCE, BrokerProcess
from torture.accounts import Accounts, came_from, is_up
from torture.log import stored_payloads
from torture.publisher import OncePublisher
from torture.verdict import Verdict, faults_about, faults_of

TOPIC = "bmtp/1"
# So many messages are acknowledged before a ping asks whether the broker has heard it.
PING_EVERY = 20


async def consume(
    broker: BrokerProcess, accounts: Accounts, chance: Random, stop: asyncio.Event
) -> None:
    while not stop.is_set():
        with contextlib.suppress(HeadwaterError, TimeoutError):
            client = prism(broker)
            await client.open()
            try:
                await client.subscribe()
                await take(client, accounts, chance.randrange(50, 5000))
            finally:
                await client.close()  # whatever it holds comes back
        await asyncio.sleep(0.01)


async def take(client: PrismClient, accounts: Accounts, most: int) -> None:
    """Messages are acknowledged when the next one is asked for. Pings that are still open at the
    end fail with the connection."""
    done: list[bytes] = []
    pings: set[asyncio.Task[None]] = set()
    connection: object = None
    for _ in range(most):
        message = await asyncio.wait_for(anext(client), 0.5)
        if connection is not (connection := came_from(client)):
            done = []  # of another connection, which took the acknowledgements along
        if len(done) >= PING_EVERY:
            client._flush()
            if is_up(client):
                pings.add(asyncio.create_task(accounts.ping(client, done)))
            done = []
        accounts.receive(message.payload)
        done.append(message.payload)


async def _torture(directory: Path, cycles: int, seconds: float, chance: Random) -> Verdict:
    broker = BrokerProcess(directory / "data", toml=ALL_FIVE, HEADWATER_LOG_SEGMENT_BYTES="1MiB")
    await asyncio.to_thread(broker.start)
    broker.keep_ports()
    loop = asyncio.get_running_loop()
    accounts, stop, done = Accounts(), asyncio.Event(), asyncio.Event()
    publishers = [
        OncePublisher(f"p{number}", TOPIC, Random(chance.random())) for number in range(3)
    ]
    publishing = [asyncio.create_task(each.run(broker.ports["bmtp"], stop)) for each in publishers]
    consuming = [
        asyncio.create_task(consume(broker, accounts, Random(chance.random()), done))
        for _ in range(4)
    ]
    try:
        for _ in range(cycles):
            await asyncio.sleep(chance.uniform(0.2, 1.0) * seconds)
            before = loop.time()
            await asyncio.to_thread(broker.kill)
            accounts.kills.append((before, loop.time()))
            await asyncio.to_thread(broker.start)
        await asyncio.sleep(min(seconds, 1.0))
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
    publishers: list[OncePublisher],
    faults: tuple[str, ...],
) -> Verdict:
    answered = set().union(*(publisher.answered for publisher in publishers))
    lost, undelivered = answered - stored.keys(), stored.keys() - accounts.received.keys()
    twice = [key for key, times in stored.items() if times > 1]
    return Verdict(
        harm={"broker killed": len(accounts.kills)},
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


def torture(directory: Path, cycles: int, seconds: float, chance: Random) -> Verdict:
    return asyncio.run(_torture(directory, cycles, seconds, chance))


def cycle(directory: Path, chance: Random) -> Verdict:
    # Long enough for some of what was acknowledged to be safe when the kill comes.
    return torture(directory, 1, 4.5, chance)
