"""The simulated clients: sensors on BPSP, a shop on Prism, chat on BMTP, a game on
CrystalConnector, meters on PSMB.

Each publishes at its share of the rate and waits until what it sent is durable. When the broker is
away, it comes back with it; what could not be sent meanwhile is not sent again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from headwater.client import (
    BmtpClient,
    BpspClient,
    Client,
    CrystalClient,
    PrismClient,
    PsmbClient,
)
from headwater.demo import records
from headwater.errors import Disconnected

QUEUE = "billing"
APP = "shop"
ROOMS = ("kitchen", "cellar", "attic")
HOUSES = ("a", "b")
#: The sensor in the attic has a bad battery: of three minutes it is silent for two.
PERIOD_SECONDS, AWAKE_SECONDS = 180.0, 60.0


@dataclass(frozen=True, slots=True)
class Access:
    """Where the broker is, and what it wants to hear."""

    ports: dict[str, int]
    app_secret: str
    crystal_secret: str
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Simulation:
    """All clients together. `rate`: messages a second in sum."""

    access: Access
    rate: float = 50.0
    seed: int | None = None
    #: What was published, by protocol; and what was taken from the queue.
    sent: Counter[str] = field(default_factory=Counter)

    async def run(self, seconds: float | None = None) -> None:
        """Until it is cancelled, or for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                # A fifth of the rate for each protocol.
                for room in ROOMS:
                    group.create_task(self._sensor(room, self.rate / 5 / len(ROOMS)))
                group.create_task(self._publish("prism", self._prism(), records.ORDERS))
                group.create_task(self._publish("bmtp", self._bmtp(), records.CHAT))
                group.create_task(self._publish("crystal", self._crystal(), records.GAME))
                for house in HOUSES:
                    group.create_task(self._meter(house, self.rate / 5 / len(HOUSES)))
                group.create_task(self._consume())

    async def _sensor(self, room: str, rate: float) -> None:
        port = self.access.ports["bpsp"]
        client = BpspClient(self.access.host, port, user=f"sensor-{room}")
        await self._publish("bpsp", client, records.sensor(room), rate, sleepy=room == ROOMS[-1])

    async def _meter(self, house: str, rate: float) -> None:
        client = PsmbClient(self.access.host, self.access.ports["psmb"])
        await self._publish("psmb", client, records.meter(house), rate)

    def _prism(self) -> PrismClient:
        access = self.access
        return PrismClient(
            access.host, access.ports["prism"], app=APP, secret=access.app_secret, queue=QUEUE
        )

    def _bmtp(self) -> BmtpClient:
        port = self.access.ports["bmtp"]
        return BmtpClient(self.access.host, port, channels=records.CHAT_CHANNELS)

    def _crystal(self) -> CrystalClient:
        access = self.access
        return CrystalClient(
            access.host,
            access.ports["crystal"],
            secret=access.crystal_secret,
            client_name="game-server",
        )

    async def _publish(
        self,
        protocol: str,
        client: Client,
        kind: records.Kind,
        rate: float | None = None,
        sleepy: bool = False,
    ) -> None:
        random = Random(None if self.seed is None else f"{self.seed} {kind.name}")
        said = records.stream(kind, random)
        pause = 1 / (rate or self.rate / 5)
        async with client:
            started = due = time.monotonic()
            while True:
                asleep = sleepy and (due - started) % PERIOD_SECONDS >= AWAKE_SECONDS
                if not asleep:
                    await self._say(protocol, client, said)
                # Never more than a second behind: what was missed is not made up for.
                due = max(due + random.expovariate(1) * pause, time.monotonic() - 1)
                await asyncio.sleep(max(due - time.monotonic(), 0))

    async def _say(self, protocol: str, client: Client, said: Iterator[tuple[str, bytes]]) -> None:
        topic, payload = next(said)
        with suppress(Disconnected):
            await client.publish(topic, payload)
            self.sent[protocol] += 1

    async def _consume(self) -> None:
        """The shop's billing takes orders from its queue, one after the other."""
        async with self._prism() as client:
            await client.subscribe(QUEUE)
            async for _ in client:
                self.sent["consumed"] += 1
