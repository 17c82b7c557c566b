"""One function for each question. What it finds is (case, who, figures)."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.crew import Crew, LoadFailed
from bench.figures import MIB, Figures, Metric, latency
from bench.load.bulk import Published, chunk, publish_paced
from bench.load.pairs import Looped, probe
from bench.spark import delays
from bench.spark.load import Taken, publish_stamped, take
from bench.spark.pipeline import PIPELINE, pipeline
from bench.spark.stand import QUERY_SECONDS, TOPIC, Broker, Stand, busy_seconds

Findings = list[tuple[str, str, Figures]]

SOURCE, SINK, LATENCY, CATCHING_UP, BESIDE = "source", "sink", "latency", "catching up", "beside"
LOG, FILES = "headwater", "parquet"
BATCH, STREAM = "batch", "stream"
SPARK, BROKER, READER = "spark", "broker", "reader"
ALONE, WITH_READER = "alone", "beside a Flight reader"
WIRES = ("psmb", "bpsp")


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    title: str
    run: Callable[[Stand], Findings]


def source(stand: Stand) -> Findings:
    """Log and files in turn, after one round for all that happens once."""
    rows, case = stand.scale.rows, f"{stand.scale.rows:,} rows"
    found: Findings = []
    with stand.broker(rows) as broker, stand.directory() as files:
        broker.save(files)
        stream = stand.stream(broker)
        parquet = stand.spark.readStream.schema(stream.schema).parquet(str(files))
        for number in range(stand.scale.rounds + 1):
            for who, frame in ((LOG, stream), (FILES, parquet)):
                before = broker.server.cpu_seconds()
                seconds, busy = stand.drain(frame)
                figures = {Metric.RATE: rows / seconds, Metric.BATCH_RATE: rows / busy}
                if who == LOG:
                    figures |= _cost(broker, before, rows)
                if number:
                    found.append((case, who, figures))
    return found


def _cost(broker: Broker, cpu_before: float, rows: int) -> Figures:
    used = broker.server.cpu_seconds() - cpu_before
    return {
        Metric.CPU: used * 1e6 / rows,
        Metric.PEAK: broker.server.peak_memory() / MIB,
    }


def sink(stand: Stand) -> Findings:
    """Rows that Spark makes itself, until they are durable."""
    with stand.broker() as broker:
        _write(stand, broker, max(1, stand.scale.sink_rows // 10))  # what happens once
        found = [
            (BATCH, LOG, _write(stand, broker, stand.scale.sink_rows))
            for _ in range(stand.scale.rounds)
        ]
    with stand.broker() as broker:
        return found + _write_stream(stand, broker)


def _payload(stand: Stand, column: str) -> str:
    """A number of eight digits, and what is left. (`rpad` alone would take half of the time.)"""
    rest = stand.scale.payload_bytes - 8
    return f"concat(CAST({column} % 10000000 + 10000000 AS STRING), repeat('-', {rest})) AS value"


def _write(stand: Stand, broker: Broker, rows: int) -> Figures:
    first, cpu = broker.end(), broker.server.cpu_seconds()
    frame = stand.spark.range(rows).selectExpr(_payload(stand, "id"))
    options = {"servers": broker.servers, "topic": "bench/sink"}
    began = time.monotonic()
    frame.write.format("headwater").options(**options).mode("append").save()
    seconds = time.monotonic() - began
    if broker.end() - first != rows:
        raise LoadFailed(f"{broker.end() - first} rows are in the log instead of {rows}")
    return {Metric.RATE: rows / seconds, **_cost(broker, cpu, rows)}


def _write_stream(stand: Stand, broker: Broker) -> Findings:
    """A query of one micro-batch, several times. The first one is for all that happens once."""
    rows = stand.scale.sink_rows_per_batch
    frame = (
        stand.spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .load()
        .selectExpr(_payload(stand, "value"))
    )
    options = {"servers": broker.servers, "topic": "bench/sink"}
    case = f"{STREAM}, {rows:,} rows in a micro-batch"
    found: Findings = []
    for number in range(stand.scale.rounds + 1):
        first, cpu = broker.end(), broker.server.cpu_seconds()
        with stand.query(frame, "headwater", options, now=True) as query:
            progress = stand.finish(query)
        if broker.end() - first != rows:
            raise LoadFailed(f"{broker.end() - first} rows are in the log instead of {rows}")
        figures = {Metric.RATE: rows / busy_seconds(progress), **_cost(broker, cpu, rows)}
        if number:
            found.append((case, LOG, figures))
    return found


def _wait(query: Any, enough: Callable[[Any], bool]) -> Any:
    """The progress of a query that is enough."""
    deadline = time.monotonic() + QUERY_SECONDS
    while time.monotonic() < deadline:
        if (error := query.exception()) is not None:
            raise LoadFailed(str(error))
        progress = query.lastProgress
        if progress is not None and enough(progress):
            return progress
        time.sleep(0.05)
    raise LoadFailed("Spark took too long")


def _wait_until_idle(query: Any) -> None:
    deadline = time.monotonic() + QUERY_SECONDS
    while not query.status["message"].startswith("Waiting for"):
        if (error := query.exception()) is not None or time.monotonic() > deadline:
            raise LoadFailed(str(error or "Spark took too long"))
        time.sleep(0.05)


def publish_to_sink(stand: Stand) -> Findings:
    """From a publisher's `send` to `write` of a sink in Python, with trigger 0."""
    scale, topic = stand.scale, "bench/delay"
    register(stand.spark)
    total = scale.latency_warm_up + scale.latency_seconds
    with stand.broker() as broker, stand.directory() as noted, Crew() as crew:
        noted.mkdir()
        publisher = crew.start(
            publish_stamped, broker.aim("psmb", topic), scale.latency_rate, total
        )
        publisher.wait(str)
        stream = stand.stream(broker, topic, "latest")
        with stand.query(stream, delays.NAME, {"directory": str(noted)}) as query:
            _wait_until_idle(query)  # it has found out where the log ends
            publisher.go()
            sent = publisher.wait(Published, total + 60)
            broker.wait_for(sent.messages)
            query.processAllAvailable()
        found = delays.read(noted)
    if len(found) != sent.messages:
        raise LoadFailed(f"{len(found)} of {sent.messages} messages got to the sink")
    warm = sent.started + int(scale.latency_warm_up * 1e9)
    taken = [arrived - stamp for stamp, arrived in found if stamp >= warm]
    seconds = (sent.finished - sent.started) / 1e9
    figures = {Metric.RATE: sent.messages / seconds, **latency(taken)}
    return [(f"{scale.latency_rate:,} messages/s", SPARK, figures)]


