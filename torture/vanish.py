"""Clients vanish without a word while messages are in their hands (proxy.py).

Consumers of queues hold messages that they will never acknowledge; a durable subscriber and a
publisher come back on new connections, while the old ones still seem to be there. Nothing says that
the others are gone but their silence: that of PSMB's and BMTP's clients ends their connections, and
messages of a queue that nobody acknowledges in time go to others. In the end:

- every message that was answered is stored, and none twice, though a publisher had to ask again;
- those consumers that are still there have got every message of each queue;
- the durable subscriber has got every message;
- connections of clients that have to say something now and then are gone, and that of a subscriber
  for which more waits than buffers hold.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from headwater.client import BmtpClient, BpspClient, PrismClient, PsmbClient
from headwater.client.base import Client
from headwater.control import call
from tests.e2e.clients import holds_back
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, SECRET, BrokerProcess
from torture import backlog
from torture.backlog import TOPIC, key_of
from torture.log import stored_payloads
from torture.proxy import Proxy
from torture.publisher import OncePublisher
from torture.taker import Taker, subscribed
from torture.verdict import Verdict, faults_about, faults_of

#: The proxies, by the protocol that passes through them. One is for a subscriber that is sent more
#: than fits into buffers.
PROXIES = {"psmb": "psmb", "bpsp": "bpsp", "bmtp": "bmtp", "prism": "prism", "stuffed": "bpsp"}
#: Clients that have to say something now and then.
TALKING = {"psmb", "bmtp"}
QUEUES = (f"prism/{APP}/default", "bmtp/bmtp/1")
EMPTY = {"waiting": 0, "in_flight": 0, "returned": 0, "dead": 0}
SUBSCRIBER = 7
LAST = b"last"
# Clients that vanish hold messages for a moment again and again: that is no reason to give them up.
TOML = f"""
[limits]
dead_peer_seconds = 6

[psmb]
keepalive_seconds = 0.3
keepalive_misses = 2

[bmtp]
delivery = "balanced"
idle_seconds = 1

