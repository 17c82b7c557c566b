"""One Spark for all tests, and brokers for it to talk to."""

import asyncio
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.client import BpspClient
from headwater.spark import session
from headwater.spark.flight_client import FlightClient
from tests.e2e.process import BrokerProcess, eventually
from tests.flight.client import Client, rows

#: A bound for what hangs. A busy machine takes minutes for what is done in seconds otherwise, and
#: Spark is started within the time of the first test that needs it.
SPARK_TIMEOUT = pytest.mark.timeout(600)
#: For one query.
QUERY_SECONDS = 300
#: So small that retention has something to drop.
SMALL_SEGMENTS = {"HEADWATER_LOG_SEGMENT_BYTES": "64KiB"}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    made = session("tests", "local[2]", directory, driver_memory="1g", sql_shuffle_partitions=2)
    yield made
    made.stop()


class BrokerStand:
    """A broker, and what tests do with it that need no Spark."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.client = Client(broker.ports["flight"])
        self._sequence = count()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.broker.ports['flight']}"

    @property
    def flight(self) -> FlightClient:
        return FlightClient((self.servers,))

    def append(self, topic: str, *values: bytes) -> None:
        command = {"do": "append", "producer": "tests", "sequence": next(self._sequence)}
        self.client.put(rows(*[(topic, value) for value in values]), **command)

    def publish(self, topic: str, *values: bytes, **headers: str) -> None:
        """As one of the protocols does it."""

        async def main() -> None:
            async with BpspClient("127.0.0.1", self.broker.ports["bpsp"], user="bob") as publisher:
                await publisher.publish(topic, *values, headers=tuple(headers.items()))

        asyncio.run(main())

    def log(self, **selection: Any) -> Any:
        """What the broker has, asked without Spark."""
        while True:
            log = self.flight.log()
            try:
                return self.client.read(start=log.start, end=log.end, headers=True, **selection)
            except flight.FlightServerError:
                if self.flight.log().start == log.start:
                    raise  # it was not retention, which may drop something between the two

    def values(self, topic: str) -> list[bytes]:
        found: list[bytes] = self.log(topics=[topic]).column("value").to_pylist()
        return found

    def revive(self) -> None:
        """Start the broker again, at the same ports."""
        self.broker.start()
        self.client.close()  # it may not have noticed yet that its connection is gone
        self.client = Client(self.broker.ports["flight"])

    def drop_oldest(self, spare: str = "64KiB") -> int:
        """Let retention drop all but the newest messages; returns where the log begins then.

        What is in the log must be random: full segments are compressed at some time, and retention
        counts what is left of them.
        """
        self.broker.stop()
        self.broker.set(HEADWATER_LOG_RETENTION_BYTES=spare)
        self.revive()
        for _ in eventually(60):  # it drops file by file, and says so when it is done
            if done := re.search(r"retention dropped the offsets 0 to (\d+)", self.broker.log):
                return int(done[1]) + 1
        raise AssertionError


class Stand(BrokerStand):
    """A broker, Spark, and what the tests do with both."""

    def __init__(self, broker: BrokerProcess, spark: SparkSession, directory: Path) -> None:
        super().__init__(broker)
        self.spark, self._directory = spark, directory

    def options(self, **options: Any) -> dict[str, Any]:
        return {"servers": self.servers} | options

    def read(self, **options: Any) -> DataFrame:
        return self.spark.read.format("headwater").options(**self.options(**options)).load()

    def stream(self, **options: Any) -> DataFrame:
        given = self.options(startingOffsets="earliest") | options
        return self.spark.readStream.format("headwater").options(**given).load()

    def frame(self, columns: str, *values: Any, partitions: int = 1) -> DataFrame:
        return self.spark.createDataFrame(list(values), columns).coalesce(partitions)

    def write(self, frame: DataFrame, **options: Any) -> None:
        frame.write.format("headwater").mode("append").options(**self.options(**options)).save()

    def start(
        self, frame: DataFrame, checkpoint: str = "checkpoint", now: bool = True, **options: Any
    ) -> StreamingQuery:
        """Write a stream to the broker; `now`: only what is there."""
        place = str(self._directory / checkpoint)
        given = self.options(checkpointLocation=place) | options
        writer = frame.writeStream.format("headwater").options(**given)
        trigger = {"availableNow": True} if now else {"processingTime": "0 seconds"}
        return writer.trigger(**trigger).start()

    def run(self, frame: DataFrame, checkpoint: str = "checkpoint", **options: Any) -> Any:
        """Write what there is of a stream to the broker; returns the progress of each batch."""
        query = self.start(frame, checkpoint, **options)
        try:
            assert query.awaitTermination(QUERY_SECONDS)
            return query.recentProgress
        finally:
            query.stop()

    def checkpoint(self, name: str = "checkpoint") -> Path:
        return self._directory / name


@pytest.fixture
def broker_stand(tmp_path: Path) -> Iterator[BrokerStand]:
    with BrokerProcess(tmp_path / "data", **SMALL_SEGMENTS) as broker:
        broker.keep_ports()
        made = BrokerStand(broker)
        yield made
        made.client.close()


@pytest.fixture
def stand(tmp_path: Path, spark: SparkSession) -> Iterator[Stand]:
    with BrokerProcess(tmp_path / "data", **SMALL_SEGMENTS) as broker:
        broker.keep_ports()  # nobody else answers there when a test has ended it
        made = Stand(broker, spark, tmp_path)
        yield made
        made.client.close()


def ordered(frame: DataFrame) -> Any:
    """All rows as an Arrow table, by offset."""
    table = frame.toArrow()
    return table.sort_by("offset")


def values(frame: DataFrame) -> list[bytes]:
    found: list[bytes] = ordered(frame).column("value").to_pylist()
    return found


def numbered(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]
