"""Replay: everything once, at the right pace, whatever is killed. No Spark is needed for most."""

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headwater.errors import HeadwaterError
from headwater.pipeline.repair import conditions, replay
from headwater.pipeline.repair.replay import Replay, ReplayPace, ReplayRequest
from headwater.spark.flight_client import FlightClient
from tests.e2e.process import BrokerProcess, eventually
from tests.flight.client import Client, rows

PAST = datetime(2030, 1, 1, tzinfo=UTC)


class Place:
    """A broker, and the storage of a project."""

    def __init__(self, process: BrokerProcess, storage: Path) -> None:
        self.process, self.storage = process, storage
        self.client = Client(process.ports["flight"])
        self._sequence = 0

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.process.ports['flight']}"

    @property
    def broker(self) -> FlightClient:
        return FlightClient((self.servers,))

    def append(self, topic: str, *values: bytes) -> None:
        self._sequence += 1
        command = {"do": "append", "producer": "tests", "sequence": self._sequence}
        self.client.put(rows(*[(topic, value) for value in values]), **command)

    def log(self, pattern: str = ".*") -> Any:
        found = self.broker.log()
        return self.client.read(start=found.start, end=found.end, headers=True, pattern=pattern)

    def values(self, topic: str) -> list[bytes]:
        found: list[bytes] = self.log(topic).column("value").to_pylist()
        return found

    def replay(
        self, request: ReplayRequest, pace: str = "max", name: str = "r"
    ) -> replay.ReplayResult:
        made = Replay(name, self.storage, self.broker)
        made.begin(request)
        return made.run(ReplayPace.parse(pace))

    def table(self, name: str, content: Any) -> None:
        write_deltalake(str(self.storage / "tables" / name), content, mode="append")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with BrokerProcess(tmp_path / "data") as process:
        made = Place(process, tmp_path / "storage")
        yield made
        made.client.close()


