"""The second layer: parts of a broker that end, and clients that hang when it has to stop."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.flight as flight
import pytest

from headwater.protocols.bpsp import codec as bpsp
from tests.console.stand import client_of, console_of
from tests.e2e.faults import DYING_FLIGHT, DYING_THREAD, EARLY_TERM, injected
from tests.e2e.process import PATIENCE, BrokerProcess, eventually, held_port


@pytest.mark.parametrize(
    ("of", "name"),
    [("writer.LogWriter._write", "log-writer"), ("syncer.Syncer._cover", "log-syncer")],
)
def test_a_thread_that_ends_takes_the_broker_along(tmp_path: Path, of: str, name: str) -> None:
    settings = injected(tmp_path, DYING_THREAD.format(of=of))
    with console_of(tmp_path / "data", **settings) as broker, client_of(broker) as console:
        wire, other = broker.bpsp(), broker.bpsp()
        assert wire.publish("a", b"kept") == 200
        assert console.get("/readyz").status_code == 200
        # So much that the writer does not wait for the disk by itself.
        assert wire.publish("a", b"die" * 100_000) == 507
        sentence = f"the log has failed: {name} ended by RuntimeError (a bug)"
        assert other.publish("a", b"too late") == 507
        for _ in eventually():  # what the console knows is a moment old
            ready = console.get("/readyz")
            if ready.status_code == 503:
                break
        assert ready.text == f"{sentence}\n"
        for _ in eventually():
            if alerts := console.get("/api/v1/overview").json()["alerts"]:
                break
        assert [(each["kind"], each["message"]) for each in alerts] == [("log", sentence)]
        assert broker.stop() == 1  # without SIGTERM it does so after some seconds
        assert broker.log.endswith(f"headwater: error: {sentence}\n")
    with BrokerProcess(tmp_path / "data") as again:
        again.subscriber("a", 1).expect_messages(b"kept")
        again.publisher("a").messages(b"and on")


def test_flight_that_ends_takes_the_broker_along(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", **injected(tmp_path, DYING_FLIGHT)) as broker:
        assert broker.finish() == 1
    assert broker.log.endswith("headwater: error: Arrow Flight has failed: it returned\n")


def test_sigterm_at_the_start_is_obeyed(tmp_path: Path) -> None:
    settings = injected(tmp_path, EARLY_TERM)
    with pytest.raises(RuntimeError, match="the broker did not start: 0 "):
        BrokerProcess(tmp_path / "data", **settings).start()


def test_no_port_is_open_when_one_cannot_be(tmp_path: Path) -> None:
    """What was bound before is never accepted on: clients would be cut off at once."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        held = held_port()  # nobody else is given it
        port = held.getsockname()[1]
        accepted, done = [], threading.Event()

        def knock() -> None:
            while not done.is_set():
                with socket.socket() as client:
                    if client.connect_ex(("127.0.0.1", port)) == 0:
                        accepted.append(client.getsockname())

        knocking = threading.Thread(target=knock)
        knocking.start()
        ran = subprocess.run(
            [sys.executable, "-m", "headwater", "serve", "--data", str(tmp_path / "data")],
            env={
                **os.environ,
                "HEADWATER_LISTEN_PSMB": f"127.0.0.1:{port}",
                "HEADWATER_LISTEN_BPSP": f"127.0.0.1:{taken.getsockname()[1]}",
                **{
                    f"HEADWATER_LISTEN_{name}": "off"
                    for name in ("BMTP", "PRISM", "CRYSTAL", "FLIGHT", "CONSOLE")
                },
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        done.set()
        knocking.join()
        held.close()
    assert ran.returncode == 1 and "cannot listen for bpsp" in ran.stderr
    assert accepted == []


def test_nobody_who_hangs_holds_up_the_stop(tmp_path: Path) -> None:
    """A reader over Flight and a subscriber that do not read, a publisher in the middle of a
    message, a stream of the console: those who listen are told goodbye all the same."""
    with console_of(tmp_path / "data") as broker:
        broker.publisher("big").messages(*[bytes(1 << 20)] * 64)
        reader = flight.connect(f"grpc://127.0.0.1:{broker.ports['flight']}")
        ticket = flight.Ticket(json.dumps({"start": 0, "end": 64}).encode())
        stream = reader.do_get(ticket)
        stream.read_chunk()  # and no more
        stuck = broker.subscriber("big", 7)
        unfinished = broker.bpsp()
        unfinished.send(
            bpsp.frame(bpsp.PUB, bpsp.format_headers((("x-topic", "a"),)), bytes(1000), bpsp.ACK)[
                :500
            ]
        )
        with socket.create_connection(("127.0.0.1", broker.ports["console"])) as page:
            page.sendall(b"GET /api/v1/live?page=overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert page.recv(12) == b"HTTP/1.1 200"
            listening = broker.subscriber("other")
            for _ in eventually():
                if stuck.socket.recv(1, socket.MSG_PEEK):
                    break
            assert broker.stop() == 0
            assert listening.rest().endswith(b"BYE")
    assert "Traceback" not in broker.log
    assert "a reader over Flight does not take its last rows; it is cut off" in broker.log
    with pytest.raises((flight.FlightError, OSError)):
        while True:
            stream.read_chunk()
