"""The console is a process of its own: what becomes of it when it, or the broker, dies."""

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx

from headwater.identity.users import FILE, Users
from headwater.logging_setup import BURST, WINDOW_SECONDS
from tests.console.stand import MARK, client_of, console_of, publish
from tests.e2e.process import BrokerProcess, eventually


def children(pid: int) -> list[int]:
    found = []
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(each.parent.name))
    return found


def test_it_is_started_again_when_it_dies(tmp_path: Path) -> None:
    with console_of(tmp_path / "data") as broker, client_of(broker) as client:
        assert client.get("/healthz").status_code == 200
        (child,) = children(broker.pid)
        os.kill(child, signal.SIGKILL)
        publish(broker, "still", b"works")
        for _ in eventually():
            if "the console has ended with code -9; it starts again" in broker.log:
                break
        for _ in eventually():
            try:
                if client.get("/api/v1/topics/still").status_code == 200:
                    break
            except httpx.HTTPError:
                continue
        assert children(broker.pid) != [child]


def most_memory(pid: int) -> int:
    """The most bytes of memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def test_what_strangers_send_costs_no_memory(tmp_path: Path) -> None:
    """Of most routes, the body is read before it is known who asks."""
    data = tmp_path / "data"
    data.mkdir()
    Users(data / FILE).add("somebody", "operator")
    much = 96 << 20
    with console_of(data) as broker, client_of(broker) as client:
        assert client.get("/healthz").status_code == 200
        (console,) = children(broker.pid)
        before = most_memory(console)
        for path, status in (("login", 413), ("users", 413), ("topics/t/messages", 401)):
            body = (bytes(1 << 20) for _ in range(much >> 20))
            response = client.post(f"/api/v1/{path}", content=body, headers=MARK)
            assert response.status_code == status, response.text
        assert most_memory(console) - before < much // 3


def test_it_ends_with_the_broker(tmp_path: Path) -> None:
    broker = console_of(tmp_path / "data").start()
    with client_of(broker) as client:
        assert client.get("/healthz").status_code == 200
    (child,) = children(broker.pid)
    assert broker.stop() == 0
    assert not Path(f"/proc/{child}").exists()


def test_it_ends_when_the_broker_is_killed(tmp_path: Path) -> None:
    broker = console_of(tmp_path / "data").start()
    with client_of(broker) as client:
        assert client.get("/healthz").status_code == 200
    (child,) = children(broker.pid)
    broker.kill()
    for _ in eventually():
        if not Path(f"/proc/{child}").exists():
            break


def test_an_address_that_is_taken_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """As after a kill: the console of the broker before has it until it notices."""
    taken = socket.create_server(("127.0.0.1", 0))
    address = f"127.0.0.1:{taken.getsockname()[1]}"
    letting_go = threading.Timer(1.5, taken.close)
    letting_go.start()
    with console_of(tmp_path / "data", HEADWATER_LISTEN_CONSOLE=address) as broker:
        letting_go.join()
        with client_of(broker) as client:
            assert client.get("/healthz").status_code == 200


def test_an_address_that_is_taken_is_refused(tmp_path: Path) -> None:
    with console_of(tmp_path / "one") as first:
        taken = f"127.0.0.1:{first.ports['console']}"
        second = console_of(tmp_path / "two", HEADWATER_LISTEN_CONSOLE=taken)
        try:
            second.start()
        except RuntimeError as error:
            assert "cannot listen for console" in str(error)
            assert '[listen] console = "host:port"' in str(error)
        else:
            raise AssertionError("it did start")


def test_whoever_changes_something_is_in_the_log(tmp_path: Path) -> None:
    with console_of(tmp_path / "data") as broker, client_of(broker) as client:
        client.post("/api/v1/topics/a%2Fb/messages", json={"text": "x"}, headers=MARK)
        line = "console: POST /api/v1/topics/a/b/messages by anyone from 127.0.0.1"
        for _ in eventually():
            if line in broker.log:
                break


def test_lines_of_json(tmp_path: Path) -> None:
    broker = JsonBroker(tmp_path / "data")
    began = time.monotonic()
    with broker:
        broker.psmb().close()
        for _ in eventually():
            lines = [json.loads(line) for line in broker.errors]
            gone = [each for each in lines if each.get("event") == "gone"]
            if gone:
                break
        connected = next(each for each in lines if each.get("event") == "connected")
        assert connected["protocol"] == "psmb" and connected["level"] == "debug"
        assert connected["address"].startswith("127.0.0.1:") and connected["time"].endswith("Z")
        assert gone[0]["connection"] == connected["connection"]
        for _ in range(60):
            broker.psmb().close()
    took = time.monotonic() - began
    lines = [json.loads(line) for line in broker.errors]
    events = [each for each in lines if each.get("event") == "connected"]
    # So many in each window, of which a busy machine may have needed several.
    assert len(events) <= BURST * (1 + took // WINDOW_SECONDS), "lines of one cause are limited"


class JsonBroker(BrokerProcess):
    arguments = ("--log-format", "json")


def test_a_request_that_is_not_sent_to_its_end_is_no_error(tmp_path: Path) -> None:
    with console_of(tmp_path / "data") as broker:
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", broker.ports["console"])) as client:
                client.sendall(
                    b"POST /api/v1/topics/a/messages HTTP/1.1\r\nHost: localhost\r\n"
                    b"X-Headwater: 1\r\nContent-Type: application/json\r\n"
                    b'Content-Length: 1000\r\n\r\n{"payload'
                )
        for _ in eventually():
            if broker.log.count("POST /api/v1/topics/a/messages") == 5:
                break
        assert broker.stop() == 0
    assert "Traceback" not in broker.log
