"""A disk that takes no more: publishes are refused with a reason until there is room again."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.disk import small_disk
from tests.e2e.process import BrokerProcess, eventually


def _publish_until_refused(broker: BrokerProcess, limit: int) -> list[bytes]:
    """What was acknowledged before the first refusal."""
    wire = broker.bpsp()
    accepted: list[bytes] = []
    while len(accepted) < limit:
        payload = b"%d." % len(accepted) + os.urandom(50_000)
        wire.request(bpsp.PUB, payload, x_topic="t")
        opcode, headers, data = wire.frame()
        if opcode == bpsp.ERR:
            assert headers["x-status-code"] == "507"
            assert b"the log cannot be written" in data
            return accepted
        accepted.append(payload)
    raise AssertionError("it was never refused")


def _check_refused_and_resumed(broker: BrokerProcess, accepted: list[bytes]) -> None:
    """Call it when there is room again."""
    wire = broker.bpsp()
    for _ in eventually():
        if wire.publish("t", b"after") == 200:
            break
    stored = broker.subscriber("t", identity=1)
    got = [stored.message(answer=True) for _ in range(len(accepted) + 1)]
    assert got == [*accepted, b"after"]  # all that was acknowledged, nothing that was refused
    broker.publisher("t").messages(b"by PSMB")
    assert stored.message() == b"by PSMB"


@pytest.mark.both_loops
def test_a_file_that_cannot_grow(broker: BrokerProcess) -> None:
    """The kernel refuses to let any file of the broker grow: a real error at a real write."""
    bystander = broker.publisher("t")
    no_limit = resource.prlimit(
        broker.pid, resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY)
    )
    accepted = _publish_until_refused(broker, 100)
    # Larger than the one that did not fit: the broker soon tries again, and a small one might fit.
    bystander.send(psmb.encode_messages([os.urandom(60_000)]))
    assert bystander.rest() == b"BYE"  # PSMB's only way to say that a message was not taken
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, no_limit)
    _check_refused_and_resumed(broker, accepted)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 4, "the test above covers the same ground") as made:
        yield made


def test_a_disk_that_is_full(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    with BrokerProcess(disk / "data") as broker:
        accepted = _publish_until_refused(broker, 100)
        wire = broker.psmb()
        wire.send(b"PSMB\0\0\0\x02\0\0\0\0PUBt\0")
        wire.expect(b"OK\0\0\0\0\0FAILED\0the log cannot be written: the disk is full\0")
        ballast.unlink()
        _check_refused_and_resumed(broker, accepted)
        assert broker.stop() == 0
        assert "the disk is full" in broker.log
        assert "the log can be written again" in broker.log
        assert "Traceback" not in broker.log


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_start_on_a_full_disk_is_good_for_reading(disk: Path, how: str) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    with BrokerProcess(disk / "data") as broker:
        accepted = _publish_until_refused(broker, 100)
        if how == "kill":
            broker.kill()
        else:
            assert broker.stop() == 0
    fill_up(disk)
    with BrokerProcess(disk / "data") as broker:
        reader = broker.subscriber("t", identity=2)
        assert [reader.message(answer=True) for _ in accepted] == accepted
        wire = broker.bpsp()
        # More than SQLite lets go of when it starts.
        wire.request(bpsp.PUB, os.urandom(900_000), x_topic="t")
        opcode, headers, data = wire.frame()
        assert (opcode, headers["x-status-code"]) == (bpsp.ERR, "507")
        assert b"the log cannot be written: the disk is full" in data
        reader.close()
        ballast.unlink()
        (disk / "filler").unlink()
        _check_refused_and_resumed(broker, accepted)
        assert broker.stop() == 0
        assert "Traceback" not in broker.log


def fill_up(disk: Path) -> None:
    """Not one byte is left."""
    with (disk / "filler").open("wb", buffering=0) as filler:
        for size in (1 << 16, 4096, 1):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                continue
