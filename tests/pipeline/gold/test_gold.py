"""Gold: the tables against a plain computation of the same."""

import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame

from headwater.pipeline.gold import condense, movers, sessions, traffic
from headwater.pipeline.gold.sessions import SessionLimits
from headwater.pipeline.project.init import TEMPLATES
from headwater.pipeline.tables.delta import Table
from tests.pipeline.conftest import Workbench
from tests.spark.conftest import Stand

pytestmark = pytest.mark.timeout(300)

HEADERS = pa.map_(pa.string(), pa.string())
EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
#: A time in microseconds that is the begin of a minute.
ZERO = int(EPOCH.timestamp()) * 1_000_000


@pytest.fixture
def gold(stand: Stand) -> Iterator[Stand]:
    stand.spark.conf.set("headwater.servers", stand.servers)
    yield stand
    stand.spark.conf.unset("headwater.servers")


def run(frame: DataFrame, table: Table, keys: tuple[str, ...], place: Path) -> None:
    """What there is of a stream goes to a table, as the runner does it."""

    def write(batch: DataFrame, number: int) -> None:
        table.upsert(batch, keys, table.name, number)

    query = (
        frame.writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", str(place / f"checkpoint-{table.name}"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(90)
    finally:
        query.stop()


def rows(table: Table, *names: str) -> list[tuple[Any, ...]]:
    found = table.dataset().to_table().select(list(names)).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def record(
    seconds: float, publisher: str = "p", value: bytes = b"x", **more: Any
) -> dict[str, Any]:
    """A record of the log that came so many seconds after the epoch."""
    return {
        "topic": more.get("topic", "t"),
        "value": value,
        "timestamp": EPOCH + timedelta(seconds=seconds),
        "protocol": more.get("protocol", "bpsp"),
        "publisher": publisher,
        "headers": more.get("headers", {}),
    }


def batch_of(*records: dict[str, Any]) -> Any:
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("value", pa.binary()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("protocol", pa.string()),
            ("publisher", pa.string()),
            ("headers", HEADERS),
        ]
    )
    plain = [each | {"headers": list(each["headers"].items())} for each in records]
    return pa.RecordBatch.from_pylist(plain, schema)


# Traffic


@pytest.mark.smoke
def test_traffic_counts_as_a_plain_loop_does(gold: Stand, tmp_path: Path) -> None:
    for user in range(4):
        gold.publish(f"a/{user % 2}", *[b"x" * (user * 100 + n) for n in range(50)])
    gold.append("b", *[b"y" * n for n in range(300)])
    gold.append("b", b"z")
    gold.append("headwater/stats/traffic", b"not counted")
    table = Table(tmp_path / "traffic")
    run(traffic.frame(), table, traffic.KEYS, tmp_path)

    expected: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for each in gold.log().to_pylist():
        if each["topic"].startswith("headwater/"):
            continue
        minute = each["timestamp"].replace(second=0, microsecond=0)
        name = "producer/tests" if each["protocol"] == "flight" else each["publisher"]
        expected[minute, each["topic"], each["protocol"], name].append(len(each["value"]))
    assert rows(table, *traffic.KEYS, "count", "bytes") == sorted(
        (*key, len(sizes), sum(sizes)) for key, sizes in expected.items()
    )
    for found in table.dataset().to_table().to_pylist():
        sizes = expected[tuple(found[name] for name in traffic.KEYS)]
        for percent in (50, 95, 99):
            exact = float(np.percentile(sizes, percent))
            assert found[f"size_p{percent}"] == pytest.approx(exact, rel=0.01, abs=0.5)


def test_traffic_goes_on_after_a_restart(gold: Stand, tmp_path: Path) -> None:
    table = Table(tmp_path / "traffic")
    gold.append("a", b"1", b"22")
    run(traffic.frame(), table, traffic.KEYS, tmp_path)
    gold.append("a", b"333")
    gold.append("c", b"1")
    run(traffic.frame(), table, traffic.KEYS, tmp_path)
    found = table.dataset().to_table()
    assert sum(found["count"].to_pylist()) == 4
    assert sum(found["bytes"].to_pylist()) == 7


