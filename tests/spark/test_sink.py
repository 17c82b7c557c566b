"""Writing to the log with Spark, into a real broker."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from headwater.errors import ConfigError, HeadwaterError, Refusal
from headwater.spark import sink
from headwater.spark.flight_client import CommitAnswer, FlightClient, LogBounds
from headwater.spark.options import SinkOptions, parse
from headwater.spark.sink import BatchWriter, Sieve, StagedPartition
from tests.e2e.process import BrokerProcess
from tests.flight.client import rows
from tests.spark.conftest import SPARK_TIMEOUT, BrokerStand, Stand, numbered
from tests.spark.test_source import failing

pytestmark = SPARK_TIMEOUT

SCHEMA = "topic string, value string"
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
    "array<string>": ArrayType(StringType()),
}
#: The broker's, so small that a test can go over it.
LIMIT = 1000


def writer(stand: BrokerStand, columns: str = SCHEMA, **options: str) -> BatchWriter:
    options = {"servers": stand.servers} | options
    return BatchWriter(parse(SinkOptions, options), schema_of(columns), overwrite=False)


def schema_of(columns: str) -> StructType:
    """Spark could read this as well, but only where it runs."""
    named = [each.split() for each in columns.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in named])


def batch(columns: str, *values: tuple[Any, ...]) -> Any:
    """What Spark hands to a writer."""
    kinds = {"string": pa.string(), "binary": pa.binary(), "map<string,string>": sink.HEADERS}
    names = [each.split() for each in columns.split(", ")]
    arrays = [
        pa.array(column, kinds[kind])
        for column, (_, kind) in zip(zip(*values, strict=True), names, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in names])


def headers(stand: BrokerStand, topic: str) -> list[dict[str, str]]:
    return [dict(pairs) for pairs in stand.log(topics=[topic]).column("headers").to_pylist()]


# Batch


@pytest.mark.smoke
def test_rows_become_messages(stand: Stand) -> None:
    frame = stand.frame(
        "topic string, value string, headers map<string,string>, other int",
        ("a", "ä", {"x": "1", "y": ""}, 1),
        ("b", "", None, 2),
        ("a", "3", {}, None),
    )
    stand.write(frame)
    table = stand.log()
    assert table.column("topic").to_pylist() == ["a", "b", "a"]
    assert table.column("value").to_pylist() == ["ä".encode(), b"", b"3"]
    assert [dict(pairs) for pairs in table.column("headers").to_pylist()] == [
        {"x": "1", "y": ""},
        {},
        {},
    ]
    assert set(table.column("protocol").to_pylist()) == {"flight"}
    assert all(name.startswith("spark/") for name in table.column("publisher").to_pylist())

    binary = stand.frame("value binary", (bytearray(b"\x00\xff"),))
    stand.write(binary, topic="c")
    assert stand.values("c") == [b"\x00\xff"]
    stand.write(frame.drop("headers"), topic="d")  # the option goes before the column
    assert stand.values("d") == ["ä".encode(), b"", b"3"]
    stand.write(frame.where("false"), topic="e")
    assert stand.values("e") == []


def test_many_rows_of_many_tasks(stand: Stand) -> None:
    numbers = stand.spark.range(0, 30_000, numPartitions=4)
    stand.write(numbers.selectExpr("CAST(id AS STRING) AS value", "'t' AS topic"))
    assert stand.values("t") == numbered(0, 30_000), "in the order of the partitions"


def test_a_named_write_writes_once(stand: Stand) -> None:
    frame = stand.frame(SCHEMA, ("a", "1"), ("a", "2"))
    for _ in range(2):
        stand.write(frame, producer="nightly")
    assert stand.values("a") == [b"1", b"2"]
    stand.write(frame, producer="nightly 2")
    stand.write(frame)
    assert len(stand.values("a")) == 6


def test_what_a_user_is_told(stand: Stand) -> None:
    frame = stand.frame(SCHEMA, ("a", "1"), (None, "2"))
    with failing("row 1 of partition 0 cannot be a message: topic is null. To keep such rows ap"):
        stand.write(frame)
    with failing("the column topic is missing; it must be string: select … AS topic; or set the"):
        stand.write(frame.drop("topic"))
    with failing("the log only grows: write with mode("):
        frame.write.format("headwater").mode("overwrite").options(servers=stand.servers).save()
    for columns, words in (
        ("topic string", "column value is missing; it must be string or binary: select CAST"),
        ("topic string, value int", "column value is int; it must be string or binary"),
        ("topic int, value string", "column topic is int; it must be string"),
        (f"{SCHEMA}, headers map<string,int>", "headers is map<string,int>; it must be map<str"),
        (f"{SCHEMA}, headers array<string>", "headers is array<string>; it must be map<string,"),
    ):
        with pytest.raises(ConfigError, match=words):
            writer(stand, columns)
    assert stand.flight.log() == LogBounds(0, 0)


# Bad rows, without Spark: the writer as Spark uses it


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[BrokerStand]:
    """A broker that takes only small messages and short topics."""
    limits = {"HEADWATER_LIMITS_MESSAGE_BYTES": str(LIMIT), "HEADWATER_LIMITS_TOPIC_BYTES": "20"}
    with BrokerProcess(tmp_path / "data", **limits) as broker:
        made = BrokerStand(broker)
        yield made
        made.client.close()


BAD = [
    ("a", b"good 1", None),
    (None, b"no topic", {"k": "v"}),
    ("a", None, None),
    ("a", b"x" * (LIMIT + 1), {"k": "v"}),
    ("t" * 30, b"long topic", None),
    ("a", b"good 2", {"k": "v"}),
    ("", b"empty topic", None),
    ("a", b"y" * (LIMIT + 2), None),
    ("a", b"half a header", {"k": None, "l": "w"}),
    ("t" * 30, b"long topic again", None),
]
COLUMNS = "topic string, value binary, headers map<string,string>"


REASONS = {
    1: "topic is null",
    2: "value is null",
    3: f"value is over the limit of {LIMIT} bytes",
    4: "the topic is longer than 20 bytes",
    6: "the topic is empty",
    8: "a header has no value",
}


def test_a_bad_row_fails_the_batch(strict: BrokerStand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "PIECE_BYTES", 1)
    good = batch(COLUMNS, *[("a", b"%d" % number, None) for number in range(10)])
    for row, why in REASONS.items():
        mixed = batch(COLUMNS, BAD[0], BAD[row], BAD[5])
        with pytest.raises(HeadwaterError, match=f"^row 21 of partition 0 .*: {why}. To keep"):
            writer(strict, COLUMNS).write(iter([good, good, mixed]))


def test_bad_rows_become_dead_letters(strict: BrokerStand) -> None:
    sinking = writer(strict, COLUMNS, deadLetterTopic="dead")
    message = sinking.write(iter([batch(COLUMNS, *BAD), batch(COLUMNS, *BAD)]))
    assert strict.flight.log() == LogBounds(0, 0)
    sinking.commit([message])
    assert strict.values("a") == [b"good 1", b"good 2"] * 2
    assert strict.values("dead")[:8] == [
        b"no topic",
        b"",
        b"",
        b"long topic",
        b"empty topic",
        b"",
        b"half a header",
        b"long topic again",
    ]
    large = f"value is over the limit of {LIMIT} bytes"
    long = {"dead-reason": "the topic is longer than 20 bytes", "dead-topic": "t" * 30}
    assert headers(strict, "dead")[:8] == [
        {"k": "v", "dead-reason": "topic is null"},
        {"dead-reason": "value is null", "dead-topic": "a"},
        {"k": "v", "dead-reason": large, "dead-topic": "a", "dead-size": str(LIMIT + 1)},
        long,
        {"dead-reason": "the topic is empty", "dead-topic": ""},
        {"dead-reason": large, "dead-topic": "a", "dead-size": str(LIMIT + 2)},
        {"l": "w", "dead-reason": "a header has no value", "dead-topic": "a"},
        long,
    ]
    assert len(strict.values("dead")) == 16


def test_dead_letters_without_headers(strict: BrokerStand) -> None:
    columns = "topic string, value string"
    sinking = writer(strict, columns, deadLetterTopic="dead")
    sinking.commit([sinking.write(iter([batch(columns, ("a", "1"), ("a", None))]))])
    assert strict.values("a") == [b"1"]
    assert headers(strict, "dead") == [{"dead-reason": "value is null", "dead-topic": "a"}]


def test_a_dead_letter_topic_that_is_refused_ends_it(strict: BrokerStand) -> None:
    sinking = writer(strict, COLUMNS, deadLetterTopic="d" * 30)
    with pytest.raises(HeadwaterError, match="does not take the dead letters of this batch: the t"):
        sinking.write(iter([batch(COLUMNS, *BAD)]))


def test_what_is_not_about_a_row_is_told_as_it_is() -> None:
    with pytest.raises(HeadwaterError, match=r"^nonsense$"):
        Sieve("dead", 0).learn("nonsense", [])


# Stages


def test_a_commit_counts_once(broker_stand: BrokerStand) -> None:
    broker, columns = broker_stand.flight, rows(("a", b"1"), ("a", b"2"))
    broker.stage("spark/q", 0, 0, "first", [columns])
    broker.stage("spark/q", 0, 0, "second", [columns, columns])
    broker.stage("spark/q", 0, 1, "third", [columns])
    parts = {"0": "second", "1": "third"}
    assert broker.committed("spark/q") is None
    assert broker.commit("spark/q", 0, parts) == CommitAnswer(0, 6, repeated=False)
    assert broker.commit("spark/q", 0, parts) == CommitAnswer(0, 6, repeated=True)
    broker.stage("spark/q", 0, 0, "again", [columns])
    assert broker.commit("spark/q", 0, {"0": "again"}).repeated
    assert broker.committed("spark/q") == 0
    assert len(broker_stand.values("a")) == 6


def test_what_is_aborted_is_dropped(broker_stand: BrokerStand) -> None:
    sinking = writer(broker_stand)
    message = sinking.write(iter([batch(SCHEMA, ("a", "1"))]))
    sinking.abort([None, message])
    with pytest.raises(Refusal, match="was not staged, or its stage was dropped"):
        sinking.commit([message])
    sinking.abort([None])
    sinking.commit([StagedPartition("spark/q", 0)])
    assert broker_stand.flight.log() == LogBounds(0, 0)


def test_an_abort_does_not_hide_why(
    broker_stand: BrokerStand, caplog: pytest.LogCaptureFixture
) -> None:
    sinking = writer(broker_stand)
    message = sinking.write(iter([batch(SCHEMA, ("a", "1"))]))
    broker_stand.broker.kill()
    with caplog.at_level(logging.WARNING):
        sinking.abort([message])
    assert "was not dropped: no broker answers" in caplog.text


def test_a_key_is_missed(broker_stand: BrokerStand, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        writer(broker_stand, f"key string, {SCHEMA}")
    assert caplog.messages == [
        "the column key is left out: messages have no key, but they have headers"
    ]


def test_a_task_stages_in_pieces(
    broker_stand: BrokerStand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "PIECE_BYTES", 300)
    sinking = writer(broker_stand)
    batches = [batch(SCHEMA, *[("a", str(n)) for n in range(k, k + 10)]) for k in range(0, 300, 10)]
    message = sinking.write(iter(batches))
    assert len(message.parts) > 5
    assert len(set(message.parts.values())) == 1
    sinking.commit([message])
    assert broker_stand.values("a") == numbered(0, 300)


def test_staging_goes_on_after_the_broker_was_killed(broker_stand: BrokerStand) -> None:
    sinking = writer(broker_stand, **{"fetch.retryIntervalMs": "200"})

    def batches() -> Any:
        yield batch(SCHEMA, ("a", "1"))
        broker_stand.broker.kill()
        broker_stand.broker.start()
        yield batch(SCHEMA, ("a", "2"))

    message = sinking.write(batches())
    broker_stand.broker.kill()
    broker_stand.broker.start()
    sinking.commit([message])
    assert broker_stand.values("a") == [b"1", b"2"]


# Streams with Spark


def replay(checkpoint: Path) -> int:
    """Let a query forget that it has finished its last batch, as if it had been killed then."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for name in (last.name, f".{last.name}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    return int(last.name)