def numbered(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def bronze(first: int, stop: int) -> Any:
    count = stop - first
    return pa.table(
        {
            "offset": pa.array(range(first, stop), pa.int64()),
            "topic": [f"old/{n % 2}" for n in range(first, stop)],
            "value": pa.array(numbered(first, stop), pa.binary()),
            "timestamp": pa.array(
                [PAST + timedelta(seconds=n) for n in range(first, stop)],
                pa.timestamp("us", "UTC"),
            ),
            "protocol": ["bpsp"] * count,
            "publisher": ["ada"] * count,
            "headers": pa.array(
                [[("n", str(n))] for n in range(first, stop)], pa.map_(pa.string(), pa.string())
            ),
        }
    )


def test_the_log_is_published_again_once(place: Place) -> None:
    place.append("a/1", *numbered(0, 25_000))
    place.append("a/2", *numbered(0, 10))
    place.append("b", b"other")
    result = place.replay(ReplayRequest("log", topic="a/.*"))
    assert result.rows == 25_010
    assert place.values("replay/a/1") == numbered(0, 25_000)
    assert place.values("replay/a/2") == numbered(0, 10)
    assert place.values("replay/b") == []
    # The end was fixed; a second one of the same name publishes again, what it published as well.
    assert place.replay(ReplayRequest("log", topic=".*a/2", to="copy/{topic}")).rows == 20
    assert place.values("copy/replay/a/2") == numbered(0, 10)


def test_headers_are_kept(place: Place) -> None:
    schema = pa.schema(
        [("topic", "string"), ("value", pa.binary()), ("headers", pa.map_("string", "string"))]
    )
    batch = pa.RecordBatch.from_pylist(
        [{"topic": "a", "value": b"%d" % n, "headers": [("n", str(n))]} for n in range(3)], schema
    )
    place.client.put(batch, do="append", producer="tests", sequence=1)
    place.replay(ReplayRequest("log", to="b"))
    found = place.log("b").to_pylist()
    assert [(row["value"], row["headers"]) for row in found] == [
        (b"%d" % n, [("n", str(n))]) for n in range(3)
    ]
    assert {row["publisher"] for row in found} == {"replay/r/0"}


def test_ranges_by_offset_time_and_condition(place: Place) -> None:
    place.append("a", *numbered(0, 5))
    time.sleep(0.05)  # a time is taken to the millisecond, and an append may be quicker than that
    middle = datetime.now(UTC)
    time.sleep(0.05)
    place.append("b", *numbered(5, 10))
    assert place.replay(ReplayRequest("log", since="2", until="4", to="x")).rows == 2
    assert place.values("x") == numbered(2, 4)
    assert (
        place.replay(ReplayRequest("log", since=middle.isoformat(), until="10", to="y")).rows == 5
    )
    assert place.values("y") == numbered(5, 10)
    assert (
        place.replay(ReplayRequest("log", since="1h", until=middle.isoformat(), to="z")).rows == 5
    )
    request = ReplayRequest("log", until="10", where="topic = 'b' AND offset IN (1, 6, 7)", to="w")
    assert place.replay(request).rows == 2
    assert place.values("w") == numbered(6, 8)


def test_rows_of_bronze(place: Place) -> None:
    place.table("bronze", bronze(50, 100))
    place.table("bronze", bronze(0, 50))
    place.replay(ReplayRequest("bronze", topic="old/1", to="{topic}"))
    found = place.log("old/1").to_pylist()
    assert [row["value"] for row in found] == [b"%d" % n for n in range(1, 100, 2)]
    assert [row["headers"] for row in found[:2]] == [[("n", "1")], [("n", "3")]]
    since = (PAST + timedelta(seconds=90)).isoformat()
    assert place.replay(ReplayRequest("bronze", since=since, until="95", to="late")).rows == 5
    assert place.values("late") == numbered(90, 95)
    assert place.replay(ReplayRequest("bronze", where="offset BETWEEN 3 AND 4", to="two")).rows == 2


def test_typed_rows_become_json(place: Place) -> None:
    day = PAST.date()
    content = {
        "price": [1.5, 2.5],
        "at": pa.array([PAST, None], pa.timestamp("us", "UTC")),
        "_offset": pa.array([7, 3], pa.int64()),
        "_topic": ["shop/a", "shop/b"],
        "date": [day, day],
    }
    place.table("silver_orders", pa.table(content))
    place.replay(ReplayRequest("silver_orders"))
    assert place.values("replay/shop/a") == [b'{"price": 1.5, "at": "2030-01-01T00:00:00+00:00"}']
    assert place.values("replay/shop/b") == [b'{"price": 2.5, "at": null}']


def test_a_table_without_offsets_is_replayed_in_the_order_of_time(place: Place) -> None:
    minutes = [PAST + timedelta(minutes=n) for n in (2, 0, 1)]
    content = {"minute": pa.array(minutes, pa.timestamp("us", "UTC")), "count": [3, 1, 2]}
    place.table("counts", pa.table(content))
    with pytest.raises(HeadwaterError, match="have no topic: say --to TOPIC"):
        place.replay(ReplayRequest("counts"))
    place.replay(ReplayRequest("counts", to="again"))
    assert [value[-11:] for value in place.values("again")] == [
        b'"count": %d}' % n for n in (1, 2, 3)
    ]


class Clock:
    """Time passes only for those who sleep. How much was published by then is noted."""

    def __init__(self, place: Place, topic: str) -> None:
        self._place, self._topic = place, topic
        self.now = 0.0
        self.published: list[tuple[float, int]] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.published.append((self.now, len(self._place.values(self._topic))))


def test_paces(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.table("bronze", bronze(0, 40))  # one a second
    for pace, topic in (("40x", "a"), ("50/s", "b")):
        clock = Clock(place, topic)
        monkeypatch.setattr(replay, "time", clock)
        place.replay(ReplayRequest("bronze", to=topic), pace)
        assert len(place.values(topic)) == 40
        # Batches of a tenth of a second; when one is due, those before it are there.
        size = {"40x": 4, "50/s": 5}[pace]
        due, published = zip(*clock.published, strict=True)
        assert due == pytest.approx([0.1 * number for number in range(40 // size)])
        assert published == tuple(range(0, 40, size))
    for wrong in ("fast", "0/s", "x", "-1x"):
        with pytest.raises(HeadwaterError, match="a pace is"):
            ReplayPace.parse(wrong)


RUN = """
import sys
from pathlib import Path
from headwater.pipeline.repair.replay import ReplayPace, Replay
from headwater.spark.flight_client import FlightClient
replay = Replay("r", Path(sys.argv[1]), FlightClient((sys.argv[2],)))
replay.run(ReplayPace.parse(sys.argv[3]))
"""


@pytest.mark.torture
@pytest.mark.timeout(300)
@pytest.mark.parametrize("source", ["log", "bronze"])
def test_a_replay_that_is_killed_goes_on(place: Place, source: str) -> None:
    """Killed at any moment, again and again: in the end every record is there once."""
    if source == "log":
        place.append("a", *numbered(0, 20_000))
    else:
        place.table("bronze", bronze(0, 20_000))
    Replay("r", place.storage, place.broker).begin(ReplayRequest(source, to="b"))
    place.append("a", b"too late to be a part of it")
    # It would need 40 seconds, so that it is in the middle whenever this process gets to kill it.
    command = [sys.executable, "-c", RUN, str(place.storage), place.servers, "500/s"]
    for kill in range(3):
        before = len(place.log("b"))
        with subprocess.Popen(command) as process:
            try:
                for _ in eventually(60):
                    assert process.poll() is None
                    if len(place.log("b")) > before + 100 * kill:
                        break
            finally:
                process.kill()
    assert 0 < len(place.log("b")) < 20_000
    left = Replay("r", place.storage, place.broker)
    with pytest.raises(HeadwaterError, match="was not finished: go on with --resume"):
        left.begin(ReplayRequest(source))
    assert left.run(ReplayPace()).rows == 20_000
    assert place.values("b") == numbered(0, 20_000)
    assert left.run(ReplayPace()).rows == 20_000  # there is nothing left to do
    assert len(place.log("b")) == 20_000


def test_a_batch_that_was_sent_but_not_noted_as_done_is_sent_once(place: Place) -> None:
    """As after a kill between the answer of the broker and the next note."""
    place.append("a", *numbered(0, 100))
    made = Replay("r", place.storage, place.broker)
    made.begin(ReplayRequest("log", to="b"))
    file = place.storage / "state" / "replays" / "r.json"
    notes = []
    made._save = lambda state: notes.append(state)  # type: ignore[method-assign]
    made.run(ReplayPace(rate=100_000))
    (sent, _) = notes
    assert (sent.place.low, sent.place.high) == (0, 100)
    again = Replay("r", place.storage, place.broker)
    again._save(sent)
    assert "b" in file.read_text()
    assert again.run(ReplayPace(rate=10)).rows == 100
    assert place.values("b") == numbered(0, 100)


def test_nobody_else_can_have_the_same_replay(place: Place) -> None:
    place.append("a", *numbered(0, 10))
    made = Replay("r", place.storage, place.broker)
    made.begin(ReplayRequest("log", to="b"))
    with made._locked(), pytest.raises(HeadwaterError, match="is running already"):
        Replay("r", place.storage, place.broker).run(ReplayPace())
    with pytest.raises(HeadwaterError, match="there is no replay other to resume"):
        Replay("other", place.storage, place.broker).run(ReplayPace())


@pytest.mark.parametrize(
    ("impossible", "sentence"),
    [
        (ReplayRequest("nothing"), "there is no table nothing"),
        (ReplayRequest("log", since="soon"), "this is no offset"),
        (
            ReplayRequest("log", where="topik = 'a'"),
            'there is no column topik; did you mean "topic"',
        ),
        (ReplayRequest("log", where="topic = "), "makes no sense at its end"),
    ],
)
def test_requests_that_cannot_be_fulfilled(
    place: Place, impossible: ReplayRequest, sentence: str
) -> None:
    with pytest.raises(HeadwaterError, match=sentence):
        place.replay(impossible)


# Conditions


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("n > 2", [3, 4]),
        ("n >= 2 AND NOT n = 3", [2, 4]),
        ("n < 1 OR text = 'it''s'", [0, 1]),
        ("(n = 1 or n = 2) and text like 'b%'", [2]),
        ("text IS NULL", [4]),
        ("text is not null and n not in (0, 1)", [2, 3]),
        ("n between 1 and 2", [1, 2]),
        ("at >= '2030-01-01T00:00:03Z'", [3, 4]),
        ("flag = true", [0, 2, 4]),
        ("`n` != 0 AND price <= 1.5", [1]),
    ],
)
def test_conditions(condition: str, expected: list[int]) -> None:
    content = pa.table(
        {
            "n": pa.array(range(5), pa.int64()),
            "text": ["a", "it's", "bc", "d", None],
            "at": pa.array(
                [PAST + timedelta(seconds=n) for n in range(5)], pa.timestamp("us", "UTC")
            ),
            "flag": [True, False, True, False, True],
            "price": [1.0, 1.5, 2.0, 2.5, None],
        }
    )
    found = content.filter(conditions.parse(condition, content.schema))
    assert found["n"].to_pylist() == expected


@pytest.mark.parametrize(
    ("condition", "sentence"),
    [
        ("n = 'x'", '"x" is not of the type int64'),
        ("n ~ 1", "cannot be read from here on: ~ 1"),
        ("n = 1 n", 'makes no sense at "n"'),
        ("(n = 1", "makes no sense at its end"),
        ("1 = n", 'makes no sense at "1"'),
        ("__import__('os')", "there is no column __import__"),
    ],
)
def test_conditions_that_make_no_sense(condition: str, sentence: str) -> None:
    with pytest.raises(HeadwaterError, match=sentence):
        conditions.parse(condition, pa.schema([("n", pa.int64())]))
