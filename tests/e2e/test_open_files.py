"""A broker that may not have many files open: clients are turned away, messages are not refused."""

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.protocols.bpsp import codec as bpsp
from tests.e2e.process import BpspWire, BrokerProcess, eventually

FILES = 256
SEGMENT = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data", HEADWATER_LOG_SEGMENT_BYTES=str(SEGMENT))
    broker.files = FILES
    with broker:
        yield broker


def publish_segments(wire: BpspWire, segments: int) -> None:
    """Publish so much that the log begins some new segments."""
    payload = os.urandom(SEGMENT // 4)
    for number in range(5 * segments):
        assert wire.publish("t", b"%d." % number + payload) == 200, number


def segments_of(broker: BrokerProcess) -> int:
    return len(list((broker.data / "log").glob("*.log")))


def test_too_many_clients_leave_the_log_its_files(broker: BrokerProcess) -> None:
    publisher = broker.bpsp()
    with ExitStack() as stack:
        wires = [BpspWire(broker.ports["bpsp"]) for _ in range(FILES)]
        for wire in wires:
            stack.callback(wire.close)
        first = [wire.frame() for wire in wires]
        statuses = [headers["x-status-code"] for op, headers, _ in first if op == bpsp.ERR]
        assert statuses == ["503"] * (FILES - 127)
        check_rolls(broker, publisher)


def check_rolls(broker: BrokerProcess, publisher: BpspWire) -> None:
    publish_segments(publisher, 3)
    assert segments_of(broker) > 3
    assert "no more than 128 clients can be connected" in broker.log
    assert "Traceback" not in broker.log


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux can do this")
def test_a_segment_begins_without_a_free_file(broker: BrokerProcess) -> None:
    """Something else takes all of them, such as a crowd that came in one moment."""
    publisher = broker.bpsp()
    publish_segments(publisher, 1)
    hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (highest_file(broker) + 1, hard))
    before = segments_of(broker)
    publish_segments(publisher, 6)  # again and again: the reserve fills up meanwhile
    assert segments_of(broker) >= before + 6
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (FILES, hard))
    for _ in eventually():  # a reader needs files of its own
        if broker.subscriber("t", identity=3).message().startswith(b"0."):
            break
    assert broker.stop() == 0


def highest_file(broker: BrokerProcess) -> int:
    """A limit says how large the number of a new file may be; those below may be free."""
    return max(map(int, os.listdir(f"/proc/{broker.pid}/fd")))