@pytest.mark.smoke
def test_a_stream_is_written_once(stand: Stand) -> None:
    """Through restarts from the checkpoint, and when a batch is repeated after its commit."""
    frame = stand.stream(subscribe="t", includeHeaders=True, maxOffsetsPerTrigger=40)
    expected: list[bytes] = []
    for first in (0, 100):
        stand.append("t", *numbered(first, first + 100))
        expected += numbered(first, first + 100)
        progress = stand.run(frame, topic="out")
        assert len(progress) >= 3
        assert stand.values("out") == expected
        batch = replay(stand.checkpoint())
        offsets = stand.checkpoint() / "offsets" / str(batch)
        assert json.loads(offsets.read_text().splitlines()[-1])["offset"] > 0
    assert stand.run(frame, topic="out")[0]["batchId"] == batch
    assert stand.values("out") == expected
    published = set(stand.log(topics=["out"]).column("publisher").to_pylist())
    assert len(published) >= 6, "one for each batch"


def test_a_stream_with_bad_rows(stand: Stand) -> None:
    stand.append("t", *numbered(0, 10))
    frame = stand.stream(subscribe="t").selectExpr(
        "IF(CAST(value AS STRING) = '5', NULL, topic || '2') AS topic", "value"
    )
    with failing("row 5 of partition 0 cannot be a message: topic is null"):
        stand.run(frame)
    assert stand.values("t2") == []
    stand.run(frame, deadLetterTopic="dead")
    assert stand.values("t2") == numbered(0, 5) + numbered(6, 10)
    assert stand.values("dead") == [b"5"]


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    settings = {"HEADWATER_FLIGHT_TOKEN": "t", "HEADWATER_LISTENER_FLIGHT_ANONYMOUS": "auto"}
    settings["HEADWATER_AUDIT_EVENTS"] = "off"  # or failures would be in the log
    with BrokerProcess(tmp_path / "data", **settings) as running:
        servers = f"127.0.0.1:{running.ports['flight']}"
        with pytest.raises(ConfigError, match="set the option token"):
            FlightClient((servers,), "wrong").stage("q", 0, 0, "a", [rows(("a", b"1"))])
        broker = FlightClient((servers,), "t")
        broker.stage("q", 0, 0, "a", [rows(("a", b"1"))])
        broker.commit("q", 0, {"0": "a"})
        assert broker.log() == LogBounds(0, 1)
