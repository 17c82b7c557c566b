"""Reading the log with Spark, from a real broker."""

import contextlib
import json
import logging
import os
import pickle
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from headwater.errors import ConfigError, Disconnected, HeadwaterError, Refusal
from headwater.spark import source
from headwater.spark.flight_client import FlightClient, LogBounds, RecordSelection
from headwater.spark.options import SourceOptions, parse
from headwater.spark.source import BatchReader, OffsetRange, StreamReader, _edges
from tests.e2e.process import BrokerProcess, eventually, held_port
from tests.spark.conftest import SPARK_TIMEOUT, BrokerStand, Stand, numbered, ordered, values
from tests.tls.certificates import Authority

pytestmark = SPARK_TIMEOUT

TLS = Path(__file__).parent.parent / "e2e" / "tls"
ALL = {"subscribePattern": ".*"}
# For brokers that stay away, and for those that come back.
HASTY = {"fetch.numRetries": "1", "fetch.retryIntervalMs": "10"}
PATIENT = {"fetch.numRetries": "500", "fetch.retryIntervalMs": "200"}


def options_of(stand: BrokerStand, **more: str) -> SourceOptions:
    chosen = {} if "subscribe" in more else ALL
    return parse(SourceOptions, {"servers": stand.servers} | chosen | more)


def batch_reader(stand: BrokerStand, **more: str) -> BatchReader:
    options = options_of(stand, **more)
    return BatchReader(options, source.schema(options))


def stream_reader(stand: BrokerStand, **more: str) -> StreamReader:
    options = options_of(stand, **more)
    return StreamReader(options, source.schema(options))


@contextlib.contextmanager
def failing(words: str) -> Iterator[None]:
    """What a user sees in the exception that Spark raises."""
    with pytest.raises(PySparkException) as raised:
        yield
    assert words in str(raised.value), str(raised.value)


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """An address at which nobody answers, and nobody will."""
    with held_port() as holding:
        yield f"127.0.0.1:{holding.getsockname()[1]}"


# Batch


@pytest.mark.smoke
def test_a_batch_is_the_log(stand: Stand) -> None:
    stand.publish("a/x", *numbered(0, 100), colour="blue")
    stand.append("a/y", *numbered(100, 5000))
    stand.publish("b", b"", b"\xff\x00")
    stand.publish("ü/€", "grüße".encode(), name="ö", other="")
    everything = stand.log()
    assert len(everything) == 5003

    found = ordered(stand.read(includeHeaders=True, minPartitions=7, **ALL))
    assert found.schema.names == everything.schema.names
    assert found.cast(everything.schema).equals(everything)
    assert len(batch_reader(stand, minPartitions="7").partitions()) == 7
    assert len(batch_reader(stand).partitions()) == 1, "it is small"

    without = everything.drop_columns("headers")
    chosen = ordered(stand.read(subscribePattern="(?i)A/[^x]|b"))
    assert chosen.cast(without.schema).equals(without.slice(100, 4902))
    assert values(stand.read(subscribe="b, ü/€,none")) == [b"", b"\xff\x00", "grüße".encode()]


def test_nothing_to_read(stand: Stand) -> None:
    stand.run(stand.stream(**ALL), topic="out")
    assert stand.flight.log() == LogBounds(0, 0)
    assert batch_reader(stand).partitions() == []
    stand.append("t", b"1")
    assert stand.read(subscribe="none").count() == 0


