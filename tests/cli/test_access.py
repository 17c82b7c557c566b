"""`headwater user` and `headwater access`: with a running broker, and without one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headwater.cli.commands import app
from headwater.control import call
from tests.e2e.process import BrokerProcess, eventually

PASSWORD = "correct horse\n"


@pytest.fixture(params=["with a broker", "without one"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "data"
    if request.param == "without one":
        yield path
    else:
        with BrokerProcess(path):
            yield path


def run(data: Path, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, [*arguments, "--data", str(data)], input=stdin)


def output(data: Path, *arguments: str, stdin: str = "") -> str:
    result = run(data, *arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_users_and_rules(data: Path) -> None:
    assert "added alice as devices" in output(
        data, "user", "add", "alice", "--role", "devices", stdin=PASSWORD
    )
    made = json.loads(output(data, "user", "add", "bot", "--role", "client", "--token", "--json"))
    assert made["token"].startswith("hw_")
    output(data, "user", "add", "sensor-7", "--role", "devices", "--certificate")
    listed = json.loads(output(data, "user", "list", "--json"))
    assert [(each["name"], each["role"], each["password"]) for each in listed] == [
        ("alice", "devices", True),
        ("bot", "client", False),
        ("sensor-7", "devices", False),
    ]
    output(data, "access", "allow", "role:devices", "publish, subscribe", "sensors/{user}/*")
    assert "role:devices" in output(data, "access", "list")
    said = output(data, "access", "explain", "alice", "publish", "sensors/alice/t")
    assert said.startswith("user:alice may publish to sensors/alice/t")
    no = run(data, "access", "explain", "alice", "publish", "sensors/bob/t")
    assert no.exit_code == 1
    assert "may not" in no.stdout
    output(data, "access", "revoke", "role:devices", "publish", "sensors/{user}/*")
    assert run(data, "access", "explain", "alice", "publish", "sensors/alice/t").exit_code == 1
    output(data, "user", "change", "alice", "--role", "client")
    output(data, "user", "change", "alice", "--password", stdin="another password\n")
    assert run(data, "access", "explain", "alice", "publish", "sensors/alice/t").exit_code == 0
    assert "1 tokens of bot are void" in output(data, "user", "token", "bot", "--revoke")
    output(data, "user", "remove", "alice")
    names = [each["name"] for each in json.loads(output(data, "user", "list", "--json"))]
    assert names == ["bot", "sensor-7"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["user", "change", "alice"], "say what to change"),
        (["user", "remove", "nobody"], 'there is no user "nobody"; there are none'),
        (["access", "allow", "nobody", "publish", "x"], "there is no user and no app"),
        (
            ["access", "allow", "role:x", "fly", "x"],
            "there are publish, subscribe, history, queues",
        ),
        (["access", "revoke", "role:x", "publish", "x"], "no rule allows role:x to publish x"),
    ],
)
def test_mistakes(tmp_path: Path, words: list[str], said: str) -> None:
    result = run(tmp_path / "data", *words)
    assert result.exit_code != 0
    assert said in str(result.exception)


def test_commands_are_on_record(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", HEADWATER_AUDIT_EVENTS="changes") as broker:
        output(broker.data, "user", "add", "alice", "--role", "viewer", stdin=PASSWORD)
        output(broker.data, "log", "dump")
        for _ in eventually():
            found = call(broker.data, "messages.read", topic="$audit/*", kind="levels")["items"]
            if [each["topic"] for each in found] == ["$audit/access", "$audit/export"]:
                break
