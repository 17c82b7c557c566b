"""Messages for later, with a real broker, its real clock and a kill."""

import json
import time
from pathlib import Path

from headwater.protocols.bmtp.wire import HELLO
from headwater.protocols.bpsp import codec as bpsp
from tests.e2e.process import BpspWire, BrokerProcess


def publish(wire: BpspWire, payload: bytes, flag: int = bpsp.ACK, **headers: str) -> int:
    wire.request(bpsp.PUB, payload, flag, x_topic="t", **headers)
    return wire.status()


def test_a_message_for_later_survives_a_kill(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        wire = broker.bpsp()
        due = int(time.time() * 1000) + 1_000
        assert publish(wire, b"later", deliver_at=str(due)) == 200
        assert publish(wire, b"gone by then", expire_at="1000") == 200
        assert publish(wire, b"at once") == 200
        assert publish(wire, b"never", deliver_at="tomorrow") == 400
        broker.kill()
        broker.start()
        reader = broker.subscriber("t", identity=1)
        assert reader.message(answer=True) == b"at once"
        assert reader.message(answer=True) == b"later"
        assert time.time() * 1000 >= due
        assert broker.stop() == 0


def test_bmtp_clients_of_the_deployed_server_are_served_later(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_BMTP_DIALECT="bitmq") as broker:
        subscriber, publisher = broker.wire("bmtp"), broker.wire("bmtp")
        for wire in (subscriber, publisher):
            wire.send(HELLO)
            assert wire.read(1) == b"\x20"
        subscriber.send(b"\x50\0\0\0\x2a")
        assert subscriber.read(5) == b"\x60\0\0\0\x2a"
        began = time.time()
        for data in (b'"effect":1,"data":"later"', b'"delivery_mode":1,"data":"now"'):
            body = b'{"consumer_id":42,%b}' % data
            publisher.send(b"\x31\x01" + len(body).to_bytes(2) + body)
            assert publisher.read(2) == b"\x40\x01"
        assert subscriber.read(1) == b"\x30"  # QoS 0, without a stream id
        first = subscriber.read(int.from_bytes(subscriber.read(2)))
        assert json.loads(first)["data"] == "now"
        assert subscriber.read(2) == b"\x31\x01"
        second = json.loads(subscriber.read(int.from_bytes(subscriber.read(2))))
        assert (second["data"], "producer_id" in second) == ("later", False)
        assert time.time() - began >= 1
