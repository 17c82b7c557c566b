"""Publishers that go on until they are told to stop, each in its protocol's way.

A message is sent once, and its number never used again: whether one without an answer is stored,
nobody can know. What is to be there exactly once is repeated until it has an answer: over BMTP with
QoS 2, and over Flight.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from random import Random

import pyarrow as pa

from headwater.client import BmtpClient, BpspClient, Client, CrystalClient, PrismClient, PsmbClient
from headwater.errors import HeadwaterError, Refusal
from tests.e2e.process import APP, SECRET, BrokerProcess
from tests.flight.client import Client as FlightClient
from tests.flight.client import rows
from torture.everyone.accounts import Accounts, Batch

HOST = "127.0.0.1"
#: As BMTP sees it, it is channel 1.
BMTP_TOPIC = "bmtp/1"
ANSWER_SECONDS = 60.0
AWAY_SECONDS = 0.05

Connect = Callable[[BrokerProcess], Client]
#: For each publisher its client and its topic.
PLAIN: dict[str, tuple[Connect, str]] = {
    "psmb": (lambda broker: PsmbClient(HOST, broker.ports["psmb"]), "everyone/psmb"),
    "bpsp": (lambda broker: BpspClient(HOST, broker.ports["bpsp"]), "everyone/bpsp"),
    "prism": (
        lambda broker: PrismClient(HOST, broker.ports["prism"], app=APP, secret=SECRET),
        "everyone/prism",
    ),
    "crystal": (
        lambda broker: CrystalClient(HOST, broker.ports["crystal"], secret=SECRET),
        "everyone/crystal",
    ),
}


class Pace:
    """How much is published at once, how large it is, and how long the pauses are."""

    def __init__(self, chance: Random, *, pause: float, most: int = 5, size: int = 3000) -> None:
        self._chance, self._pause = chance, pause
        self._most, self._size = most, size

    async def rest(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.2, 1.0) * self._pause)

    def count(self) -> int:
        return self._chance.choice((1, 1, 1, self._most))

    def size(self) -> int:
        return int(self._size * self._chance.random() ** 3)


class Numbers:
    """Keys of one publisher: each is given out once."""

    def __init__(self, name: str) -> None:
        self._name, self._next = name.encode(), 0

    def take(self, count: int) -> list[bytes]:
        first, self._next = self._next, self._next + count
        return [b"%b.%d" % (self._name, number) for number in range(first, self._next)]


async def publish(
    name: str, broker: BrokerProcess, accounts: Accounts, pace: Pace, stop: asyncio.Event
) -> None:
    connect, topic = PLAIN[name]
    numbers = Numbers(name)

    async def send(client: Client) -> None:
        keys = numbers.take(pace.count())
        payloads = [accounts.payload(key, pace.size()) for key in keys]
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await client.publish(topic, *payloads)
        except Refusal:
            if len(keys) == 1:  # otherwise nobody knows which of them
                accounts.refused.update(keys)
            raise
        accounts.acknowledge(*keys)

    await _stay_connected(lambda: connect(broker), send, pace, stop)


async def publish_once(
    broker: BrokerProcess, accounts: Accounts, pace: Pace, stop: asyncio.Event
) -> None:
    """Over BMTP: what had no answer is sent again, marked as a repeat."""
    numbers, left = Numbers("bmtp"), list[tuple[bytes, bytes]]()

    async def send(client: Client) -> None:
        assert isinstance(client, BmtpClient)
        again = bool(left)
        if not left:
            keys = numbers.take(pace.count())
            left.extend((key, accounts.payload(key, pace.size())) for key in keys)
        async with asyncio.timeout(ANSWER_SECONDS):
            await client.publish(BMTP_TOPIC, *[payload for _, payload in left], again=again)
        accounts.acknowledge(*[key for key, _ in left])
        left.clear()

    connect = lambda: BmtpClient(HOST, broker.ports["bmtp"], qos=2)  # noqa: E731
    await _stay_connected(connect, send, pace, stop, until=lambda: not left)


async def _stay_connected(
    connect: Callable[[], Client],
    send: Callable[[Client], Awaitable[None]],
    pace: Pace,
    stop: asyncio.Event,
    until: Callable[[], bool] = lambda: True,
) -> None:
    while not (stop.is_set() and until()):
        client = connect()
        with contextlib.suppress(HeadwaterError, OSError):
            try:
                await client.open()
                while not (stop.is_set() and until()):
                    await send(client)
                    await pace.rest()
            finally:
                await client.close()
        await asyncio.sleep(AWAY_SECONDS)


async def append(
    broker: BrokerProcess, accounts: Accounts, pace: Pace, stop: asyncio.Event, *, staged: bool
) -> None:
    """Batches over Flight, in one step or in two, each until it is answered."""
    query = "staged" if staged else "producer/appended"
    numbers = Numbers(query.rpartition("/")[2])
    number = 0
    while not stop.is_set():
        number += 1
        keys = numbers.take(pace.count() + 1)
        values = [(f"everyone/{query}", accounts.payload(key, pace.size())) for key in keys]
        batch = Batch(query, number, tuple(keys), tuple(values), accounts.now())
        accounts.batches.append(batch)
        while not await asyncio.to_thread(_commit, broker, batch, staged):
            await asyncio.sleep(AWAY_SECONDS)
        batch.committed_at = accounts.now()
        accounts.acknowledge(*keys)
        await pace.rest()


def parts_of(batch: Batch) -> list[tuple[tuple[str, bytes], ...]]:
    """The rows of the partitions in which it is staged."""
    return [batch.values[:1], batch.values[1:]]


def _commit(broker: BrokerProcess, batch: Batch, staged: bool) -> bool:
    client = FlightClient(broker.ports["flight"])
    try:
        if not staged:
            name = batch.query.partition("/")[2]
            client.put(rows(*batch.values), do="append", producer=name, sequence=batch.number)
            return True
        done = client.act("committed", query=batch.query)["batch"]
        if done is not None and done >= batch.number:
            return True  # the answer was lost
        about = {"query": batch.query, "batch": batch.number}
        for partition, part in enumerate(parts_of(batch)):
            client.put(rows(*part), do="stage", partition=partition, attempt="x", **about)
        client.act("commit", parts={"0": "x", "1": "x"}, **about)
        return True
    except (pa.ArrowException, OSError, StopIteration):
        return False
    finally:
        client.close()