def test_offsets_and_timestamps(broker_stand: BrokerStand) -> None:
    broker_stand.append("t", *numbered(0, 50))
    time.sleep(0.01)
    middle = int(time.time() * 1000)
    time.sleep(0.01)
    broker_stand.append("t", *numbered(50, 100))

    def read(**more: str) -> list[int]:
        reader = batch_reader(broker_stand, **more)
        tables = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [number for batch in tables for number in batch.column("offset").to_pylist()]

    assert read() == list(range(100))
    assert read(startingOffsets="earliest", endingOffsets="latest") == list(range(100))
    assert read(startingOffsets="10", endingOffsets='{"offset": 20}') == list(range(10, 20))
    assert read(startingOffsets="20", endingOffsets="10") == []
    assert read(startingOffsets="100") == []
    assert read(startingTimestamp=str(middle)) == list(range(50, 100))
    assert read(endingTimestamp=str(middle)) == list(range(50))
    assert read(startingTimestamp=str(middle), startingOffsets="3") == list(range(50, 100))
    assert read(startingTimestamp=str(middle + 3_600_000)) == []
    assert read(startingTimestamp="0", endingOffsets="5") == list(range(5))
    with pytest.raises(ConfigError, match="startingOffsets must not be latest in batch"):
        read(startingOffsets="latest")
    with pytest.raises(ConfigError, match="endingOffsets must not be behind the end of the log"):
        read(endingOffsets="101")
    with pytest.raises(ConfigError, match="the columns are fixed"):
        BatchReader(
            options_of(broker_stand), source.schema(options_of(broker_stand, includeHeaders="true"))
        )


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 10**12)), min_size=1, max_size=20),
    st.integers(1, 50),
    st.integers(0, 10**9),
)
def test_partitions_cover_a_range(pieces: list[tuple[int, int]], count: int, start: int) -> None:
    ends, at = [], start
    for size, _ in pieces:
        at += size
        ends.append(at)
    count = min(count, at - start)
    edges = _edges(ends, [weight for _, weight in pieces], start, count)
    assert edges[0] == start
    assert edges[-1] == at
    assert len(edges) == count + 1
    assert edges == sorted(set(edges))


def test_partitions_weigh_about_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    edges = _edges([1000, 1100], [1000, 9000], 0, 10)
    assert edges == [0, 1000, 1011, 1022, 1033, 1044, 1056, 1067, 1078, 1089, 1100]

    def partitions(size: int, **more: str) -> int:
        options = parse(SourceOptions, {"subscribe": "a"} | more)
        reader = BatchReader(options, source.schema(options))
        monkeypatch.setattr(
            FlightClient, "split", lambda self, start, end, most: [(start, end, size)]
        )
        return len(reader._partitions(0, 1000))

    monkeypatch.setattr(source, "_cores", lambda: 4)
    assert partitions(1000) == 1
    assert partitions(12 << 20) == 3
    assert partitions(100 << 20) == 4
    assert partitions(1 << 30) == 16
    assert partitions(1000, minPartitions="9") == 9
    assert partitions(1000, minPartitions="5000") == 1000, "one offset each"


# The connection


def test_errors_name_the_option(stand: Stand) -> None:
    stand.append("t", b"1")
    with failing('there is no option "subscrib"; did you mean "subscribe"?'):
        stand.read(subscrib="t")
    with failing("exactly one of the options subscribe"):
        stand.stream()
    with failing("the option subscribePattern must be a PCRE pattern: bad pattern"):
        stand.read(subscribePattern="(").count()
    with failing("endingOffsets means nothing in a streaming query: leave it out"):
        stand.run(stand.stream(endingOffsets="5", **ALL), "one", topic="out")
    with failing("the option subscribePattern must be a PCRE pattern: bad pattern"):
        stand.run(stand.stream(subscribePattern="("), "two", topic="out")
    with nobody() as away, failing(f"no broker answers at {away} (failed to connect"):
        stand.read(**(HASTY | ALL | {"servers": away})).count()


def test_a_broker_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    with nobody() as first, nobody() as second, caplog.at_level(logging.WARNING):
        broker = FlightClient((first, second), retries=2, interval=0.01)
        with pytest.raises(
            Disconnected, match=f"no broker answers at {first}, {second} .*asked 3 times"
        ):
            broker.log()
    assert [record.getMessage()[-8:] for record in caplog.records] == ["(1 of 2)", "(2 of 2)"]
    assert "gRPC" not in caplog.text


def test_the_next_server_is_tried(broker_stand: BrokerStand) -> None:
    broker_stand.append("t", b"1", b"2")
    with nobody() as away:
        broker = pickle.loads(pickle.dumps(FlightClient((away, broker_stand.servers), retries=0)))
        assert broker.log() == LogBounds(0, 2)
        assert sum(map(len, broker.read(RecordSelection(), 0, 2))) == 2
        broker.close()
        assert broker.log() == LogBounds(0, 2)


