"""Flight clients that ask for too much, at once or for ever: each hears a sentence, and the broker
goes on."""

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from headwater.control import call
from headwater.errors import Refusal
from headwater.flight import patterns, requests
from headwater.flight.patterns import TopicPattern
from headwater.flight.requests import WRITE_SCHEMA
from headwater.sockets import hang_up
from headwater.spark.flight_client import FlightClient, RecordSelection
from hostile.attacks import COSTLY_PATTERN
from tests.e2e.process import PATIENCE, BrokerProcess, eventually
from tests.flight.client import Client, rows

STOP_SECONDS = 5.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("flight") / "data") as running:
        yield running


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[Client]:
    with contextlib.closing(Client(broker.ports["flight"])) as made:
        yield made


@contextlib.contextmanager
def serving(tmp_path: Path, **settings: str) -> Iterator[tuple[BrokerProcess, Client]]:
    with (
        BrokerProcess(tmp_path / "data", **settings) as broker,
        contextlib.closing(Client(broker.ports["flight"])) as client,
    ):
        yield broker, client


def raw(broker: BrokerProcess) -> Any:
    return flight.connect(f"grpc://127.0.0.1:{broker.ports['flight']}")


def small_batch(*names: str, count: int = 1000, size: int = 1000) -> Any:
    return rows(*[(names[number % len(names)], os.urandom(size)) for number in range(count)])


NESTED = b'{"pipeline": "p", "state": ' + b'{"a": ' * 40 + b"1" + b"}" * 41
DEEP = b'{"pipeline": "p", "state": ' + b'{"a": ' * 100_000 + b"1" + b"}" * 100_001


@pytest.mark.parametrize(
    ("action", "body", "sentence"),
    [
        ("abort", {"query": "q" * 1000, "batch": 1}, "1 to 200 characters"),
        ("committed", {"query": "q" * 100_000}, "query has to be a text of at most"),
        ("committed", {"query": "\ud800"}, "in UTF-8"),
        ("abort", {"query": "q", "batch": 2**70}, f"from 0 to {2**63 - 1}"),
        ("commit", {"query": "q", "batch": 2**63, "parts": {}}, "batch has to be"),
        ("commit", {"query": "q", "batch": 1, "parts": {"9" * 5000: "x"}}, "a part is a number"),
        ("commit", {"query": "q", "batch": 1, "parts": {"²": "x"}}, "a part is a number"),
        ("offset_at", {"timestamp": 2**64}, "timestamp has to be"),
        ("split", {"start": 0, "end": 2**70, "bytes": 1}, "end has to be"),
        ("topics", {"limit": -1}, "limit has to be"),
        ("topics", {"pattern": "(" * 65_000}, "bad pattern"),
        ("x" * 10_000, {}, "there is no action x{100}[^x]"),
        ("log", {"x" * 10_000: 1}, "there is no x{100} in"),
        ("report", NESTED, "nested at most 32 deep"),
        ("report", DEEP, "a request is a JSON object"),
        ("log", b"9" * 10_000, "a request is a JSON object"),
        ("log", b'{"a": "' + b"x" * (5 << 20) + b'"}', "at most 4194304 bytes"),
        ("log", b"\xff", "a request is a JSON object"),
    ],
    ids=count(),
)
def test_actions_beyond_all_bounds_are_refused_with_a_sentence(
    broker: BrokerProcess, action: str, body: Any, sentence: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    with raw(broker) as client, pytest.raises(flight.FlightServerError, match=sentence) as caught:
        list(client.do_action(flight.Action(action, content)))
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"start": 0, "end": 2**70}, "end has to be"),
        ({"start": 0, "end": 0, "topics": ["t"] * 10_001}, "at most 10000 texts"),
        ({"start": 0, "end": 0, "topics": [[[]]]}, "topics has to be"),
        ({"start": 0, "end": 0, "pattern": "a" * 66_000}, "pattern has to be"),
    ],
    ids=count(),
)
def test_so_are_reads(client: Client, request_: dict[str, Any], sentence: str) -> None:
    with pytest.raises(flight.FlightServerError, match=sentence):
        client.read(**request_)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ({"do": "append", "producer": "p", "sequence": 2**70}, "sequence has to be"),
        ({"do": "append", "producer": "p" * 300, "sequence": 0}, "1 to 200 characters"),
        ({"do": "stage", "query": "q", "batch": 0, "partition": 2**64}, "partition has to be"),
        ({"do": ["append"]}, "say"),
        ([1], "a request is a JSON object"),
    ],
)
def test_so_are_writes(broker: BrokerProcess, command: Any, sentence: str) -> None:
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    with raw(broker) as client:
        writer, reader = client.do_put(descriptor, WRITE_SCHEMA)
        with pytest.raises(flight.FlightServerError, match=sentence), writer:
            writer.write_batch(rows(("a", b"0")))
            writer.done_writing()
            reader.read()


