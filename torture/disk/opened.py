"""A data directory opened as a broker does that starts, in this process; and what is in it then."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.broker.broker import Broker
from headwater.flight.entrance import Caller
from headwater.flight.requests import Append, Commit, Stage
from headwater.flight.service import FlightService, FlightSettings
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.rights import everything
from headwater.slowing import Slowdowns
from headwater.traffic import Traffic
from tests.broker.client import Client, settle
from tests.flight.client import rows
from torture.disk.recording import SEGMENT_BYTES
from torture.everyone.accounts import Batch
from torture.everyone.publishers import parts_of

READ_BYTES = 8 << 20
REPEAT_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Stored:
    offset: int
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Opened:
    """What is there after recovery."""

    engine: EmbeddedEngine
    broker: Broker
    flight: FlightService

    @property
    def start(self) -> int:
        return self.engine.start

    @property
    def end(self) -> int:
        return self.engine.watermark

    def stored(self, since: int = 0) -> list[Stored]:
        found: list[Stored] = []
        at = max(since, self.start)
        while at < self.end:
            batches, at = self.engine.read_flat(at, None, READ_BYTES, self.end)
            for batch in batches:
                columns = [batch.column(name).to_pylist() for name in ("offset", "topic", "value")]
                found += map(Stored, *columns)
        return found

    async def publish_again(self, topic: str, payloads: Sequence[bytes]) -> None:
        """As a client does that wants them stored exactly once, and has had no answer."""
        if not payloads:
            return
        client = Client(self.broker)
        client.publish(topic, *payloads, once=range(len(payloads)), again=True)
        await settle(self.broker)
        client.leave()

    async def commit(self, batch: Batch) -> None:
        """As its client does that has had no answer."""
        await asyncio.to_thread(self._commit, batch)

    def _commit(self, batch: Batch) -> None:
        flight = self.flight
        producer = batch.query.partition("producer/")[2]
        if producer:
            flight.append(Append(producer, batch.number), CALLER, iter([rows(*batch.values)]))
            return
        for partition, part in enumerate(parts_of(batch)):
            stage = Stage(batch.query, batch.number, partition, "x")
            flight.stage(stage, CALLER, iter([rows(*part)]))
        flight.commit(Commit(batch.query, batch.number, {"0": "x", "1": "x"}), RIGHTS)


#: Whoever looks into a broker by hand may do everything.
RIGHTS = everything()
CALLER = Caller(RIGHTS, "192.0.2.1:5000", lambda: False)


@asynccontextmanager
async def opened(data: Path) -> AsyncIterator[Opened]:
    """Raises what opening raises."""
    with _in_silence():
        async with _opened(data) as found:
            yield found


@contextmanager
def _in_silence() -> Iterator[None]:
    """What it says of each crash is of no interest, unless someone listens for it."""
    logger = logging.getLogger("headwater")
    level = logger.level
    if level != logging.NOTSET:
        yield
        return
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@asynccontextmanager
async def _opened(data: Path) -> AsyncIterator[Opened]:
    engine = await EmbeddedEngine.open(data, LogSettings(segment_bytes=SEGMENT_BYTES))
    # What was recorded long ago is as if it had been now.
    broker = Broker(engine, repeat_seconds=REPEAT_SECONDS)
    try:
        flight = FlightService(
            broker=broker,
            data=data,
            settings=FlightSettings(port=0),
            report=lambda name, state: None,
            exported=lambda who, about: None,
            traffic=Traffic(),
            slowdowns=Slowdowns(),
            admit=lambda token, certified, address: RIGHTS,
        )
        await flight.recover()
        await broker.recall()
        yield Opened(engine, broker, flight)
    finally:
        broker.close()
        await engine.close()
