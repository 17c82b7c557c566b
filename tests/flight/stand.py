"""The Flight service without Flight: what its threads call, called by a test's own threads."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater.broker.broker import Broker
from headwater.broker.quotas import Quotas
from headwater.flight import requests
from headwater.flight.entrance import Caller
from headwater.flight.service import FlightService, FlightSettings
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.rights import Principal, Rights, Rule, everything
from headwater.slowing import Slowdowns
from headwater.traffic import Traffic

EVERYTHING = frozenset(("publish", "subscribe", "history", "queues"))


def rights_of(name: str) -> Rights:
    return Rights(Principal("user", name, "mine"), [Rule(f"user:{name}", EVERYTHING, "*")])


def caller_of(name: str, port: int = 5000, *, gone: bool = False) -> Caller:
    """Of a user, or of the broker's owner."""
    rights = rights_of(name) if name else everything()
    return Caller(rights, f"192.0.2.1:{port}", lambda: gone)


class FlightStand:
    def __init__(self, broker: Broker, data: Path) -> None:
        self.broker = broker
        self.slowdowns = Slowdowns()
        self.service = FlightService(
            broker=broker,
            data=data,
            settings=FlightSettings(host="127.0.0.1", port=0),
            report=lambda name, state: None,
            exported=lambda who, about: None,
            traffic=Traffic(),
            slowdowns=self.slowdowns,
            admit=lambda token, certified, address: everything(),
        )

    async def append(self, caller: Caller, sequence: int, *batches: Any) -> dict[str, Any]:
        request = requests.Append("p", sequence)
        return await asyncio.to_thread(self.service.append, request, caller, iter(batches))

    async def stage(self, caller: Caller, batch: int, batches: Iterator[Any]) -> dict[str, Any]:
        request = requests.Stage("q", batch, 0, "x")
        return await asyncio.to_thread(self.service.stage, request, caller, batches)

    async def commit(self, caller: Caller, batch: int) -> dict[str, Any]:
        request = requests.Commit("q", batch, {"0": "x"})
        return await asyncio.to_thread(self.service.commit, request, caller.rights)


@asynccontextmanager
async def standing(data: Path, **quotas: float) -> AsyncIterator[FlightStand]:
    engine = await EmbeddedEngine.open(data, LogSettings(sync="os"))
    broker = Broker(engine, quotas=Quotas(**quotas))  # type: ignore[arg-type]
    stand = FlightStand(broker, data)
    try:
        await stand.service.recover()
        yield stand
    finally:
        broker.close()
        await engine.close()