def test_names_that_are_long_on_the_disk_are_fine(client: Client) -> None:
    """Each of these letters is twelve characters in the name of a file."""
    name = "\N{DROPLET}" * 190
    client.put(rows(("names", b"0")), do="append", producer=name, sequence=0)
    assert client.act("committed", query=f"producer/{name}")["batch"] == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: list(client.list_flights()),
        lambda client: client.get_flight_info(flight.FlightDescriptor.for_path("x")),
        lambda client: client.do_exchange(flight.FlightDescriptor.for_path("x"))[1].read_all(),
    ],
    ids=["list", "info", "exchange"],
)
def test_what_there_is_not_is_said_without_a_traceback(broker: BrokerProcess, ask: Any) -> None:
    with raw(broker) as client, pytest.raises(pa.ArrowException, match="there is no") as caught:
        ask(client)
    assert "Traceback" not in str(caught.value) and "pyarrow/" not in str(caught.value)


def test_errors_of_the_broker_stay_in_its_log(tmp_path: Path) -> None:
    """A damaged database of commits, as an example of what nobody expects."""
    with serving(tmp_path) as (broker, client):
        client.act("committed", query="q")
        for _ in eventually():  # who looks for stages that nobody wants may make it once more
            (broker.data / "flight.db").unlink(missing_ok=True)
            with contextlib.suppress(FileExistsError):
                (broker.data / "flight.db").mkdir()
                break
        with pytest.raises(pa.ArrowException) as caught:
            client.act("commit", query="q", batch=1, parts={})
    assert "Traceback" not in str(caught.value)
    assert str(tmp_path) not in str(caught.value) and ".py" not in str(caught.value)


def test_a_range_is_cut_into_a_bounded_number_of_pieces(tmp_path: Path) -> None:
    with serving(tmp_path, HEADWATER_LOG_SEGMENT_BYTES="1MiB") as (_, client):
        for number in range(4):
            batch = small_batch("a", count=10_000, size=100)
            client.put(batch, do="append", producer="p", sequence=number)
        client.put(small_batch("a", count=7), do="append", producer="q", sequence=0)
        end = client.act("log")["end"]
        ranges = client.act("split", start=3, end=end, bytes=1)["ranges"]
    assert 5_000 < len(ranges) <= 10_000 + 10
    assert (ranges[0][0], ranges[-1][1]) == (3, end)
    assert all(one[1] == two[0] for one, two in pairwise(ranges))
    assert all(low < high for low, high, _ in ranges)


def test_a_listing_has_an_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"listing/{number:05}" for number in range(requests.MOST_LISTED + 5)]
    client.put(rows(*[(name, b"x") for name in names]), do="append", producer="l", sequence=0)
    found = client.act("topics", limit=2**63 - 1, pattern="listing/.*")
    assert [each["topic"] for each in found["topics"]] == names[:-5]
    assert found["more"] is True


def test_a_costly_pattern_has_so_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "MATCH_SECONDS", 0.1)
    pattern = TopicPattern(COSTLY_PATTERN)
    with pytest.raises(Refusal, match="this pattern takes more than"):
        for number in range(10_000):
            pattern.matches(f"{number}" + "a" * 1000)


