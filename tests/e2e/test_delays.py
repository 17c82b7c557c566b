"""Messages for later, with a real broker, its real clock and a kill."""

import time
from pathlib import Path

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
