"""`headwater pub` and `headwater sub` as separate processes against a real broker."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.process import PATIENCE, BrokerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("pubsub") / "data") as running:
        yield running


def headwater(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "headwater", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=PATIENCE, check=False)


def address(broker: BrokerProcess, scheme: str, topic: str) -> str:
    return f"{scheme}://127.0.0.1:{broker.ports[scheme]}/{topic}"


def test_history_of_what_was_published(broker: BrokerProcess) -> None:
    assert headwater("pub", address(broker, "psmb", "h/a"), "21.5").returncode == 0
    lines = b"one\ntwo\n\nfour"
    assert headwater("pub", address(broker, "bpsp", "h/b"), "-", stdin=lines).returncode == 0
    got = headwater("sub", address(broker, "psmb", "h/.*"), "--from-start", "--count", "5")
    assert got.stdout.decode().splitlines() == [
        f"h/.* {payload}" for payload in ("21.5", "one", "two", "", "four")
    ]


def test_live_messages_as_json(broker: BrokerProcess) -> None:
    command = [sys.executable, "-m", "headwater", "sub", address(broker, "bpsp", "j/+")]
    with subprocess.Popen([*command, "--json", "-n", "2"], stdout=subprocess.PIPE) as subscriber:
        assert subscriber.stdout is not None
        wire = broker.publisher("j/a")
        while subscriber.poll() is None:
            wire.messages(b"\xff")
            headwater("pub", address(broker, "bpsp", "j/b"), "text", "-H", "kind=test")
        shown = [json.loads(line) for line in subscriber.stdout]
    assert len(shown) == 2
    for message in shown:
        if message["topic"] == "j/a":
            assert (message["payload"], message["encoding"]) == ("/w==", "base64")
        else:
            assert (message["payload"], message["headers"]["kind"]) == ("text", "test")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("pub", "psmb://127.0.0.1:1/t", "x"), b"cannot connect to 127.0.0.1:1"),
        (("pub", "psmb://127.0.0.1", "x"), b"names no topic"),
        (("sub", "amqp://127.0.0.1/t"), b"psmb://, bmtp://, "),
        (("pub", "bpsp://127.0.0.1:1/t", "x", "-H", "novalue"), b"NAME=VALUE"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], sentence: bytes) -> None:
    failed = headwater(*arguments)
    assert failed.returncode == 1
    assert sentence in failed.stderr
    assert failed.stderr.count(b"\n") == 1


def test_what_a_protocol_cannot_do_is_said(broker: BrokerProcess) -> None:
    failed = headwater("sub", address(broker, "bpsp", "t"), "--from-start")
    assert failed.returncode == 1
    assert b"bpsp has no durable subscriptions" in failed.stderr