def test_a_record_batch_that_is_too_large_is_refused(tmp_path: Path) -> None:
    limits = {
        "HEADWATER_FLIGHT_RECORD_BATCH_BYTES": "1MiB",
        "HEADWATER_LIMITS_MESSAGE_BYTES": "100KiB",
    }
    with serving(tmp_path, **limits) as (broker, client):
        with pytest.raises(flight.FlightServerError, match=r"flight\.record_batch_bytes"):
            client.put(small_batch("a", count=1200), do="append", producer="p", sequence=0)
        assert broker.refusals("flight.record_batch_bytes") == 1
        client.put(small_batch("a", count=900), do="append", producer="p", sequence=0)


@pytest.mark.parametrize("column", ["dictionary", "view"])
def test_rows_that_share_their_values_do_not_explode(client: Client, column: str) -> None:
    """A few bytes for each row, and a gigabyte as messages."""
    big = pa.array([bytes(1 << 20)], pa.binary())
    if column == "dictionary":
        values = pa.DictionaryArray.from_arrays(pa.array([0] * 1024, pa.int32()), big)
    else:
        views = struct.pack("<i4sii", 1 << 20, bytes(4), 0, 0) * 1024
        buffers = [None, pa.py_buffer(views), pa.py_buffer(bytes(1 << 20))]
        values = pa.Array.from_buffers(pa.binary_view(), 1024, buffers)
    batch = pa.record_batch({"topic": pa.array(["a"] * 1024), "value": values})
    with pytest.raises(flight.FlightServerError, match=r"flight\.record_batch_bytes"):
        client.put(batch, do="append", producer="explode", sequence=0)


def test_views_and_dictionaries_are_fine_otherwise(client: Client) -> None:
    values = pa.array([b"short", b"x" * 100, b"short"])
    for number, each in enumerate((values.cast(pa.binary_view()), values.dictionary_encode())):
        batch = pa.record_batch({"topic": pa.array(["views"] * 3), "value": each})
        done = client.put(batch, do="append", producer="views", sequence=number)
        found = client.read(start=done["first"], end=done["first"] + 3)
        assert found.column("value").to_pylist() == values.to_pylist()


def test_what_is_staged_has_a_limit(tmp_path: Path) -> None:
    with serving(tmp_path, HEADWATER_FLIGHT_STAGED_BYTES="2MiB") as (broker, client):

        def stage(count: int, partition: int) -> None:
            batch = small_batch("a", count=count)
            client.put(batch, do="stage", query="q", batch=1, partition=partition)

        with pytest.raises(flight.FlightServerError, match="smaller batches"):
            stage(3000, 0)
        stage(1500, 1)
        with pytest.raises(flight.FlightUnavailableError, match=r"flight\.staged_bytes"):
            stage(1500, 2)
        assert broker.refusals("flight.staged_bytes") == 2
        client.act("commit", query="q", batch=1, parts={"1": ""})
        client.put(small_batch("a", count=1500), do="stage", query="q", batch=2, partition=0)


def test_a_commit_that_takes_too_much_memory_is_refused_and_can_be_made_smaller(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_FLIGHT_COMMIT_BYTES="1MiB") as broker:
        broker.keep_ports()
        client = Client(broker.ports["flight"])
        changing, sorted_ = small_batch("a", "b", count=5000, size=10), small_batch("a", count=5000)
        with pytest.raises(flight.FlightServerError, match=r"flight\.commit_bytes"):
            client.put(changing, do="append", producer="p", sequence=1)
        assert client.act("log")["end"] == 0
        assert broker.refusals("flight.commit_bytes") == 1
        client.close()
        broker.stop()
        broker.start()  # nothing was left half done
        client = Client(broker.ports["flight"])
        assert "which a crash interrupted" not in broker.log
        client.put(sorted_, do="append", producer="p", sequence=1)
        assert client.act("log")["end"] == 5000
        client.close()