def register(spark: Any) -> None:
    """Spark's workers get the code itself: where they run they need not find the benchmark."""
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(delays)  # type: ignore[no-untyped-call]
    spark.dataSource.register(delays.Delays)


def catch_up(stand: Stand) -> Findings:
    """Until Spark is no more than a second behind the broker, which takes more all the time."""
    scale = stand.scale
    with stand.broker(scale.backlog) as broker, Crew() as crew:
        aim = broker.aim("psmb", TOPIC)
        data, count = chunk(aim)
        pace = scale.backlog_rate * len(data) // count
        publisher = crew.start(publish_paced, aim, float(QUERY_SECONDS), pace)
        publisher.wait(str)
        publisher.step(str)
        publisher.go()
        first, began = broker.end(), time.monotonic()
        with stand.query(stand.stream(broker), "noop", {}) as query:
            done = _wait(query, lambda each: broker.end() - _reached(each) <= scale.backlog_rate)
            seconds, last = time.monotonic() - began, broker.end()
    case = f"{scale.backlog:,} rows, and {scale.backlog_rate:,} more a second"
    return [
        (case, SPARK, {Metric.RATE: _reached(done) / seconds, Metric.CAUGHT_UP: seconds}),
        (case, BROKER, {Metric.RATE: (last - first) / seconds}),
    ]


def _reached(progress: Any) -> int:
    offset = progress["sources"][0]["endOffset"]
    offset = json.loads(offset) if isinstance(offset, str) else offset
    return int(offset["offset"]) if offset else 0


def beside(stand: Stand) -> Findings:
    """Pairs of a protocol, alone and next to someone who reads as fast as he can."""
    scale = stand.scale
    rows = -(-scale.read_bytes // scale.payload_bytes)
    found: Findings = []
    with stand.broker(rows) as broker:
        for _ in range(scale.rounds):
            for wire in WIRES:
                found.append((ALONE, wire, _probe(stand, broker, wire)))
                figures, taken = _probe_beside(stand, broker, wire, rows)
                reading = {Metric.RATE: taken.rows / taken.seconds}
                found.append((WITH_READER, wire, figures))
                found.append((f"{WITH_READER}: {wire}", READER, reading))
                broker.calm_down()
    return found


def _probe(stand: Stand, broker: Broker, wire: str) -> Figures:
    scale = stand.scale
    with Crew() as crew:
        prober = crew.start(
            probe, broker.aim(wire, "bench/probe"), scale.probe_rate, scale.probe_seconds
        )
        prober.wait(str)
        return latency(prober.step(Looped).nanoseconds)


def _probe_beside(stand: Stand, broker: Broker, wire: str, rows: int) -> tuple[Figures, Taken]:
    scale, address = stand.scale, broker.server.address("flight")
    with Crew() as crew:
        # It begins before and ends after the probe.
        seconds = scale.probe_seconds + 0.5
        reader = crew.start(take, address, 0, rows, scale.read_bytes, seconds)
        prober = crew.start(
            probe, broker.aim(wire, "bench/probe"), scale.probe_rate, scale.probe_seconds
        )
        reader.wait(str)
        prober.wait(str)
        reader.go()
        time.sleep(0.2)
        figures = latency(prober.step(Looped).nanoseconds)
        return figures, reader.wait(Taken)


ALL = (
    Measure(SOURCE, "the log and Parquet files as sources", source),
    Measure(SINK, "the log as a sink", sink),
    Measure(LATENCY, "from a publisher to a sink in Python", publish_to_sink),
    Measure(CATCHING_UP, "catching up while more is published", catch_up),
    Measure(BESIDE, "a protocol's clients beside a reader", beside),
    Measure(PIPELINE, "the pipeline's tables", pipeline),
)
