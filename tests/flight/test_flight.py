"""The Flight service of a real broker, with a plain Flight client."""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from headwater.client import BpspClient
from headwater.control import call
from headwater.flight import requests
from headwater.flight.stages import Stages
from tests.e2e.faults import READ_ERRORS, Switch, injected
from tests.e2e.process import ALL_FIVE, BrokerProcess, eventually
from tests.flight.client import Client, rows

TLS = Path(__file__).parent.parent / "e2e" / "tls"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", toml=ALL_FIVE) as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    made = Client(broker.ports["flight"])
    yield made
    made.close()


def publish(broker: BrokerProcess, topic: str, *payloads: bytes, **headers: str) -> None:
    async def main() -> None:
        async with BpspClient("127.0.0.1", broker.ports["bpsp"], user="bob") as publisher:
            await publisher.publish(topic, *payloads, headers=tuple(headers.items()))

    asyncio.run(main())


def values(table: pa.Table) -> list[bytes]:
    found: list[bytes] = table.column("value").to_pylist()
    return found


def test_what_was_published_is_read(broker: BrokerProcess, client: Client) -> None:
    publish(broker, "a", b"0", b"1")
    publish(broker, "b", b"2", colour="blue")
    assert client.act("log")["start"] == 0
    assert client.act("log")["end"] == 3
    table = client.read(start=0, end=3, headers=True)
    assert table.schema.names == [
        "offset",
        "topic",
        "value",
        "timestamp",
        "protocol",
        "publisher",
        "headers",
    ]
    assert table.column("offset").to_pylist() == [0, 1, 2]
    assert table.column("topic").to_pylist() == ["a", "a", "b"]
    assert values(table) == [b"0", b"1", b"2"]
    assert set(table.column("protocol").to_pylist()) == {"bpsp"}
    assert set(table.column("publisher").to_pylist()) == {"bob"}
    assert table.column("headers").to_pylist() == [[], [], [("colour", "blue")]]
    assert "headers" not in client.read(start=0, end=3).schema.names


def test_a_read_that_fails_can_be_tried_again(tmp_path: Path) -> None:
    """Spark does so, as with a broker that is away for a moment."""
    with BrokerProcess(tmp_path / "data", **injected(tmp_path, READ_ERRORS)) as broker:
        publish(broker, "a", b"0", b"1")
        switch = Switch(tmp_path)
        with contextlib.closing(Client(broker.ports["flight"])) as client:
            switch.on()
            with pytest.raises(flight.FlightUnavailableError, match="Input/output error"):
                client.read(start=0, end=2)
            switch.off()
            assert values(client.read(start=0, end=2)) == [b"0", b"1"]


def test_ranges_topics_and_patterns(broker: BrokerProcess, client: Client) -> None:
    for topic in ("a/x", "a/y", "b"):
        publish(broker, topic, *[topic.encode()] * 3)
    assert len(client.read(start=1, end=4)) == 3
    assert values(client.read(start=0, end=9, topics=["b"])) == [b"b"] * 3
    assert values(client.read(start=0, end=9, pattern="a/.*")) == [b"a/x"] * 3 + [b"a/y"] * 3
    assert len(client.read(start=4, end=4)) == 0
    assert len(client.read(start=0, end=9, topics=["none"])) == 0


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"start": 0, "end": 1}, "the log ends at 0"),
        ({"start": 0}, "end is missing"),
        ({"start": "0", "end": 0}, "start has to be a whole number"),
        ({"start": 0, "end": 2**63}, "end has to be a whole number"),
        ({"start": 0, "end": 0, "colour": 1}, "there is no colour"),
        ({"start": 0, "end": 0, "topics": [], "pattern": ""}, "either topics or a pattern"),
    ],
)
def test_bad_requests_say_what_is_wrong(
    client: Client, request_: dict[str, object], sentence: str
) -> None:
    with pytest.raises(flight.FlightServerError, match=sentence):
        client.read(**request_)


def test_unknown_actions_and_broken_patterns(client: Client) -> None:
    with pytest.raises(flight.FlightServerError, match="there is no action dance"):
        client.act("dance")
    with pytest.raises(flight.FlightServerError):
        client.read(start=0, end=0, pattern="(")