def anonymous_of(broker: BrokerProcess) -> int:
    """Bytes of resident memory that are in no file."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    (line,) = [each for each in status.splitlines() if each.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


def peak_anonymous(broker: BrokerProcess, stop: threading.Event, peak: list[int]) -> None:
    while not stop.wait(0.01):
        peak.append(anonymous_of(broker))


def test_a_large_append_takes_little_memory(tmp_path: Path) -> None:
    size, piece = 400 << 20, small_batch("a", count=8, size=1 << 20)
    with BrokerProcess(tmp_path / "data") as broker, raw(broker) as client:
        stop, peak = threading.Event(), list[int]()
        watching = threading.Thread(target=peak_anonymous, args=(broker, stop, peak))
        command = {"do": "append", "producer": "p", "sequence": 0}
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        watching.start()
        writer, reader = client.do_put(descriptor, WRITE_SCHEMA)
        with writer:
            for _ in range(size // (8 << 20)):
                writer.write_batch(piece)
            writer.done_writing()
            answer = json.loads(reader.read().to_pybytes())
        stop.set()
        watching.join()
        assert answer["count"] == size >> 20
        assert max(peak) - min(peak) < size * 3 // 4
        with contextlib.closing(Client(broker.ports["flight"])) as reading:
            (range_,) = reading.act("split", start=0, end=1, bytes=1 << 30)["ranges"]
            assert range_[:2] == [0, 1]
            got = reading.read(start=390, end=400).column("value").to_pylist()
            assert got == piece.column("value").to_pylist()[6:] + piece.column("value").to_pylist()


def test_what_readers_held_is_given_back(tmp_path: Path) -> None:
    """In the quiet after them: Flight takes its memory from where Python's Arrow does."""
    with BrokerProcess(tmp_path / "data") as broker:
        end = fill(broker, 64)
        stalled = [reading_nothing(broker, end) for _ in range(40)]
        for client, reader in stalled:
            reader.cancel()
            client.close()
        for _ in eventually(4 * PATIENCE):
            if anonymous_of(broker) < 160 << 20:
                break


