"""The simulated clients: each protocol has a part (`parts.py`), with its share of the rate.

Each client publishes and waits until what it sent is durable. When the broker is away, it comes
back with it; what could not be sent meanwhile is not sent again.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pkgutil import resolve_name
from random import Random
from typing import Any

from headwater.client import Client
from headwater.demo import records
from headwater.errors import Disconnected
from headwater.registry import REGISTRY

#: The sensor in the attic has a bad battery: of three minutes it is silent for two.
PERIOD_SECONDS, AWAKE_SECONDS = 180.0, 60.0


@dataclass(frozen=True, slots=True)
class Access:
    """Where the broker is, and what it wants to hear."""

    ports: dict[str, int]
    secret: str
    host: str = "127.0.0.1"


class Part(ABC):
    """What one protocol has in the demo."""

    def toml(self, access: Access) -> str:
        """What the broker's configuration has to say for it."""
        return ""

    @abstractmethod
    def play(self, simulation: "Simulation", rate: float) -> Iterator[Coroutine[Any, Any, None]]:
        """Its clients, which together publish so many messages a second."""


def parts() -> list[Part]:
    return [resolve_name(each.demo)() for each in REGISTRY.values() if each.demo]


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
        everyone = parts()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for part in everyone:
                    for client in part.play(self, self.rate / len(everyone)):
                        group.create_task(client)

    async def publish(
        self,
        protocol: str,
        client: Client,
        kind: records.RecordKind,
        rate: float,
        *,
        sleepy: bool = False,
    ) -> None:
        """Let a client say what there is to say, without end."""
        random = Random(None if self.seed is None else f"{self.seed} {kind.name}")
        said = records.stream(kind, random)
        async with client:
            started = due = time.monotonic()
            while True:
                asleep = sleepy and (due - started) % PERIOD_SECONDS >= AWAKE_SECONDS
                if not asleep:
                    await self._say(protocol, client, said)
                # Never more than a second behind: what was missed is not made up for.
                due = max(due + random.expovariate(1) / rate, time.monotonic() - 1)
                await asyncio.sleep(max(due - time.monotonic(), 0))

    async def _say(self, protocol: str, client: Client, said: Iterator[tuple[str, bytes]]) -> None:
        topic, payload = next(said)
        with suppress(Disconnected):
            await client.publish(topic, payload)
            self.sent[protocol] += 1