def test_topics_with_counts_and_times(broker: BrokerProcess, client: Client) -> None:
    before = time.time_ns() // 1000
    for topic, count in (("a", 3), ("b/x", 2), ("b/y", 1)):
        publish(broker, topic, *[b"x"] * count)
    after = time.time_ns() // 1000
    answer = client.act("topics")
    assert [(each["topic"], each["count"]) for each in answer["topics"]] == [
        ("a", 3),
        ("b/x", 2),
        ("b/y", 1),
    ]
    for each in answer["topics"]:
        assert before <= each["first_timestamp"] <= each["last_timestamp"] <= after
    assert answer["more"] is False
    page = client.act("topics", limit=1, pattern="b/.*")
    assert [each["topic"] for each in page["topics"]] == ["b/x"]
    assert page["more"] is True
    rest = client.act("topics", after="b/x")
    assert [each["topic"] for each in rest["topics"]] == ["b/y"]


def test_the_offset_at_a_time(broker: BrokerProcess, client: Client) -> None:
    publish(broker, "a", b"0")
    time.sleep(0.05)
    between = time.time_ns() // 1000
    time.sleep(0.05)
    publish(broker, "a", b"1")
    assert client.act("offset_at", timestamp=0)["offset"] == 0
    assert client.act("offset_at", timestamp=between)["offset"] == 1
    assert client.act("offset_at", timestamp=between + 10**12)["offset"] == 2


def test_a_range_is_split_by_bytes(broker: BrokerProcess, client: Client) -> None:
    for _ in range(20):
        publish(broker, "a", *[bytes(1000)] * 100)
    ranges = client.act("split", start=0, end=2000, bytes=250_000)["ranges"]
    assert [each[0] for each in ranges[1:]] == [each[1] for each in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, 2000)
    assert 7 <= len(ranges) <= 10
    assert all(150_000 < size <= 300_000 for _, _, size in ranges[:-1])
    one = client.act("split", start=10, end=20, bytes=1 << 30)["ranges"]
    assert [each[:2] for each in one] == [[10, 20]]
    tiny = client.act("split", start=0, end=100, bytes=10_000)["ranges"]
    assert len(tiny) >= 9  # a block that is larger is cut


def test_append_recognises_a_repeat(client: Client) -> None:
    batch = rows(("a", b"0"), ("a", b"1"), ("b", b"2"))
    done = client.put(batch, do="append", producer="p", sequence=1)
    assert done == {"first": 0, "count": 3, "repeated": False}
    again = client.put(batch, do="append", producer="p", sequence=1)
    assert again == {"first": 0, "count": 3, "repeated": True}
    assert client.put(rows(("a", b"3")), do="append", producer="p", sequence=2)["first"] == 3
    assert client.put(rows(("a", b"4")), do="append", producer="q", sequence=1)["first"] == 4
    assert values(client.read(start=0, end=5)) == [b"0", b"1", b"2", b"3", b"4"]


def test_headers_are_written_and_reach_subscribers(client: Client) -> None:
    headers = pa.map_(pa.string(), pa.string())
    batch = pa.table(
        {
            "value": pa.array([b"0", b"1", b"2"]),
            "topic": pa.array(["a", "a", "a"]),
            "headers": pa.array([[("k", "v")], [("k", "v")], None], headers),
        }
    )
    client.put(batch, do="append", producer="p", sequence=0)
    table = client.read(start=0, end=3, headers=True)
    assert table.column("headers").to_pylist() == [[("k", "v")], [("k", "v")], []]


def test_a_stage_is_invisible_until_its_commit_and_then_there_once(
    broker: BrokerProcess, client: Client
) -> None:
    for partition in (1, 0):
        part = rows(*[("a", b"%d.%d" % (partition, number)) for number in range(3)])
        done = client.put(part, do="stage", query="q", batch=7, partition=partition, attempt="x")
        assert done["rows"] == 3
    lost = rows(("a", b"of a task that failed"))
    client.put(lost, do="stage", query="q", batch=7, partition=0, attempt="y")
    assert client.act("log")["end"] == 0
    assert client.act("committed", query="q")["batch"] is None
    done = client.act("commit", query="q", batch=7, parts={"0": "x", "1": "x"})
    assert done == {"first": 0, "count": 6, "repeated": False}
    again = client.act("commit", query="q", batch=7, parts={"0": "x", "1": "x"})
    assert again == {"first": 0, "count": 6, "repeated": True}
    older = client.act("commit", query="q", batch=3, parts={})
    assert older["repeated"] is True
    wanted = [b"0.0", b"0.1", b"0.2", b"1.0", b"1.1", b"1.2"]
    assert values(client.read(start=0, end=6)) == wanted
    assert client.act("committed", query="q")["batch"] == 7
    assert not list((broker.data / "stages").rglob("*.arrow"))