@contextlib.contextmanager
def slow_line(port: int, seconds: float) -> Iterator[str]:
    """The address of a line to a port that takes so long to answer the first time."""

    def pump(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def serve() -> None:
        near, _ = listener.accept()
        time.sleep(seconds)
        with near, socket.create_connection(("127.0.0.1", port)) as far:
            back = threading.Thread(target=pump, args=(far, near))
            back.start()
            pump(near, far)
            back.join()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        serving.join()


def test_a_broker_may_take_its_time_to_answer(broker_stand: BrokerStand) -> None:
    """On a slow line, or where it has much else to do, it is not away."""
    with slow_line(broker_stand.broker.ports["flight"], seconds=1.0) as address:
        broker = FlightClient((address,), retries=0)
        try:
            assert broker.log() == LogBounds(0, 0)
        finally:
            broker.close()


def test_token_and_tls(tmp_path: Path) -> None:
    toml = f'[tls]\ncertificate = "{TLS}/certificate.pem"\nkey = "{TLS}/key.pem"\n'
    settings = {
        "HEADWATER_LISTEN_FLIGHT": "tls://127.0.0.1:0",
        "HEADWATER_FLIGHT_TOKEN": "a token",
        "HEADWATER_LISTENER_FLIGHT_ANONYMOUS": "auto",
    }
    with BrokerProcess(tmp_path / "data", toml=toml, **settings) as running:
        given = {
            "servers": f"localhost:{running.ports['flight']}",
            "subscribe": "a",
            "tls.enabled": "true",
            "tls.caFile": str(TLS / "certificate.pem"),
            "token": "a token",
        }
        broker = FlightClient.of(parse(SourceOptions, given | HASTY))
        assert pickle.loads(pickle.dumps(broker)).log() == LogBounds(0, 0)
        assert "a token" not in repr(broker)
        wrong = given | {"token": "another"} | HASTY
        with pytest.raises(ConfigError, match="wants another token: set the option token"):
            FlightClient.of(parse(SourceOptions, wrong)).log()
        # Whoever runs as the same user on the same machine need not be told.
        without = {name: text for name, text in (given | HASTY).items() if name != "token"}
        FlightClient.of(parse(SourceOptions, without)).log()
        plain = {name: given[name] for name in ("servers", "subscribe", "token")}
        with pytest.raises(Disconnected, match="no broker answers"):
            FlightClient.of(parse(SourceOptions, plain | HASTY)).log()
    with pytest.raises(ConfigError, match=r"tls\.caFile must name a file that can be read"):
        FlightClient.of(parse(SourceOptions, given | {"tls.caFile": str(tmp_path / "none.pem")}))


def test_a_certificate_of_its_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, own = authority.server(), authority.client("spark")
    settings = {
        "HEADWATER_LISTEN_FLIGHT": "tls://127.0.0.1:0",
        "HEADWATER_TLS_CERTIFICATE": str(pair.certificate),
        "HEADWATER_TLS_KEY": str(pair.key),
        "HEADWATER_LISTENER_FLIGHT_CLIENT_CA": str(authority.certificate),
    }
    with BrokerProcess(tmp_path / "data", **settings) as running:
        given = {
            "servers": f"localhost:{running.ports['flight']}",
            "subscribe": "a",
            "tls.enabled": "true",
            "tls.caFile": str(authority.certificate),
        }
        with pytest.raises(Disconnected, match="no broker answers"):
            FlightClient.of(parse(SourceOptions, given | HASTY)).log()
        given |= {"tls.certFile": str(own.certificate), "tls.keyFile": str(own.key)}
        broker = FlightClient.of(parse(SourceOptions, given | HASTY))
        assert pickle.loads(pickle.dumps(broker)).log() == LogBounds(0, 0)
        assert "PRIVATE" not in repr(broker)


def test_reading_goes_on_after_the_broker_was_killed(broker_stand: BrokerStand) -> None:
    for first in range(0, 300_000, 30_000):
        broker_stand.append("t", *numbered(first, first + 30_000))
    reader = batch_reader(broker_stand, **PATIENT)
    found: list[int] = []
    for batch in reader.read(OffsetRange(0, 300_000)):
        if not found:
            broker_stand.broker.kill()
            starter = threading.Timer(0.5, broker_stand.broker.start)
            starter.start()
        found += batch.column("offset").to_pylist()
    starter.join()
    assert found == list(range(300_000))


# Streams, without Spark: the reader as Spark uses it


def ask(reader: StreamReader, start: int, limited: bool = True) -> int:
    limit = reader.getDefaultReadLimit() if limited else ReadAllAvailable()
    return reader.latestOffset({"offset": start}, limit)["offset"]


def test_where_a_stream_begins(broker_stand: BrokerStand) -> None:
    broker_stand.append("t", *numbered(0, 10))
    assert stream_reader(broker_stand).initialOffset() == {"offset": 10}
    assert stream_reader(broker_stand, startingOffsets="earliest").initialOffset() == {"offset": 0}
    assert stream_reader(broker_stand, startingOffsets="4").initialOffset() == {"offset": 4}
    assert stream_reader(broker_stand, startingTimestamp="0").initialOffset() == {"offset": 0}
    with pytest.raises(ConfigError, match=r"startingOffsets must not be behind .* at most 10, not"):
        stream_reader(broker_stand, startingOffsets="11").initialOffset()
    with pytest.raises(HeadwaterError, match="which is not one of this source"):
        stream_reader(broker_stand).latestOffset({"t": 4}, ReadAllAvailable())


def test_how_much_a_trigger_takes(broker_stand: BrokerStand) -> None:
    for _ in range(10):
        # Random: a full segment is compressed at some time, and sizes are those on disk.
        broker_stand.append("t", *[os.urandom(1000) for _ in range(100)])
    plain = stream_reader(broker_stand)
    assert ask(plain, 0) == 1000
    assert ask(plain, 1000) == 1000
    assert plain.reportLatestOffset() == {"offset": 1000}
    rows = stream_reader(broker_stand, maxOffsetsPerTrigger="300")
    assert [ask(rows, at) for at in (0, 300, 900, 1000)] == [300, 600, 1000, 1000]
    assert ask(rows, 0, limited=False) == 1000
    size = stream_reader(broker_stand, maxBytesPerTrigger="250k")
    first = ask(size, 0)
    assert 150 <= first <= 300
    assert ask(size, first) > first
    assert ask(stream_reader(broker_stand, maxBytesPerTrigger="1"), 0) >= 1
    both = stream_reader(broker_stand, maxBytesPerTrigger="250k", maxOffsetsPerTrigger="50")
    assert ask(both, 0) == 50


def test_a_trigger_can_wait_for_more(
    broker_stand: BrokerStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0  # how long this test takes means nothing
    monkeypatch.setattr(source, "time", SimpleNamespace(monotonic=lambda: now))
    broker_stand.append("t", *numbered(0, 10))
    reader = stream_reader(broker_stand, minOffsetsPerTrigger="20", maxTriggerDelay="500ms")
    assert ask(reader, 0) == 10, "the first one does not wait, as in Kafka's source"
    broker_stand.append("t", *numbered(10, 20))
    assert ask(reader, 10) == 10
    assert reader.reportLatestOffset() == {"offset": 20}
    now += 0.4
    assert ask(reader, 10) == 10
    now += 0.2
    assert ask(reader, 10) == 20
    broker_stand.append("t", *numbered(20, 40))
    assert ask(reader, 20) == 40
    broker_stand.append("t", b"40")
    reader.prepareForTriggerAvailableNow()
    assert ask(reader, 40) == 41


def test_available_now_ends_where_it_began(broker_stand: BrokerStand) -> None:
    broker_stand.append("t", *numbered(0, 10))
    reader = stream_reader(broker_stand, maxOffsetsPerTrigger="7")
    reader.prepareForTriggerAvailableNow()
    broker_stand.append("t", *numbered(10, 20))
    assert [ask(reader, at) for at in (0, 7, 10, 15)] == [7, 10, 10, 15]
    assert reader.reportLatestOffset() == {"offset": 20}


def fill(stand: BrokerStand, count: int = 12) -> int:
    """So much that retention has something to drop, and nothing that could be compressed."""
    for _ in range(count):
        stand.append("t", *[os.urandom(1000) for _ in range(50)])
    return stand.flight.log().end


def test_retention_overtakes_a_checkpoint(
    broker_stand: BrokerStand, caplog: pytest.LogCaptureFixture
) -> None:
    end = fill(broker_stand)
    start = broker_stand.drop_oldest()
    assert 10 < start < end
    missing = f"the offsets 10 to {start - 1} are no longer in the log, which begins at {start}"
    strict = stream_reader(broker_stand)
    for attempt in (
        lambda: ask(strict, 10),
        lambda: strict.partitions({"offset": 10}, {"offset": end}),
        lambda: list(strict.read(OffsetRange(10, end))),
        lambda: batch_reader(broker_stand, startingOffsets="10").partitions(),
    ):
        with pytest.raises(HeadwaterError, match=f"{missing}. .* failOnDataLoss to false"):
            attempt()
    assert list(strict.partitions({"offset": start}, {"offset": end}))

    lenient = stream_reader(broker_stand, failOnDataLoss="false", maxOffsetsPerTrigger="5")
    with caplog.at_level(logging.WARNING):
        assert ask(lenient, 10) == start + 5
        assert not caplog.messages
        assert list(lenient.partitions({"offset": 10}, {"offset": end})) == [
            OffsetRange(start, end)
        ]
        assert caplog.messages == [f"{missing}; reading goes on behind them"]
    assert list(lenient.partitions({"offset": 1}, {"offset": 5})) == []
    found = [n for b in lenient.read(OffsetRange(10, end)) for n in b.column("offset").to_pylist()]
    assert found == list(range(start, end))


def test_another_log_than_the_checkpoints(broker_stand: BrokerStand) -> None:
    broker_stand.append("t", *numbered(0, 10))
    with pytest.raises(HeadwaterError, match=r"log ends at 10, but the checkpoint .* is at 50"):
        ask(stream_reader(broker_stand), 50)
    lenient = stream_reader(broker_stand, failOnDataLoss="false")
    assert ask(lenient, 50) == 10
    assert list(lenient.partitions({"offset": 50}, {"offset": 10})) == [OffsetRange(0, 10)]


def test_what_the_broker_refuses_is_told(broker_stand: BrokerStand) -> None:
    with pytest.raises(Refusal, match="the log ends at 0, before 10"):
        list(batch_reader(broker_stand).read(OffsetRange(0, 10)))


# Streams with Spark


def of(progress: Any, what: str) -> list[int]:
    return [json.loads(each["sources"][0][what])["offset"] for each in progress]


@pytest.mark.smoke
def test_a_stream_in_steps_with_its_lag(stand: Stand) -> None:
    stand.append("t", *numbered(0, 250))
    frame = stand.stream(maxOffsetsPerTrigger=100, **ALL).select("value", "topic")
    progress = stand.run(frame, topic="out")
    assert of(progress, "endOffset") == [100, 200, 250]
    assert [each["numInputRows"] for each in progress] == [100, 100, 50]
    assert of(progress, "latestOffset") == [250, 350, 450], "it writes to the same log"
    assert stand.values("out") == numbered(0, 250)


def test_a_changed_pattern_and_data_loss(stand: Stand) -> None:
    """The same checkpoint all the way."""
    stand.append("a", *numbered(0, 5))
    stand.append("b", *numbered(5, 10))
    stand.run(stand.stream(subscribe="a"), topic="out")
    assert stand.values("out") == numbered(0, 5)
    stand.append("a", *numbered(10, 15))
    stand.append("b", *numbered(15, 20))
    stand.run(stand.stream(subscribePattern="[bc]"), topic="out")
    assert stand.values("out") == numbered(0, 5) + numbered(15, 20)

    seen = int(stand.flight.log().end)
    fill(stand)
    start = stand.drop_oldest()
    assert start > seen
    words = f" to {start - 1} are no longer in the log, which begins at {start}. To go on behind"
    with failing(words):
        stand.run(stand.stream(subscribe="t"), topic="out")
    expected = stand.values("t")
    stand.run(stand.stream(subscribe="t", failOnDataLoss=False), topic="out")
    assert stand.values("out")[-len(expected) :] == expected


def test_a_stream_survives_a_restart_of_the_broker(stand: Stand) -> None:
    frame = stand.stream(subscribe="t", **PATIENT)
    query = stand.start(frame, now=False, topic="out", **PATIENT)
    try:
        for number in range(3):
            stand.append("t", *numbered(number * 100, number * 100 + 100))
            for _ in eventually(90):
                if stand.values("out") == numbered(0, (number + 1) * 100):
                    break
            stand.broker.kill()
            time.sleep(0.5)
            stand.revive()
        assert query.isActive
    finally:
        query.stop()
    assert stand.values("out") == numbered(0, 300)