def test_traffic_knows_how_long_records_were_under_way(gold: Stand, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    sent = {"json": now - timedelta(seconds=2), "header": now - timedelta(seconds=5)}
    made = json.dumps({"sent_at": sent["json"].isoformat()}).encode()
    gold.append("json", *[made] * 10)
    gold.publish("header", b"x", sent=sent["header"].isoformat())
    gold.append("none", b"x", b'{"sent_at": "yesterday"}')
    table = Table(tmp_path / "traffic")
    run(traffic.frame(), table, traffic.KEYS, tmp_path)
    found = {row["topic"]: row for row in table.dataset().to_table().to_pylist()}
    assert found["json"]["count"] == 10
    # How long it took until they arrived, the log says.
    arrived = {row["topic"]: row["timestamp"] for row in gold.log().to_pylist()}
    for topic, name in (("json", "delay_p50"), ("header", "delay_p99")):
        delay = (arrived[topic] - sent[topic]) / timedelta(milliseconds=1)
        assert delay >= 2_000 and found[topic][name] == pytest.approx(delay, rel=0.01)
    assert found["none"]["delay_p50"] is None and found["none"]["count"] == 2


@pytest.mark.parametrize(
    "text", ["1893456000", "1893456000000", "1893456000000000", "2030-01-01T00:00:00Z"]
)
def test_times_are_understood_in_many_ways(text: str) -> None:
    assert condense.microseconds(pa.array([text, "nonsense", None])).to_pylist() == [
        ZERO,
        None,
        None,
    ]


def test_few_different_numbers_are_left() -> None:
    numbers = np.arange(1_000_000)
    rounded = condense.rounded(pa.array(numbers)).to_numpy()
    assert len(np.unique(rounded)) < 1200
    assert (rounded[:128] == numbers[:128]).all()
    assert np.max(np.abs(rounded - numbers) / np.maximum(numbers, 1)) <= 1 / 128


# Sessions


LIMITS = SessionLimits.of(gap_seconds=10, silence_seconds=60)


def test_spans_are_the_same_however_records_are_cut() -> None:
    random = np.random.default_rng(7)
    times = np.cumsum(random.exponential(12, 400))
    records = [record(t, f"p{random.integers(3)}", b"x" * int(t % 9)) for t in times]
    whole = sessions.of_records(batch_of(*records), LIMITS)
    cuts = [0, 1, 7, 100, 101, 333, 400]
    parts = [
        sessions.of_records(batch_of(*records[low:high]), LIMITS) for low, high in pairwise(cuts)
    ]
    assert sessions.joined(LIMITS, pa.concat_tables(parts)).equals(whole)


def test_a_span_ends_where_a_silence_begins() -> None:
    found = sessions.of_records(
        batch_of(record(0), record(5), record(25), record(85), record(146), record(150)), LIMITS
    )
    assert found.drop_columns(["protocol", "publisher", "bytes"]).to_pylist() == [
        {
            "first_seen": ZERO,
            "last_seen": ZERO + 85_000_000,
            "messages": 4,
            "largest_gap": 60_000_000,
            "gaps": 2,
        },
        {
            "first_seen": ZERO + 146_000_000,
            "last_seen": ZERO + 150_000_000,
            "messages": 2,
            "largest_gap": 4_000_000,
            "gaps": 0,
        },
    ]


def test_sessions_with_gaps_and_silence(gold: Stand, tmp_path: Path) -> None:
    """Three runs of the stream; the state is kept in between."""
    source = tmp_path / "log"
    table = Table(tmp_path / "sessions")
    schema = "protocol string, publisher string, first_seen bigint, last_seen bigint"
    schema += ", messages bigint, bytes bigint, largest_gap bigint, gaps bigint, until timestamp"

    def arrive(name: str, *records: dict[str, Any]) -> None:
        (batch,) = sessions.condensed(iter([batch_of(*records)]), LIMITS)
        source.mkdir(exist_ok=True)
        pa.parquet.write_table(pa.Table.from_batches([batch]), source / f"{name}.parquet")
        spans = gold.spark.readStream.schema(schema).parquet(str(source))
        run(sessions.rows(spans, LIMITS), table, sessions.KEYS, tmp_path)

    def state() -> list[tuple[Any, ...]]:
        return [
            (who, round((first - EPOCH).total_seconds()), *more)
            for who, first, *more in rows(
                table, "publisher", "first_seen", "messages", "largest_gap", "gaps", "state"
            )
        ]

    arrive("1", record(0, "ada"), record(1, "bob"), record(20, "ada"), record(40, "ada"))
    assert state() == [("ada", 0, 3, 20.0, 2, "active"), ("bob", 1, 1, 0.0, 0, "active")]
    arrive("2", record(50, "ada"), record(90, "ada"))
    assert state() == [("ada", 0, 5, 40.0, 3, "active"), ("bob", 1, 1, 0.0, 0, "silent")]
    arrive("3", record(200, "bob"), record(201, "bob"))
    assert state() == [
        ("ada", 0, 5, 40.0, 3, "silent"),
        ("bob", 1, 1, 0.0, 0, "silent"),
        ("bob", 200, 2, 1.0, 0, "active"),
    ]


@pytest.mark.smoke
def test_sessions_of_the_log(gold: Stand, tmp_path: Path) -> None:
    gold.publish("a", b"1", b"22")
    gold.append("a", b"333")
    gold.append("b", b"4444")
    gold.append("headwater/stats/x", b"not counted")
    table = Table(tmp_path / "sessions")
    run(sessions.frame(), table, sessions.KEYS, tmp_path)
    assert rows(table, "protocol", "publisher", "messages", "bytes", "state") == [
        ("bpsp", "bob", 2, 3, "active"),
        ("flight", "producer/tests", 2, 7, "active"),
    ]


# Movers


def test_movers_are_those_that_differ_from_their_past(gold: Stand) -> None:
    counts = [
        *(("steady", minute, 100 + minute % 3) for minute in range(12)),
        *(("busy", minute, 900 if minute == 10 else 100) for minute in range(12)),
        *(("gone", minute, 100) for minute in range(10)),
        ("new", 10, 50),
        ("new", 11, 1_000_000),  # this minute is not over
    ]
    frame = gold.spark.createDataFrame(
        [(EPOCH + timedelta(minutes=minute), topic, n) for topic, minute, n in counts],
        "minute timestamp, topic string, count bigint",
    )
    found = movers.rows(frame).orderBy("rank").collect()
    assert [row.topic for row in found] == ["busy", "new", "gone", "steady"]
    assert {row.minute.replace(tzinfo=None) for row in found} <= {datetime(2030, 1, 1, 0, 10)}
    busy, new, gone, steady = found
    assert (busy["count"], busy["mean"], busy["ratio"], busy["score"]) == (900, 100, 9, 80)
    assert (new["count"], new["mean"], new["ratio"], new["score"]) == (50, 0, None, 50)
    assert (gone["count"], gone["score"]) == (0, -10)
    assert abs(steady["score"]) < 0.2
    assert movers.rows(frame, top=2).count() == 2


def test_there_are_no_movers_in_the_first_minute(gold: Stand) -> None:
    frame = gold.spark.createDataFrame(
        [(EPOCH, "t", 5)], "minute timestamp, topic string, count bigint"
    )
    assert movers.rows(frame).count() == 0
    assert movers.rows(frame.limit(0)).count() == 0


# All together


def test_the_project_that_init_makes_has_these_tables(
    workbench: Workbench, request: pytest.FixtureRequest
) -> None:
    """The template as it is, run twice; the minutes are published, and not counted themselves."""
    # However long the first run takes, nobody falls silent meanwhile.
    workbench.settings["headwater.sessions.silence"] = "1h"
    request.addfinalizer(lambda: workbench.spark.conf.unset("headwater.sessions.silence"))
    workbench.define((TEMPLATES / "transformations" / "gold.py").read_text())
    stand = workbench.stand
    stand.append("a", *[b"x"] * 100)
    workbench.run()
    stand.append("a", *[b"x"] * 10)
    stand.append("b", b"x")
    workbench.run()
    counts: dict[str, int] = defaultdict(int)
    for row in workbench.rows("traffic"):
        counts[row["topic"]] += row["count"]
    assert counts == {"a": 110, "b": 1}
    assert [row["messages"] for row in workbench.rows("sessions")] == [111]
    assert workbench.table("movers").exists
    published = [json.loads(value) for value in stand.values("headwater/stats/traffic/a")]
    assert [row["count"] for row in published][:1] == [100]
    assert published[-1]["topic"] == "a" and published[-1]["protocol"] == "flight"
