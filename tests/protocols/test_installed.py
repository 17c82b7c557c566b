"""A protocol that is installed beside Headwater, by one entry point, is served like the others.

It is in `tests/line_protocol`, with the few files that `pip install` would have made of it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.console.stand import client_of, console_of
from tests.e2e.process import PATIENCE, BrokerProcess, eventually

INSTALLED = Path(__file__).parent.parent / "line_protocol"
PATH = os.pathsep.join([str(INSTALLED), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("installed") / "data"
    settings = {"PYTHONPATH": PATH, "HEADWATER_LISTEN_LINE": "127.0.0.1:0"}
    with console_of(data, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with client_of(broker) as made:
        yield made


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headwater", *arguments]


def headwater(*arguments: str) -> str:
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        env=os.environ | {"PYTHONPATH": PATH},
        timeout=PATIENCE,
        check=True,
        text=True,
    )
    return done.stdout


def test_it_publishes_and_subscribes(broker: BrokerProcess) -> None:
    subscriber, publisher = broker.wire("line"), broker.wire("line")
    subscriber.send(b"SUB a/+\n")
    subscriber.expect(b"OK\n")
    publisher.send(b"PUB a/b one\nPUB a/c two words\nPUB b no\n")
    publisher.expect(b"OK\n" * 3)
    subscriber.expect(b"MSG a/b one\nMSG a/c two words\n")


def test_it_reaches_the_other_protocols(broker: BrokerProcess) -> None:
    line, other = broker.wire("line"), broker.subscriber("others/.*")
    line.send(b"SUB others/*\n")
    line.expect(b"OK\n")
    broker.publisher("others/a").messages(b"1")
    line.expect(b"MSG others/a 1\n")
    broker.wire("line").send(b"PUB others/b 2\n")
    other.expect_messages(b"1", b"2")


def test_it_is_recognised_on_the_port_for_all(broker: BrokerProcess) -> None:
    wire = broker.wire("any")
    for byte in b"PUB any/a 1\n":
        wire.send(bytes([byte]))
    wire.expect(b"OK\n")
    broker.wire("any").send(b"PSM")  # begins with the same letter, and is not taken for it


def test_it_is_in_the_configuration() -> None:
    shown = json.loads(headwater("config", "--json"))["settings"]
    assert shown["line.longest_line"]["value"] == "64KiB"
    assert shown["listen.line"]["value"] == "127.0.0.1:7000"
    assert "# The longest line that is accepted." in headwater("config", "--toml")


def test_its_settings_are_checked_and_arrive(broker: BrokerProcess, tmp_path: Path) -> None:
    with BrokerProcess(
        tmp_path / "data",
        PYTHONPATH=PATH,
        HEADWATER_LISTEN_LINE="127.0.0.1:0",
        HEADWATER_LINE_LONGEST_LINE="16",
    ) as strict:
        wire = strict.wire("line")
        wire.send(b"PUB a " + b"x" * 20)
        assert wire.rest() == b"ERR the line has no end\n"


def test_urls_of_the_command_line(broker: BrokerProcess, client: httpx.Client) -> None:
    url = f"line://127.0.0.1:{broker.ports['line']}"
    with subprocess.Popen(
        command("sub", f"{url}/shell/+", "--count", "1"),
        env=os.environ | {"PYTHONPATH": PATH},
        stdout=subprocess.PIPE,
        text=True,
    ) as subscriber:
        for _ in eventually():
            if "shell/+" in client.get("/api/v1/subscriptions").text:
                break
        headwater("pub", f"{url}/shell/a", "21.5")
        assert subscriber.communicate(timeout=PATIENCE)[0] == "shell/a 21.5\n"
    assert "a pattern with + and * for Line" in " ".join(headwater("sub", "--help").split())


def test_the_console_and_monitoring_know_it(broker: BrokerProcess, client: httpx.Client) -> None:
    wire = broker.wire("line")
    wire.send(b"HELLO\n")
    wire.expect(b"ERR b'HELLO' is neither PUB nor SUB\n")
    listed = client.get("/api/v1/connections").json()["items"]
    assert "line" in {each["protocol"] for each in listed}
    assert ".protocol.line::before { background: #123456; }" in (
        client.get("/static/styles/protocols.css").text
    )
    # What an empty page shows comes from the entries; this protocol has no example.
    examples = client.get("/static/examples.js").text
    assert '"publish": "headwater pub psmb://localhost/{topic} 21.5"' in examples
    assert '"consume": ["headwater app add shop", "headwater sub prism://' in examples
    for _ in eventually():  # figures are a few seconds old
        figures = client.get("/metrics").text
        if "headwater_line_unknown_words_total 1.0" in figures:
            break
    assert 'headwater_connections{protocol="line"}' in figures


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            "raise ImportError('it needs more than is here')",
            'the installed protocol "broken" (broken:PROTOCOL) cannot be loaded: it needs more '
            "than is here",
        ),
        (
            "from dataclasses import replace\n"
            "from headwater_line import PROTOCOL as LINE\n"
            "PROTOCOL = replace(LINE, name='log')",
            'no protocol may have the name "log": the configuration has a table or listener of '
            "that name",
        ),
    ],
    ids=["not loaded", "name taken"],
)
def test_a_broken_one_is_one_line_at_the_start(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "broken.py").write_text(content)
    about = tmp_path / "broken-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[headwater.protocols]\nbroken = broken:PROTOCOL\n")
    done = subprocess.run(
        command("serve", "--data", str(tmp_path / "data")),
        capture_output=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), PATH])},
        timeout=PATIENCE,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr == f"headwater: error: {sentence}\n"