[prism]
ack_seconds = 0.5
max_deliveries = 1000000
{ALL_FIVE}"""


class Unpatient:
    """Publishes numbered messages over BPSP, each acknowledged, as long as it can."""

    def __init__(self) -> None:
        self.sent = 0
        self.answered: set[bytes] = set()

    async def run(self, port: int) -> None:
        async with BpspClient("127.0.0.1", port) as client:
            while True:
                self.sent += 1
                await client.publish(TOPIC, message := b"u%d" % self.sent)
                self.answered.add(message)


class Scene:
    """Those who vanish, each through the proxy of its protocol, and those who stay."""

    def __init__(
        self, broker: BrokerProcess, proxies: dict[str, Proxy], stuffing: bool, chance: Random
    ) -> None:
        self._broker, self._proxies, self._chance = broker, proxies, chance
        self._stuffing = stuffing
        self._unpatient = Unpatient()
        self._returning = OncePublisher("r", TOPIC, Random(chance.random()))
        self._staying = OncePublisher("s", TOPIC, Random(chance.random()))
        self._enough = asyncio.Event()
        self._publishing: list[asyncio.Task[None]] = []
        self._vanishing: list[asyncio.Task[None]] = []
        self._holding: list[PrismClient | BmtpClient] = []
        self._stuffed: Taker | None = None
        self._durable: list[Taker] = []
        #: Those who stay, of each queue.
        self._takers: dict[str, list[Taker]] = {queue: [] for queue in QUEUES}
        self._backlog: set[bytes] = set()

    @property
    def vanished(self) -> int:
        """The consumers, two publishers, and two subscribers."""
        return len(self._holding) + len(self._vanishing) + 2

    async def prepare(self) -> None:
        ports, proxied = self._broker.ports, {n: p.port for n, p in self._proxies.items()}
        for _ in range(self._chance.randint(1, 2)):
            for client, queue in _consumers(proxied):
                self._holding.append(holds_back(client))
                await client.open()
                await client.subscribe(queue)
        for _ in range(2):
            for name, (client, queue) in zip(QUEUES, _consumers(ports), strict=True):
                self._takers[name].append(await _taking(client, queue))
        self._stuffed = await subscribed(BpspClient("127.0.0.1", proxied["stuffed"]), TOPIC)
        await self._subscribe(proxied["psmb"])
        self._vanishing = [
            asyncio.create_task(self._unpatient.run(proxied["bpsp"])),
            asyncio.create_task(self._returning.run(proxied["bmtp"], self._enough)),
        ]
        self._publish(self._staying)
        await self._more()

    async def _subscribe(self, port: int) -> None:
        client = PsmbClient("127.0.0.1", port)
        self._durable.append(await _taking(client, TOPIC, SUBSCRIBER))

    def _publish(self, publisher: OncePublisher) -> None:
        port = self._broker.ports["bmtp"]
        self._publishing.append(asyncio.create_task(publisher.run(port, self._enough)))

    async def _more(self) -> None:
        """Wait for some more answers."""
        enough = len(self.answered()) + self._chance.randint(200, 2000)
        await _until(lambda: len(self.answered()) >= enough)

    async def vanish(self) -> None:
        """All of them, and some come back, before or after it was noticed."""
        for proxy in self._chance.sample(list(self._proxies.values()), len(self._proxies)):
            proxy.vanish()
            await asyncio.sleep(self._chance.uniform(0, 0.01))
        for task in self._vanishing:
            task.cancel()
        await asyncio.wait(self._vanishing)
        if self._stuffing:
            self._backlog = await asyncio.to_thread(backlog.publish, self._broker, self._chance)
        await asyncio.sleep(self._chance.uniform(0, 1.5))
        await self._subscribe(self._broker.ports["psmb"])
        self._publish(self._returning)
        await self._more()
        self._enough.set()
        await asyncio.gather(*self._publishing)

    async def settle(self) -> None:
        """Until everyone has everything, and who is silent is gone. What has not come by then is
        lost."""
        async with BpspClient("127.0.0.1", self._broker.ports["bpsp"]) as client:
            await client.publish(TOPIC, LAST)
        for queue in QUEUES:
            await self._until_empty(queue)
        await _until(lambda: LAST in self._durable[-1].got)

    async def _until_empty(self, queue: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not EMPTY.items() <= (await self._ask("queue.show", name=queue)).items():
                    await asyncio.sleep(0.05)

    async def unnoticed(self) -> list[str]:
        """Vanished clients that should have been missed by now."""
        names = TALKING | {"stuffed"} if self._stuffing else TALKING
        silent = {each for name in names for each in self._proxies[name].addresses}
        seen: list[dict[str, Any]] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while True:
                    listed = (await self._ask("connections.list", limit=200))["items"]
                    seen = [each for each in listed if each["address"] in silent]
                    if not seen:
                        break
                    await asyncio.sleep(0.05)
        return [str(each) for each in seen]

    async def _ask(self, do: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(call, self._broker.data, do, **arguments)

    async def leave(self) -> None:
        for task in (*self._publishing, *self._vanishing):
            task.cancel()
        for taker in (*self._durable, *(each for some in self._takers.values() for each in some)):
            await taker.stop()
        if self._stuffed is not None:
            await self._stuffed.stop()
        for client in self._holding:
            await client.close()

    def answered(self) -> set[bytes]:
        publishers = (self._unpatient, self._returning, self._staying)
        return self._backlog.union(*(each.answered for each in publishers))

    def verdict(self, faults: tuple[str, ...]) -> Verdict:
        stored = Counter(key_of(payload) for payload in stored_payloads(self._broker.data))
        lost = self.answered() - stored.keys()
        got = {name: {k for each in some for k in each.got} for name, some in self._takers.items()}
        got["the durable subscriber"] = {key for each in self._durable for key in each.got}
        missed = {name: stored.keys() - keys for name, keys in got.items() if stored.keys() - keys}
        twice = [key for key, times in stored.items() if times > 1]
        publishers = (self._unpatient, self._returning, self._staying)
        return Verdict(
            harm={"clients vanished": self.vanished},
            sent=sum(each.sent for each in publishers) + len(self._backlog),
            acknowledged=len(self.answered()),
            found=len(stored) - 1,
            lost=len(lost.union(*missed.values())),
            twice=len(twice),
            faults=faults
            + faults_about(
                answered_and_lost=lost,
                stored_twice=twice,
                stored_and_missed=[f"{len(k)} by {name}: {min(k)!r}" for name, k in missed.items()],
            ),
        )


def _consumers(ports: dict[str, int]) -> list[tuple[PrismClient | BmtpClient, str]]:
    """One for each of the queues, and what it asks for."""
    return [
        (PrismClient("127.0.0.1", ports["prism"], app=APP, secret=SECRET, prefetch=10), ""),
        (BmtpClient("127.0.0.1", ports["bmtp"]), "1"),
    ]


async def _taking(client: Client, pattern: str, identity: int | None = None) -> Taker:
    taker = await subscribed(client, pattern, identity)
    taker.go()
    return taker


async def _until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not so():
            await asyncio.sleep(0.02)


async def _cycle(directory: Path, chance: Random, stuffed: bool) -> Verdict:
    with BrokerProcess(directory / "data", toml=TOML, HEADWATER_LOG_SEGMENT_BYTES="1MiB") as broker:
        async with contextlib.AsyncExitStack() as stack:
            proxies = {
                name: await stack.enter_async_context(Proxy(broker.ports[protocol]))
                for name, protocol in PROXIES.items()
            }
            scene = Scene(broker, proxies, stuffed, chance)
            try:
                await scene.prepare()
                await scene.vanish()
                await scene.settle()
                unnoticed = await scene.unnoticed()
            finally:
                await scene.leave()
        faults = faults_of(broker, await asyncio.to_thread(broker.stop))
    return scene.verdict(faults + faults_about(silent_clients_that_are_still_there=unnoticed))


def cycle(directory: Path, chance: Random, *, stuffed: bool) -> Verdict:
    """`stuffed`: what the clients are sent afterwards fills all buffers on the way to them."""
    return asyncio.run(_cycle(directory, chance, stuffed))
