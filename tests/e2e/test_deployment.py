"""docs/deployment.md: all its commands, one after the other, on loopback."""

import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headwater.control import call
from tests.e2e.process import PATIENCE, eventually
from tests.generated_docs import ROOT

PAGE = ROOT / "docs" / "deployment.md"
PORTS = {"psmb": 13880, "bpsp": 29010, "console": 8443, "bmtp": 1039, "prism": 8080, "flight": 8815}


def commands() -> list[str]:
    """The blocks of the page that are for a shell."""
    return re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def free_ports() -> dict[int, int]:
    held = {number: socket.create_server(("127.0.0.1", 0)) for number in PORTS.values()}
    ports = {number: each.getsockname()[1] for number, each in held.items()}
    for each in held.values():
        each.close()
    return ports


def here(text: str, ports: dict[int, int]) -> str:
    """The same for this machine: what the page names is its example."""
    text = text.replace("broker.example.org/", f"broker.example.org:{ports[29010]}/")
    text = text.replace(
        f"psmbs://broker.example.org:{ports[29010]}", f"psmbs://broker.example.org:{ports[13880]}"
    )
    text = text.replace("broker.example.org", "localhost").replace("0.0.0.0", "127.0.0.1")
    for number, port in ports.items():
        text = text.replace(f"127.0.0.1:{number}", f"127.0.0.1:{port}")
    return text


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nobody is let in although only this machine can reach it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    closed = {f"HEADWATER_LISTENER_{name}_ANONYMOUS": "false" for name in ("PSMB", "BPSP")}
    return {**os.environ, **closed, "PATH": path}


def test_every_command_works(tmp_path: Path, environment: dict[str, str]) -> None:
    ports = free_ports()
    others = {
        f"HEADWATER_LISTEN_{name.upper()}": f"127.0.0.1:{ports[number]}"
        for name, number in PORTS.items()
        if name not in ("psmb", "bpsp", "console")
    }
    blocks = [here(block, ports) for block in commands()]
    serving = blocks.index("headwater serve\n")
    said: list[str] = []

    def run(block: str) -> None:
        done = subprocess.run(
            ["bash", "-e", "-c", block],
            cwd=tmp_path,
            env=environment | others,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        said.append(done.stdout)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"

    for block in blocks[:serving]:
        run(block)
    log = tmp_path / "broker.log"
    with log.open("w") as output:
        broker = subprocess.Popen(
            ["headwater", "serve"],
            cwd=tmp_path,
            env=environment | others,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        for _ in eventually():
            assert broker.poll() is None, log.read_text()
            if "ready" in log.read_text().split():
                break
        table = log.read_text()
        assert re.search(r"psmb on \S+ +open to users with a certificate", table), table
        assert re.search(r"console on \S+ +open to users with their password$", table, re.M), table
        watching, *rest = blocks[serving + 1 :]
        with ThreadPoolExecutor(1) as beside:
            waiting = beside.submit(run, watching)
            for _ in eventually():
                assert not waiting.done(), waiting.result()
                if call(tmp_path / "data", "metrics")["subscriptions"]:
                    break
            run(rest[0])
            waiting.result()
        for block in rest[1:]:
            run(block)
    finally:
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(PATIENCE) == 0
    together = "".join(said)
    assert "meters/meter-7/power 230" in together
    assert "user:meter-7 may publish to meters/meter-7/power" in together
    assert '"who": "user:wall"' in together
