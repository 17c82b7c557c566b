"""`headwater serve` as a person or an init system meets it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.process import PATIENCE, BrokerProcess


def _serve(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headwater", "serve", "--data", "data"],
        capture_output=True,
        text=True,
        cwd=directory,
        env={"PATH": "", **environment},
        timeout=PATIENCE,
        check=False,
    )


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data"):
        second = _serve(tmp_path)
    assert second.returncode == 1
    assert second.stderr.startswith("headwater: error: ")
    assert second.stderr.count("\n") == 1


def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one") as broker:
        taken = f"127.0.0.1:{broker.ports['psmb']}"
        second = _serve(tmp_path, HEADWATER_LISTEN_PSMB=taken)
    assert second.returncode == 1
    assert f"cannot listen for psmb on {taken}" in second.stderr
    assert "[listen] psmb" in second.stderr


def test_a_listener_can_be_off(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_LISTEN_PSMB="off") as broker:
        assert set(broker.ports) == {"bmtp", "prism", "bpsp", "any", "flight"}


def test_a_damaged_log_is_not_opened(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        for number in range(3):
            broker.publisher("t").messages(b"%d" % number * 100)
        assert broker.stop() == 0
    (segment,) = (tmp_path / "data" / "log").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"0000")] ^= 1
    segment.write_bytes(content)
    refused = _serve(tmp_path, HEADWATER_LISTEN_PSMB="127.0.0.1:0", HEADWATER_LISTEN_BPSP="off")
    assert refused.returncode == 1
    assert segment.name in refused.stderr
    assert "headwater log repair" in refused.stderr


@pytest.mark.parametrize("sync", ["always", "interval", "os"])
def test_every_way_to_sync_keeps_messages_over_a_restart(tmp_path: Path, sync: str) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_LOG_SYNC=sync) as broker:
        broker.publisher("t").messages(b"1", b"2")
        broker.kill()  # of the process, not of the machine: even "os" keeps that
        broker.start()
        broker.subscriber("t", identity=1).expect_messages(b"1", b"2")


def test_stopping_under_load_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        publisher = broker.publisher("t")
        for _ in range(20):
            publisher.send((b"MSG" + bytes(6) + b"\x03\xe8" + b"x" * 1000) * 100)
        publisher.send(b"NOP")
        assert broker.stop() == 0  # one that waits for its clients waits for ever
        acknowledged = publisher.rest().startswith(b"NIL")
        broker.start()
        history = broker.subscriber("t", identity=1)
        if acknowledged:
            history.expect_messages(*[b"x" * 1000] * 2000)
