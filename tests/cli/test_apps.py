"""`headwater app`, with a broker that runs and without one."""

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.cli.commands import app
from headwater.control.server import Handler
from headwater.errors import HeadwaterError
from headwater.identity.apps import FILE, Apps
from tests.control.helpers import serving


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory and an environment without any configuration."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)


class Asked:
    """The handlers of a small broker, which notes what it was asked for."""

    def __init__(self, directory: Path) -> None:
        self.commands: list[str] = []
        self._apps = Apps(directory / FILE)

    async def add(self, name: str, protocol: str, role: str) -> Any:
        self.commands.append("add")
        return {"client_id": name, "client_secret": self._apps.add(name, protocol, role)}

    async def list(self) -> Any:
        self.commands.append("list")
        return [each.summary() for each in self._apps.list()]

    async def remove(self, name: str) -> None:
        self.commands.append("remove")
        self._apps.remove(name)

    def handlers(self) -> dict[str, Handler]:
        return {"app.add": self.add, "app.list": self.list, "app.remove": self.remove}


@contextmanager
def broker(directory: Path) -> Iterator[Asked]:
    asked = Asked(directory)
    with serving(directory, asked.handlers()):
        yield asked


@pytest.fixture(params=["with a broker", "without one"])
def asked(request: pytest.FixtureRequest) -> Iterator[Asked | None]:
    running = broker(Path("data")) if request.param == "with a broker" else nullcontext()
    with running as asked:
        yield asked


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["app", *arguments], catch_exceptions=False)


def output(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_app_is_made_listed_and_removed(asked: Asked | None) -> None:
    lines = output("add", "shop").splitlines()
    assert lines[0] == "client_id      shop"
    title, secret = lines[1].split()
    assert (title, len(secret)) == ("client_secret", 32)
    assert lines[2:] == [
        "Store the secret now: it is not shown again. "
        f"To try it: headwater sub prism://shop:{secret}@localhost/"
    ]
    (stored,) = Apps(Path("data") / FILE).list()
    assert stored.client_secret == secret
    lines = output("list").splitlines()
    assert lines[0].split() == ["client_id", "protocol", "role", "created"]
    assert lines[1].startswith("shop       prism     app   20")
    assert secret not in "\n".join(lines)
    assert output("remove", "shop") == "removed shop\n"
    assert output("list") == "There are no apps; 'headwater app add NAME' creates one.\n"
    if asked is not None:
        assert asked.commands == ["add", "list", "remove", "list"]


def test_json(asked: Asked | None) -> None:
    made = json.loads(output("add", "shop", "--json"))
    assert list(made) == ["client_id", "client_secret", "protocol", "role"]
    (listed,) = json.loads(output("list", "--json"))
    assert list(listed) == ["client_id", "created", "protocol", "role"]
    assert made["client_secret"] not in output("list", "--json")
    assert json.loads(output("remove", "shop", "--json")) == {"removed": "shop"}
    assert json.loads(output("list", "--json")) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["add", "shop"], r'^there is an app "shop" already; '),
        (["add", "a/b"], r'^"a/b" cannot be the name of an app: 1 to 64 letters'),
        (["remove", "crm"], r'^there is no app "crm" to remove; there are shop$'),
    ],
)
def test_refusals(asked: Asked | None, arguments: list[str], sentence: str) -> None:
    output("add", "shop")
    with pytest.raises(HeadwaterError, match=sentence):
        run(*arguments)


def test_before_the_first_start() -> None:
    output("add", "shop", "--data", "not/yet")
    assert stat.S_IMODE((Path("not/yet") / FILE).stat().st_mode) == 0o600


def test_the_configuration_says_where() -> None:
    Path("headwater.toml").write_text("data = 'there'")
    with broker(Path("there")) as asked:
        output("add", "shop")
    assert asked.commands == ["add"]
    assert len(Apps(Path("there") / FILE).list()) == 1


def test_a_broker_that_was_killed_is_none() -> None:
    with broker(Path("data")):
        os.link("data/control.sock", "data/kept")
    os.rename("data/kept", "data/control.sock")
    output("add", "shop")
    assert len(Apps(Path("data") / FILE).list()) == 1