def fill(broker: BrokerProcess, mebibytes: int) -> int:
    with contextlib.closing(Client(broker.ports["flight"])) as client:
        for number in range(mebibytes // 8):
            batch = small_batch("fill", count=8, size=1 << 20)
            client.put(batch, do="append", producer="fill", sequence=number)
        end: int = client.act("log")["end"]
    return end


def counted(broker: BrokerProcess, name: str) -> int:
    (found,) = [each for each in call(broker.data, "metrics")["counters"] if each["name"] == name]
    count: int = found["count"]
    return count


def reading_nothing(broker: BrokerProcess, end: int) -> Any:
    """A read whose rows nobody takes. The connection has to be kept with it."""
    client = raw(broker)
    ticket = flight.Ticket(json.dumps({"start": 0, "end": end}).encode())
    reader = client.do_get(ticket)
    reader.read_chunk()
    return client, reader


def test_a_reader_that_stands_still_is_cut_off(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_LIMITS_DEAD_PEER_SECONDS="6") as broker:
        end = fill(broker, 128)
        client, reader = reading_nothing(broker, end)
        for _ in eventually():
            if "has neither read nor sent anything for 6 s" in broker.log:
                break
        assert counted(broker, "flight_connections_cut_off") == 1
        with pytest.raises((flight.FlightUnavailableError, flight.FlightInternalError)):
            reader.read_all()
        client.close()


def test_calls_beyond_the_limit_are_told_to_try_again(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_FLIGHT_CALLS="2") as broker:
        end = fill(broker, 64)
        stalled = [reading_nothing(broker, end) for _ in range(2)]
        with contextlib.closing(Client(broker.ports["flight"])) as client:
            with pytest.raises(flight.FlightUnavailableError, match=r"flight\.calls"):
                client.read(start=0, end=1)
            assert client.act("log")["end"] == end  # small requests have room of their own
        assert counted(broker, "flight_calls_refused") == 1 == broker.refusals("flight.calls")
        address = f"127.0.0.1:{broker.ports['flight']}"
        patient = FlightClient((address,), interval=0.1, retries=600)
        leaving = threading.Timer(1.0, lambda: [reader.cancel() for _, reader in stalled])
        leaving.start()
        assert sum(map(len, patient.read(RecordSelection(), 0, 3))) == 3
        leaving.join()
        patient.close()


@pytest.mark.parametrize("calls", [1, 20])
def test_the_broker_stops_in_time_whatever_flight_does(tmp_path: Path, calls: int) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        end = fill(broker, 64)
        stalled = [reading_nothing(broker, end) for _ in range(calls)]
        writers = [
            raw(broker).do_put(
                flight.FlightDescriptor.for_command(
                    json.dumps({"do": "append", "producer": f"{n}", "sequence": 0}).encode()
                ),
                WRITE_SCHEMA,
            )
            for n in range(calls)
        ]
        for writer, _ in writers:
            writer.write_batch(small_batch("a", count=10))  # and no end
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < STOP_SECONDS
        for client, _ in stalled:
            client.close()
        for writer, _ in writers:
            with contextlib.suppress(pa.ArrowException):
                writer.close()


def in_the_middle_of_a_commit(
    broker: BrokerProcess, client: Client, parts: dict[str, str]
) -> threading.Thread:
    """Commit what is staged, in a thread, and return when a part of it is in the log."""

    def commit() -> None:
        with contextlib.suppress(pa.ArrowException):
            client.act("commit", query="q", batch=1, parts=parts)

    committing = threading.Thread(target=commit)
    committing.start()
    for _ in eventually():
        if sum(each.stat().st_size for each in (broker.data / "log").glob("*.log")) > 64 << 20:
            break
    return committing


def test_it_stops_in_time_in_the_middle_of_a_large_commit(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        client = Client(broker.ports["flight"])
        parts = {str(number): "" for number in range(64)}
        for part in parts:
            batch = small_batch("a", count=16, size=1 << 20)
            client.put(batch, do="stage", query="q", batch=1, partition=int(part))
        committing = in_the_middle_of_a_commit(broker, client, parts)
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < STOP_SECONDS
        committing.join(PATIENCE)
        client.close()
        broker.start()
        with contextlib.closing(Client(broker.ports["flight"])) as again:
            again.act("commit", query="q", batch=1, parts=parts)
            assert again.act("log")["end"] == 1024


def test_a_large_commit_that_was_killed_is_there_once_and_in_order(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        values = [b"%d " % number + bytes(1 << 20) for number in range(256)]
        parts = {str(part): "" for part in range(16)}
        client = Client(broker.ports["flight"])
        for part in range(16):
            batch = rows(*[("a", each) for each in values[part * 16 : part * 16 + 16]])
            client.put(batch, do="stage", query="q", batch=1, partition=part)
        committing = in_the_middle_of_a_commit(broker, client, parts)
        broker.kill()
        committing.join(PATIENCE)
        client.close()
        broker.start()
        assert "which a crash interrupted" in broker.log  # it has finished it
        with contextlib.closing(Client(broker.ports["flight"])) as again:
            assert again.act("log")["end"] == 256
            assert again.act("commit", query="q", batch=1, parts=parts)["repeated"]
            assert again.read(start=0, end=256).column("value").to_pylist() == values


def test_hanging_up_finds_the_connection_of_another_library() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname())
        far, peer = listening.accept()
        with near, far:
            port, (host, theirs) = listening.getsockname()[1], peer
            assert not hang_up("127.0.0.2", theirs, port)
            assert not hang_up(host, theirs, 1)
            assert hang_up(host, theirs, port)
            assert near.recv(1) == b""
            files = len(os.listdir("/dev/fd"))
            hang_up("127.0.0.1", 1, port)
            assert len(os.listdir("/dev/fd")) == files
