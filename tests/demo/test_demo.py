"""The demo: clients of all five protocols fill a real broker's log."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headwater.config import Config
from headwater.demo import broker as demo_broker
from headwater.demo import records
from headwater.demo.broker import choose_ports, free_ports
from headwater.demo.show import Show
from headwater.pipeline.contracts import Record, load, verdict
from headwater.spark.flight_client import FlightClient, RecordSelection
from headwater.units import Address
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

    async def main() -> list[dict[str, Any]]:
        """Let it run until there is much of everything; returns the log of then."""
        running = asyncio.create_task(show.run())
        try:
            async with asyncio.timeout(90):
                while not running.done() and not any("sub bpsp://" in line for line in said):
                    await asyncio.sleep(0.1)
                found: list[dict[str, Any]] = []
                while not running.done() and not (_much(found) and show.sent["consumed"] > 20):
                    await asyncio.sleep(0.2)
                    found = await asyncio.to_thread(_log, ports.by_name["flight"])
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        return found

    found = asyncio.run(main())
    assert _much(found) and show.sent["consumed"] > 20
    assert {row["topic"].partition("/")[0] for row in found} == {
        "sensors",
        "orders",
        "chat",
        "game",
        "meters",
        "$audit",
    }
    assert any(str(tmp_path) in line for line in said)
    _nobody_answers(ports.by_name.values())


def _much(found: list[dict[str, Any]]) -> bool:
    """Whether everyone was heard, and each protocol more than a few times."""
    protocols = Counter(row["protocol"] for row in found)
    everyone = {"sensor-kitchen", "game-server", "shop"} <= {row["publisher"] for row in found}
    return everyone and all(
        protocols[name] > 20 for name in ("psmb", "bmtp", "prism", "bpsp", "crystal")
    )


def _nobody_answers(ports: Iterable[int]) -> None:
    """What was killed takes a moment to be gone."""
    for _ in eventually(60):
        if not any(map(_answers, ports)):
            return


def _log(port: int) -> list[dict[str, Any]]:
    broker = FlightClient((f"127.0.0.1:{port}",))
    log = broker.log()
    batches = broker.read(RecordSelection(pattern=r"(?!headwater/).*"), log.start, log.end)
    rows = [row for batch in batches for row in batch.to_pylist()]
    broker.close()
    return rows


def _answers(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_most_records_fit_their_contract_and_some_do_not(kind: records.RecordKind) -> None:
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


def test_ports_that_are_taken_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # Whether others have the usual ones at this moment, nobody knows: this one is taken.
        usual = Config().listen
        others = {**usual.protocols, "bpsp": Address("127.0.0.1", port)}
        listen = replace(usual, protocols=others)
        monkeypatch.setattr(demo_broker, "Config", lambda: Config(listen=listen))
        chosen = choose_ports()
    assert chosen.moved["bpsp"] == chosen.by_name["bpsp"] != port
    assert chosen.by_name.keys() == set(demo_broker.LISTENERS)
    assert len(set(chosen.by_name.values())) == len(demo_broker.LISTENERS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_stops_everything(tmp_path: Path, number: signal.Signals) -> None:
    place = tmp_path / "demo"
    with subprocess.Popen(
        [sys.executable, "-m", "headwater", "demo", str(place), "--no-pipeline"],
        stdout=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")},
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline()]
            while "sub bpsp://" not in lines[-1]:
                assert lines[-1], lines
                lines.append(process.stdout.readline())
            process.send_signal(number)
            assert "Published: " in process.stdout.read()
            assert process.wait(60) == 0
        finally:
            process.terminate()  # whatever happens, it does not keep the usual ports
    ports = [int(line.rpartition(":")[2]) for line in lines if "localhost:" in line[:30]]
    assert len(ports) == 7
    _nobody_answers(ports)


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
