"""`headwater pipeline replay`, killed while it publishes, as a person would find it.

Run again until it is done: every message is there once, in its order. No Spark is needed.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake

from tests.e2e.process import BrokerProcess, eventually
from tests.flight.client import Client, rows

pytestmark = pytest.mark.timeout(300)

COUNT = 40_000
VALUES = [b"%d" % number for number in range(COUNT)]
#: In batches of a hundred, and so slow that it is in the middle whenever someone gets to kill it.
PACE = "1000/s"
TARGET = "again"


class Replayed:
    """A project whose log and bronze are replayed."""

    def __init__(self, root: Path, broker: BrokerProcess) -> None:
        self.root, self.broker = root, broker
        self.client = Client(broker.ports["flight"])
        root.mkdir()
        servers = {"headwater.servers": f"127.0.0.1:{broker.ports['flight']}"}
        content = {"name": "test", "storage": "storage", "configuration": servers}
        (root / "spark-pipeline.yml").write_text(json.dumps(content))  # JSON is YAML

    def fill(self) -> None:
        batch = rows(*[("before", value) for value in VALUES])
        self.client.put(batch, do="append", producer="tests", sequence=1)
        bronze = self.client.read(start=0, end=COUNT, headers=True)
        write_deltalake(str(self.root / "storage" / "tables" / "bronze"), bronze)

    def start(self, source: str, pace: str = PACE) -> "subprocess.Popen[str]":
        """As it was killed: begin, or go on with what was begun."""
        state = self.root / "storage" / "state" / "replays" / "mine.json"
        begin = ("--from", source, "--until", str(COUNT), "--to", TARGET)
        how = ("--resume",) if state.exists() else begin
        command = ("replay", "--name", "mine", *how, "--pace", pace, "--project", str(self.root))
        return subprocess.Popen(
            [sys.executable, "-m", "headwater", "pipeline", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs the tests in the background may have them ignore Ctrl-C.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )

    def published(self) -> Any:
        end = self.client.act("log")["end"]
        return self.client.read(start=COUNT, end=end, topics=[TARGET])

    def wait_for_more(self, process: "subprocess.Popen[str]") -> None:
        """Until it has published something, and is somewhere in what comes next."""
        before = len(self.published())
        for _ in eventually(60):
            assert process.poll() is None, process.communicate()
            if len(self.published()) > before:
                break
        time.sleep(random.uniform(0, 0.3))

    def finish(self, source: str) -> str:
        """Without a pace: what is left."""
        out, errors = self.start(source, "max").communicate(timeout=90)
        assert errors == ""
        return out


@pytest.fixture
def replayed(tmp_path: Path) -> Iterator[Replayed]:
    with BrokerProcess(tmp_path / "data") as broker:
        broker.keep_ports()
        made = Replayed(tmp_path / "project", broker)
        made.fill()
        yield made
        made.client.close()


def kill_command(replayed: Replayed, process: "subprocess.Popen[str]") -> None:
    process.kill()
    assert process.wait() == -9
    process.communicate()


def kill_broker(replayed: Replayed, process: "subprocess.Popen[str]") -> None:
    """The command tries for a moment, and then says in one line that nobody answers."""
    replayed.broker.kill()
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert errors.startswith("headwater: error: no broker answers at ")
    assert len(errors.splitlines()) == 1
    replayed.broker.start()


Kill = Callable[[Replayed, "subprocess.Popen[str]"], None]


@pytest.mark.torture
@pytest.mark.parametrize("source", ["log", "bronze"])
@pytest.mark.parametrize("kills", [(kill_command, kill_command), (kill_broker, kill_command)])
def test_killed_while_it_publishes(
    replayed: Replayed, source: str, kills: tuple[Kill, ...]
) -> None:
    for kill in kills:
        process = replayed.start(source)
        replayed.wait_for_more(process)
        kill(replayed, process)
    assert 0 < len(replayed.published()) < COUNT
    assert replayed.finish(source).startswith(f"mine: {COUNT} messages in ")
    assert replayed.published().column("value").to_pylist() == VALUES
    assert replayed.finish(source).startswith(
        f"mine: {COUNT} messages in "
    )  # nothing is left to do
    assert len(replayed.published()) == COUNT


@pytest.mark.torture
def test_killed_as_soon_as_it_is_started(replayed: Replayed) -> None:
    """Also before it has noted what it is about to do."""
    for _ in range(4):
        process = replayed.start("log")
        time.sleep(random.uniform(0.1, 1.5))
        kill_command(replayed, process)
    replayed.finish("log")
    assert replayed.published().column("value").to_pylist() == VALUES


def test_ctrl_c_says_how_to_go_on(replayed: Replayed) -> None:
    process = replayed.start("log")
    replayed.wait_for_more(process)
    process.send_signal(2)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert out == f"to resume: headwater pipeline replay --name mine --resume --pace {PACE}\n"
