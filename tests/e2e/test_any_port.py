"""The port for all protocols, and clients that let the broker speak first."""

from pathlib import Path

from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import BpspWire, BrokerProcess

HELLO = psmb.PsmbClientSession.hello()
SOON = {"HEADWATER_LIMITS_GREETING_SECONDS": "0.1"}


def test_a_client_that_waits_for_info_gets_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", **SOON) as broker:
        wire = BpspWire(broker.ports["any"])
        assert wire.frame()[0] == bpsp.INFO
        wire.request(bpsp.CONNECT)
        assert wire.frame()[0] == bpsp.OK  # and INFO comes only once
        assert wire.publish("a", b"1") == 200
        wire.close()


def test_a_client_that_has_begun_is_not_greeted(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", **SOON) as broker:
        slow = broker.wire("any")
        slow.send(HELLO[:1])
        later = BpspWire(broker.ports["any"])
        assert later.frame()[0] == bpsp.INFO
        slow.send(HELLO[1:])
        slow.expect(b"OK\0\0\0\0\0")
        later.close()


def test_a_client_of_another_protocol_that_begins_too_late_is_closed(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", **SOON) as broker:
        wire = BpspWire(broker.ports["any"])
        assert wire.frame()[0] == bpsp.INFO
        wire.send(HELLO)
        assert wire.status() == 405
        assert wire.rest() == b""
        wire.close()


def test_nobody_is_greeted_unasked_when_that_is_off(tmp_path: Path) -> None:
    settings = {
        "HEADWATER_LIMITS_GREETING_SECONDS": "off",
        "HEADWATER_LIMITS_HANDSHAKE_SECONDS": "0.5",
    }
    with BrokerProcess(tmp_path / "data", **settings) as broker:
        assert broker.wire("any").rest() == b""
        wire = BpspWire(broker.ports["any"])
        wire.request(bpsp.CONNECT, flag=0)
        assert wire.frame()[0] == bpsp.INFO
        wire.close()