def test_an_empty_commit_counts(client: Client) -> None:
    assert client.act("commit", query="q", batch=1, parts={})["count"] == 0
    assert client.act("commit", query="q", batch=1, parts={})["repeated"] is True


def test_an_aborted_stage_is_gone(broker: BrokerProcess, client: Client) -> None:
    client.put(rows(("a", b"0")), do="stage", query="q", batch=1, partition=0)
    client.act("abort", query="q", batch=1)
    with pytest.raises(flight.FlightServerError, match="was not staged"):
        client.act("commit", query="q", batch=1, parts={"0": ""})
    assert client.act("log")["end"] == 0


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ([("a", b""), ("", b"")], "row 1: .*topic"),
        ([("a", b""), ("a\0", b"")], "row 1: .*topic"),
        ([("a", b"x" * 2000)], "row 0: value is over the limit of 1000 bytes"),
    ],
    ids=["empty", "nul", "large"],
)
def test_bad_rows_are_refused_by_their_position(
    tmp_path: Path, bad: list[tuple[str, bytes]], sentence: str
) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_LIMITS_MESSAGE_BYTES="1000") as broker:
        client = Client(broker.ports["flight"])
        with pytest.raises(flight.FlightServerError, match=sentence):
            client.put(rows(*bad), do="append", producer="p", sequence=0)
        assert client.act("log")["end"] == 0


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    settings = {"HEADWATER_FLIGHT_TOKEN": "hush", "HEADWATER_LISTENER_FLIGHT_ANONYMOUS": "auto"}
    settings["HEADWATER_AUDIT_EVENTS"] = "off"  # or failures would be in the log
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        with pytest.raises(flight.FlightUnauthenticatedError, match="token"):
            Client(broker.ports["flight"]).act("log")
        with pytest.raises(flight.FlightUnauthenticatedError):
            Client(broker.ports["flight"], "wrong").act("log")
        assert Client(broker.ports["flight"], "hush").act("log")["end"] == 0


def test_tls(tmp_path: Path) -> None:
    toml = f'[tls]\ncertificate = "{TLS / "certificate.pem"}"\nkey = "{TLS / "key.pem"}"\n'
    with BrokerProcess(
        tmp_path / "data", toml=toml, HEADWATER_LISTEN_FLIGHT="tls://127.0.0.1:0"
    ) as broker:
        roots = (TLS / "certificate.pem").read_bytes()
        port = broker.ports["flight"]
        with flight.FlightClient(f"grpc+tls://localhost:{port}", tls_root_certs=roots) as client:
            (answer,) = client.do_action(flight.Action("log", b""))
            assert b'"start": 0' in answer.body.to_pybytes()
        with pytest.raises(flight.FlightUnavailableError):
            Client(port).act("log")


def test_retention_is_told(tmp_path: Path) -> None:
    with BrokerProcess(
        tmp_path / "data",
        HEADWATER_LOG_SEGMENT_BYTES="64KiB",
        HEADWATER_LOG_RETENTION_BYTES="128KiB",
    ) as broker:
        client = Client(broker.ports["flight"])
        for number in range(20):
            batch = rows(*[("a", os.urandom(1000)) for _ in range(50)])
            client.put(batch, do="append", producer="p", sequence=number)
        for _ in eventually(60):  # files are dropped one by one, until there are two at most
            start = client.act("log")["start"]
            if 1000 - start < 130:
                break
        with pytest.raises(flight.FlightServerError, match=f"0 to {start - 1} are no longer"):
            client.read(start=0, end=1000)
        assert len(client.read(start=start, end=1000)) == 1000 - start


def test_retention_during_a_read_is_told(tmp_path: Path) -> None:
    """A reader that is overtaken hears of it; nothing is passed over silently."""
    with BrokerProcess(
        tmp_path / "data",
        HEADWATER_LOG_SEGMENT_BYTES="1MiB",
        HEADWATER_LOG_RETENTION_BYTES="40MiB",  # several of the pieces that it is sent in
    ) as broker:
        client = Client(broker.ports["flight"])

        def append(sequence: int) -> None:
            batch = rows(*[("a", os.urandom(1000)) for _ in range(1000)])
            client.put(batch, do="append", producer="p", sequence=sequence)

        for number in range(50):
            append(number)
        end = client.act("log")["end"]
        start = end - 35_000  # what retention spares for now
        chunks = client.chunks(start=start, end=end)
        seen = next(chunks).column("offset").to_pylist()
        with pytest.raises(flight.FlightServerError, match="are no longer in the log"):
            for number in range(50, 300):
                append(number)
                if client.act("log")["start"] > end:
                    break
            for chunk in chunks:
                seen += chunk.column("offset").to_pylist()
        assert seen == list(range(start, start + len(seen)))


