"""Clients of the console that send half of what they should, or nothing, or read nothing."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.console.stand import MARK, client_of, console_of, publish
from tests.e2e.process import PATIENCE, BrokerProcess, eventually

HALF = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW = (
    b"POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nX-Headwater: 1\r\n"
    b'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"name'
)


@pytest.fixture(scope="module", autouse=True)
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def connect(broker: BrokerProcess, data: bytes = b"") -> socket.socket:
    made = socket.create_connection(("127.0.0.1", broker.ports["console"]), PATIENCE)
    made.sendall(data)
    return made


def rest_of(wire: socket.socket) -> bytes:
    """All that comes until the console closes the connection."""
    got = b""
    with suppress(ConnectionError):
        while data := wire.recv(65536):
            got += data
    return got


def is_healthy(wire: socket.socket) -> bool:
    """Read the answer to `WHOLE`."""
    got = b""
    while not got.endswith(b"ok\n") and (data := wire.recv(65536)):
        got += data
    return got.startswith(b"HTTP/1.1 200 ")


@contextmanager
def many(broker: BrokerProcess, count: int, data: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        yield [stack.enter_context(connect(broker, data)) for _ in range(count)]


def health(broker: BrokerProcess) -> tuple[int, float]:
    """The status, and how long it took on a connection of its own."""
    began = time.monotonic()
    with connect(broker, WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) as wire:
        status = int(rest_of(wire).split(b" ", 2)[1])
    return status, time.monotonic() - began


@pytest.mark.parametrize("data", [HALF, SLOW, WHOLE, b""], ids=["half", "slow", "idle", "silent"])
def test_thousands_that_do_not_go_on_keep_nobody_out(tmp_path: Path, data: bytes) -> None:
    with console_of(tmp_path / "data") as broker:
        assert health(broker)[0] == 200
        with many(broker, 3000, data):
            found = [health(broker) for _ in range(10)]
            assert {status for status, _ in found} == {200}
            # The best of them: the machine may be busy with anything.
            assert min(seconds for _, seconds in found) < 0.1


def test_the_oldest_idle_connection_makes_room(tmp_path: Path) -> None:
    ten = {"HEADWATER_CONSOLE_CONNECTIONS": "10"}
    with console_of(tmp_path / "data", **ten) as broker, many(broker, 10, WHOLE) as wires:
        assert all(map(is_healthy, wires))
        with connect(broker, WHOLE) as newest:
            assert is_healthy(newest)
            assert rest_of(wires[0]) == b""
            wires[9].sendall(WHOLE)  # it is there still
            assert is_healthy(wires[9])


def test_a_tenth_of_all_may_be_sending_and_the_oldest_of_them_makes_room(tmp_path: Path) -> None:
    with console_of(tmp_path / "data", HEADWATER_CONSOLE_CONNECTIONS="200") as broker:
        with many(broker, 20, SLOW) as wires, many(broker, 2, SLOW):
            assert rest_of(wires[0]) == rest_of(wires[1]) == b""
            with connect(broker, WHOLE) as other:
                assert is_healthy(other)
            wires[2].setblocking(False)
            with pytest.raises(BlockingIOError):  # it is there still
                wires[2].recv(1)
        with client_of(broker) as client:
            assert "headwater_console_connections_dropped_total 2.0" in client.get("/metrics").text


def test_who_is_working_is_not_dropped_for_others(tmp_path: Path) -> None:
    """Ten live pages, and no room for an eleventh client."""
    page = b"GET /api/v1/live?page=overview HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with console_of(tmp_path / "data", HEADWATER_CONSOLE_CONNECTIONS="10") as broker:
        with many(broker, 10, page) as wires:
            for wire in wires:
                assert b"200 OK" in wire.recv(65536)
            with connect(broker, WHOLE) as further:
                answer = rest_of(further)
                assert answer.startswith(b"HTTP/1.1 503") and b"Retry-After: 1" in answer
        for _ in eventually():
            if health(broker)[0] == 200:
                break
        with client_of(broker) as client:
            metrics = client.get("/metrics").text
            assert "headwater_console_connections_turned_away_total 1.0" in metrics
            name = 'headwater_limit_refusals_total{limit="console.connections"}'
            assert f"{name} 1.0" in metrics


@pytest.mark.parametrize("data", [HALF, b""], ids=["half", "silent"])
def test_the_head_of_a_request_has_to_come_in_time(tmp_path: Path, data: bytes) -> None:
    soon = {"HEADWATER_LIMITS_HANDSHAKE_SECONDS": "0.5"}
    with console_of(tmp_path / "data", **soon) as broker, connect(broker, data) as wire:
        assert rest_of(wire).startswith(b"HTTP/1.1 408 ")


def test_drops_of_a_head_do_not_count_as_progress(tmp_path: Path) -> None:
    soon = {"HEADWATER_LIMITS_HANDSHAKE_SECONDS": "0.5"}
    with (
        console_of(tmp_path / "data", **soon) as broker,
        connect(broker, HALF) as wire,
        suppress(ConnectionError),
    ):
        for _ in eventually():
            wire.sendall(b"x")  # until it is closed


def test_the_body_of_a_request_has_to_come_in_time(tmp_path: Path) -> None:
    settings = {"HEADWATER_LIMITS_UNFINISHED_SECONDS": "1"}
    with console_of(tmp_path / "data", **settings) as broker, connect(broker, SLOW) as wire:
        answer = rest_of(wire)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"the body of the request did not arrive in time" in answer


def test_a_large_body_that_keeps_coming_has_more_time(tmp_path: Path) -> None:
    """A megabyte is worth sixteen seconds."""
    settings = {"HEADWATER_LIMITS_UNFINISHED_SECONDS": "1"}
    body = b'{"text": "' + b"x" * (1 << 20) + b'"}'
    with console_of(tmp_path / "data", **settings) as broker, client_of(broker) as client:

        def pieces() -> Iterator[bytes]:
            yield body[:-1]
            time.sleep(2.0)  # longer than the limit: what has come is worth more
            yield body[-1:]

        url = "/api/v1/topics/large/messages"
        assert client.post(url, content=pieces(), headers=MARK).status_code == 201


def test_an_answer_has_to_be_read(tmp_path: Path) -> None:
    settings = {"HEADWATER_LIMITS_UNFINISHED_SECONDS": "1"}
    with console_of(tmp_path / "data", **settings) as broker, client_of(broker) as client:
        publish(broker, "large", bytes(15 << 20))
        ask = b"GET /api/v1/topics/large/messages/0/payload HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with connect(broker, ask) as wire:
            assert wire.recv(10) == b"HTTP/1.1 2"
            for _ in eventually():  # and nothing is read meanwhile
                if "headwater_console_connections_dropped_total 1.0" in client.get("/metrics").text:
                    break
            assert len(rest_of(wire)) < 15 << 20


def test_a_head_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with console_of(tmp_path / "data") as broker, connect(broker, HALF + b"x" * 100_000) as wire:
        assert rest_of(wire).startswith(b"HTTP/1.1 4")


def test_nobody_upgrades_to_a_connection_without_bounds(tmp_path: Path) -> None:
    upgrade = WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    with console_of(tmp_path / "data") as broker, connect(broker, upgrade) as wire:
        assert is_healthy(wire)
