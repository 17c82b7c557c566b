"""A broker with a log of some length, and Spark next to it."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyarrow import flight

from bench.brokers import HOST, Server, Yard
from bench.crew import Crew, LoadFailed
from bench.load.bulk import Published
from bench.spark.load import fill
from bench.spark.scale import Scale
from bench.wire import Aim

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FILL_SECONDS = 600.0
QUERY_SECONDS = 600
CALM_SECONDS = 60.0
TOPIC = "bench/rows"

_SETTINGS = {"listen.flight": f"{HOST}:0"}


class Broker:
    """A broker that runs, and what the measurements ask of it."""

    def __init__(self, server: Server, scale: Scale) -> None:
        self.server = server
        self._scale = scale
        host, port = server.address("flight")
        self.servers = f"{host}:{port}"
        self._client = flight.connect(f"grpc://{self.servers}")

    def close(self) -> None:
        self._client.close()

    def aim(self, wire: str, topic: str) -> Aim:
        return Aim(wire, self.server.address(wire), topic, self._scale.payload_bytes)

    def end(self) -> int:
        """So many messages are durable."""
        (answer,) = self._client.do_action(flight.Action("log", b"{}"))
        end: int = json.loads(answer.body.to_pybytes())["end"]
        return end

    def wait_for(self, count: int) -> None:
        """Until so many messages are durable. One that was sent is not there at once."""
        deadline = time.monotonic() + FILL_SECONDS
        while self.end() < count:
            if time.monotonic() > deadline:
                raise LoadFailed(f"the log has {self.end()} messages instead of {count}")
            time.sleep(0.01)

    def fill(self, count: int) -> None:
        """So many messages, and peace: full segments are compressed later."""
        with Crew() as crew:
            crew.start(fill, self.aim("psmb", TOPIC), count).wait(Published, FILL_SECONDS)
        if self.end() != count:
            raise LoadFailed(f"the log has {self.end()} messages instead of {count}")
        self.calm_down()

    def calm_down(self) -> None:
        deadline = time.monotonic() + CALM_SECONDS
        busy = 1.0
        while busy > 0.05 and time.monotonic() < deadline:
            before = self.server.cpu_seconds()
            time.sleep(0.5)
            busy = (self.server.cpu_seconds() - before) / 0.5

    def save(self, directory: Path) -> None:
        """All messages as Parquet files, with the same columns."""
        directory.mkdir()
        end, step = self.end(), self._scale.rows_per_file
        for start in range(0, end, step):
            request = {"start": start, "end": min(start + step, end)}
            table = self._client.do_get(flight.Ticket(json.dumps(request).encode())).read_all()
            pq.write_table(table, directory / f"{start:012d}.parquet")


class Stand:
    """Where things are measured. Nothing is left of it afterwards."""

    def __init__(self, yard: Yard, work: Path, spark: "SparkSession", scale: Scale) -> None:
        self._yard, self._work, self._number = yard, work, 0
        self.spark, self.scale = spark, scale

    @contextmanager
    def broker(self, count: int = 0) -> Iterator[Broker]:
        """A new one, with so many messages in its log."""
        with self._yard.server("headwater", _SETTINGS) as server:
            broker = Broker(server, self.scale)
            try:
                if count:
                    broker.fill(count)
                yield broker
            finally:
                broker.close()

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """The path of a directory that does not exist yet, and will not any more."""
        self._number += 1
        path = self._work / f"spark-{self._number:03d}"
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def stream(self, broker: Broker, topic: str = TOPIC, start: str = "earliest") -> "DataFrame":
        options = {"servers": broker.servers, "subscribe": topic, "startingOffsets": start}
        return self.spark.readStream.format("headwater").options(**options).load()

    @contextmanager
    def query(
        self, frame: "DataFrame", sink: str, options: dict[str, str], now: bool = False
    ) -> Iterator["StreamingQuery"]:
        """A query that runs. `now`: it ends with what is there."""
        trigger: dict[str, Any] = {"availableNow": True} if now else {"processingTime": "0 seconds"}
        with self.directory() as checkpoint:
            given = {"checkpointLocation": str(checkpoint), **options}
            writer = frame.writeStream.format(sink).options(**given)
            query = writer.trigger(**trigger).start()
            try:
                yield query
            finally:
                query.stop()

    def finish(self, query: "StreamingQuery") -> list[Any]:
        """Wait for the end of a query that ends; returns the progress of each micro-batch."""
        if not query.awaitTermination(QUERY_SECONDS):
            raise LoadFailed("Spark did not come to the end")
        return list(query.recentProgress)

    def drain(self, frame: "DataFrame") -> tuple[float, float]:
        """Read all there is of a stream: seconds from start to end, and those in micro-batches."""
        began = time.monotonic()
        with self.query(frame, "noop", {}, now=True) as query:
            progress = self.finish(query)
            seconds = time.monotonic() - began
        rows = sum(each["numInputRows"] for each in progress)
        if rows != self.scale.rows:
            raise LoadFailed(f"Spark read {rows} rows instead of {self.scale.rows}")
        return seconds, busy_seconds(progress)


def busy_seconds(progress: list[Any]) -> float:
    """The time that micro-batches took."""
    milliseconds: int = sum(each["durationMs"]["triggerExecution"] for each in progress)
    return milliseconds / 1000