@pytest.mark.parametrize("wait", [0.0, 0.002, 0.01, 0.03, 0.1])
def test_a_kill_in_the_middle_of_a_commit(tmp_path: Path, wait: float) -> None:
    """Whatever was stored of it before the kill, it is there once afterwards."""
    with BrokerProcess(tmp_path / "data", HEADWATER_LOG_SEGMENT_BYTES="256KiB") as broker:
        client = Client(broker.ports["flight"])
        parts = {}
        for partition in range(4):
            part = rows(*[("a", b"%d.%d " % (partition, n) + bytes(90)) for n in range(5000)])
            client.put(part, do="stage", query="q", batch=1, partition=partition, attempt="x")
            parts[str(partition)] = "x"
        publish(broker, "b", b"before")
        committing = _start(lambda: client.act("commit", query="q", batch=1, parts=parts))
        time.sleep(wait)
        broker.signal(signal.SIGKILL)
        broker.finish()
        committing.join()
        broker.start()
        client = Client(broker.ports["flight"])
        client.act("commit", query="q", batch=1, parts=parts)
        end = client.act("log")["end"]
        table = client.read(start=0, end=end, topics=["a"])
        wanted = [b"%d.%d" % (p, n) for p in range(4) for n in range(5000)]
        assert [value.split(b" ")[0] for value in values(table)] == wanted


def _start(act: Callable[[], object]) -> threading.Thread:
    def run() -> None:
        with contextlib.suppress(pa.ArrowException):  # the broker dies meanwhile
            act()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_pipeline_reports(broker: BrokerProcess, client: Client) -> None:
    assert client.act("report", pipeline="clicks", state={"queries": [{"rows": 7}]}) == {}
    (shown,) = call(broker.data, "pipelines.list")
    assert shown["pipeline"] == "clicks" and shown["state"] == {"queries": [{"rows": 7}]}
    assert shown["stale"] is False
    with pytest.raises(flight.FlightServerError, match="state has to be an object"):
        client.act("report", pipeline="clicks", state=[1])
    with pytest.raises(flight.FlightServerError, match="at most 65536 bytes"):
        client.act("report", pipeline="clicks", state={"text": "x" * 70_000})


def test_staged_rows_that_are_gone_do_not_keep_the_broker_from_starting(
    broker: BrokerProcess, client: Client
) -> None:
    def stage() -> None:
        client.put(rows(("a", b"0"), ("a", b"1")), do="stage", query="q", batch=1, partition=0)

    broker.keep_ports()
    stage()
    broker.kill()
    # As if it had been killed before the first row, and then someone had tidied up.
    Stages(broker.data).begin(requests.Commit("q", 1, {"0": ""}), 0)
    for file in (broker.data / "stages").rglob("*.arrow"):
        file.unlink()
    broker.start()
    for _ in eventually():
        if "batch 1 of query q cannot be finished" in broker.log:
            break
    stage()
    assert client.act("commit", query="q", batch=1, parts={"0": ""})["count"] == 2
    assert values(client.read(start=0, end=2)) == [b"0", b"1"]


def test_a_client_that_calls_itself_like_a_batch_is_no_batch(
    broker: BrokerProcess, client: Client
) -> None:
    """An interrupted commit looks for its rows in the log."""
    broker.keep_ports()
    client.put(rows(("a", b"0"), ("a", b"1")), do="stage", query="q", batch=1, partition=0)

    async def impersonate() -> None:
        async with BpspClient("127.0.0.1", broker.ports["bpsp"], user="q/1") as publisher:
            await publisher.publish("a", b"not of the batch")

    asyncio.run(impersonate())
    broker.kill()
    Stages(broker.data).begin(requests.Commit("q", 1, {"0": ""}), 0)
    broker.start()
    for _ in eventually():
        if client.act("committed", query="q")["batch"] == 1:
            break
    assert values(client.read(start=0, end=3)) == [b"not of the batch", b"0", b"1"]
