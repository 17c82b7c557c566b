"""Limits over real sockets: what is refused, how it is told, and that nothing is dropped."""

import time
from contextlib import closing
from pathlib import Path

import pytest
from pyarrow import flight

from headwater.control import call
from headwater.identity.book import AccessBook
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import BpspWire, BrokerProcess, eventually
from tests.flight.client import Client, rows

PASSWORD = "correct horse"


def refusals(broker: BrokerProcess, limit: str) -> int:
    found: int = call(broker.data, "metrics")["access"]["limits"][limit]
    return found


def test_connections_from_one_address(tmp_path: Path) -> None:
    limits = {"HEADWATER_LIMITS_CONNECTIONS_PER_ADDRESS": "2"}
    with BrokerProcess(tmp_path / "data", **limits) as broker:
        first, _ = broker.bpsp(), broker.bpsp()
        third = BpspWire(broker.ports["bpsp"])
        opcode, headers, text = third.frame()
        assert (opcode, headers["x-status-code"]) == (bpsp.ERR, "503")
        assert b"limits.connections_per_address" in text
        assert third.rest() == b""
        third.close()
        # PSMB has no words at this point, and closes in order.
        other = broker.psmb()
        other.send(psmb.PsmbClientSession.hello())
        assert other.rest() == b""
        assert refusals(broker, "connections_per_address") == 2
        first.close()
        for _ in eventually():
            wire = BpspWire(broker.ports["bpsp"])
            found = wire.frame()[0]
            wire.close()
            if found == bpsp.INFO:
                break


def test_connections_of_one_user(tmp_path: Path) -> None:
    AccessBook(tmp_path / "data").add_user("alice", "client", PASSWORD)
    limits = {"HEADWATER_LIMITS_CONNECTIONS_PER_USER": "1"}
    with BrokerProcess(tmp_path / "data", **limits) as broker:
        one, two = broker.bpsp(), broker.bpsp()
        for wire, status in ((one, 200), (two, 507)):
            wire.request(bpsp.CONNECT, x_username="alice", x_password=PASSWORD)
            assert wire.status() == status
        assert refusals(broker, "connections_per_user") == 1


@pytest.mark.both_loops
def test_a_fast_publisher_is_slowed_and_loses_nothing(broker: BrokerProcess) -> None:
    broker.stop()
    broker.set(HEADWATER_LIMITS_MESSAGES_PER_SECOND="2000")
    broker.start()
    subscriber, publisher, other = broker.bpsp(), broker.publisher("t"), broker.bpsp()
    subscriber.subscribe("t")
    began = time.monotonic()
    payloads = [b"%d" % number for number in range(6000)]
    for at in range(0, 6000, 500):
        publisher.messages(*payloads[at : at + 500])
        assert other.publish("elsewhere", b"not slowed") == 200
    assert time.monotonic() - began >= 1.5  # 2,000 at once, and 4,000 more at their pace
    assert [subscriber.frame()[2] for _ in payloads] == payloads
    slowed = call(broker.data, "metrics")["loop"]["slowed"]
    assert next(each for each in slowed if each["reason"] == "rate")["times"] > 0


def test_stored_bytes_of_one_user(tmp_path: Path) -> None:
    AccessBook(tmp_path / "data").add_user("alice", "client", PASSWORD)
    limits = {"HEADWATER_LIMITS_STORED_BYTES_PER_USER": "10KiB"}
    with BrokerProcess(tmp_path / "data", **limits) as broker:
        wire = broker.bpsp()
        wire.request(bpsp.CONNECT, x_username="alice", x_password=PASSWORD)
        assert wire.status() == 200
        assert wire.publish("a", bytes(8000)) == 200
        wire.request(bpsp.PUB, bytes(8000), x_topic="a")
        opcode, headers, text = wire.frame()
        assert (opcode, headers["x-status-code"]) == (bpsp.ERR, "507")
        assert b"limits.stored_bytes_per_user" in text
        assert broker.bpsp().publish("a", bytes(8000)) == 200  # of someone else
        assert refusals(broker, "stored_bytes_per_user") == 1


def test_the_limits_of_a_user_hold_over_flight(tmp_path: Path) -> None:
    book = AccessBook(tmp_path / "data")
    book.add_user("alice", "client", PASSWORD)
    token = book.add_token("alice")["token"]
    limits = {
        "HEADWATER_LIMITS_STORED_BYTES_PER_USER": "10KiB",
        "HEADWATER_LIMITS_MESSAGES_PER_SECOND_PER_USER": "100",
    }
    with BrokerProcess(tmp_path / "data", **limits) as broker:
        wire = broker.bpsp()
        wire.request(bpsp.CONNECT, x_username="alice", x_password=PASSWORD)
        assert wire.status() == 200
        assert wire.publish("a", bytes(8000)) == 200
        with closing(Client(broker.ports["flight"], token)) as client:
            command = {"do": "append", "producer": "p", "sequence": 1}
            with pytest.raises(flight.FlightServerError, match=r"limits\.stored_bytes_per_user"):
                client.put(rows(("a", bytes(8000))), **command)
            assert client.act("log")["end"] == 1
            assert refusals(broker, "stored_bytes_per_user") == 1
            assert client.put(rows(("a", bytes(2000))), **command)["count"] == 1
            began = time.monotonic()
            for sequence in range(2, 5):  # 100 at once, and each further 100 take a second
                client.put(rows(*[("a", b"x")] * 70), do="append", producer="p", sequence=sequence)
            assert time.monotonic() - began >= 0.3
        slowed = call(broker.data, "metrics")["loop"]["slowed"]
        assert next(each for each in slowed if each["reason"] == "rate")["times"] > 0
