"""The demo: clients of all five protocols fill a real broker's log."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.demo import records
from headwater.demo.broker import choose_ports, free_ports
from headwater.demo.show import Show
from headwater.pipeline.contracts import Record, load, verdict
from headwater.spark.broker import Broker, Selection
from tests.e2e.process import eventually

#: One after the other, and not beside the demo that runs Spark: they look for free ports.
pytestmark = pytest.mark.xdist_group("spark")

CONTRACTS = Path(records.__file__).with_name("contracts")
KINDS = [
    records.sensor("kitchen"),
    records.ORDERS,
    records.CHAT,
    records.GAME,
    records.meter("a"),
]


def test_all_five_protocols_are_in_the_log(tmp_path: Path) -> None:
    ports = free_ports()
    said: list[str] = []
    show = Show(tmp_path / "demo", ports, rate=200, pipeline=False, say=said.append)
    found: list[dict[str, Any]] = []

    async def look() -> None:
        await asyncio.sleep(6)
        found.extend(await asyncio.to_thread(_log, ports.by_name["flight"]))

    async def main() -> None:
        await asyncio.gather(show.run(seconds=8), look())

    asyncio.run(main())
    protocols = Counter(row["protocol"] for row in found)
    assert set(protocols) == {"psmb", "bmtp", "prism", "bpsp", "crystal"}
    assert min(protocols.values()) > 20
    assert {row["topic"].partition("/")[0] for row in found} == {
        "sensors",
        "orders",
        "chat",
        "game",
        "meters",
    }
    assert {"sensor-kitchen", "game-server", "shop"} <= {row["publisher"] for row in found}
    assert show.sent["consumed"] > 20
    assert any(str(tmp_path) in line for line in said)
    assert not any(_answers(port) for port in ports.by_name.values())


def _log(port: int) -> list[dict[str, Any]]:
    broker = Broker((f"127.0.0.1:{port}",))
    log = broker.log()
    batches = broker.read(Selection(pattern=r"(?!headwater/).*"), log.start, log.end)
    rows = [row for batch in batches for row in batch.to_pylist()]
    broker.close()
    return rows


def _answers(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_most_records_fit_their_contract_and_some_do_not(kind: records.Kind) -> None:
    contracts = load(CONTRACTS)
    said = records.stream(kind, Random(1))
    places: Counter[str] = Counter()
    keys = set()
    for _ in range(2000):
        topic, payload = next(said)
        found = verdict(contracts, Record(topic, payload, datetime.now(UTC)))
        places[found.place] += 1
        if found.place == "silver":
            keys.add(found.key)
    assert 1850 < places["silver"] < 1990
    assert 20 < places["quarantine"] < 120
    assert 3 < places["late"] < 60
    assert 3 < places["silver"] - len(keys) < 60  # sent twice


def test_ports_that_are_taken_are_replaced() -> None:
    usual = choose_ports().by_name["bpsp"]
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 29010))
            taken.listen()
        except OSError:
            assert usual != 29010  # someone else has it
        chosen = choose_ports()
    assert chosen.moved["bpsp"] == chosen.by_name["bpsp"] != 29010


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_stops_everything(tmp_path: Path, number: signal.Signals) -> None:
    place = tmp_path / "demo"
    process = subprocess.Popen(
        [sys.executable, "-m", "headwater", "demo", str(place), "--no-pipeline"],
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")},
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    while "sub bpsp://" not in lines[-1]:
        assert lines[-1], lines
        lines.append(process.stdout.readline())
    process.send_signal(number)
    assert process.wait(20) == 0
    assert "Published: " in process.stdout.read()
    process.stdout.close()
    ports = [int(line.rpartition(":")[2]) for line in lines if "localhost:" in line[:30]]
    assert len(ports) == 7
    for _ in eventually():
        if not any(map(_answers, ports)):
            break


def test_a_broker_that_cannot_start_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("this is no directory")
    found = subprocess.run(
        [sys.executable, "-m", "headwater", "demo", str(tmp_path), "--no-pipeline"],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 1
    assert found.stderr.startswith("headwater: error: the broker did not start: ")
    assert len(found.stderr.splitlines()) == 1


def test_wrong_records_are_wrong_in_different_ways() -> None:
    said = records.stream(records.ORDERS, Random(2))
    broken = 0
    for _ in range(1000):
        _, payload = next(said)
        try:
            json.loads(payload)
        except ValueError:
            broken += 1
    assert 1 <= broken <= 30
