"""`headwater queue`, against a control socket with a small broker behind it."""

import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.cli.commands import app
from headwater.control import NoBroker, find
from headwater.control.server import Handler
from headwater.errors import HeadwaterError
from tests.control.helpers import serving

LETTER = {
    "offset": 7,
    "topic": "order/[new]",
    "reason": "16 deliveries",
    "deliveries": 16,
    "size": 2048,
    "timestamp": 1_700_000_000_000_000,
}


class SmallBroker:
    def __init__(self) -> None:
        self.dead = 3
        # Not when this file is read: other tests may run for an hour before these.
        self.oldest = time.time_ns() // 1000 - 9_000_000_000
        self.asked: list[str] = []

    def queue(self, name: str, **others: Any) -> dict[str, Any]:
        return {
            "name": name,
            "protocol": name.partition("/")[0],
            "consumers": 2,
            "in_flight": 30,
            "returned": 4,
            "waiting": 1000,
            "waiting_is_partial": True,
            "dead": self.dead,
            "position": 123456,
            "oldest": self.oldest,
            "backlog_seconds": 604800.0,
            "dropped": 5,
            **others,
        }

    def queues(self) -> dict[str, dict[str, Any]]:
        empty = {"waiting": 0, "waiting_is_partial": False, "oldest": None, "dead": 0}
        empty |= {"backlog_seconds": None, "dropped": 0}
        names = {"prism/shop/[orders]": {}, "prism/shop/": empty, "bmtp/42\x1b": empty}
        return {name: self.queue(name, **others) for name, others in names.items()}

    async def list(self) -> Any:
        self.asked.append("list")
        return list(self.queues().values())

    async def show(self, name: str) -> Any:
        self.asked.append("show")
        found = self.queues()[find(name, self.queues())]
        limits = {"prefetch": 100, "ack_seconds": 0.5, "max_deliveries": None}
        letters = [LETTER] if found["dead"] else []
        bindings = ["order.*", "#"] if letters else []
        notes = [{"binding": "order.*", "near": None, "note": "order.* matches no topic"}]
        topics = {
            "bindings": bindings,
            "unmatched_bindings": notes if letters else [],
            "dead_topic": "dead/shop/orders",
        }
        return {**found, **limits, **topics, "dead_letters": letters}

    async def redrive(
        self, progress: Callable[[int, int], None], name: str, limit: int | None = None
    ) -> Any:
        self.asked.append(f"redrive {find(name, self.queues())} {limit}")
        redriven = min(self.dead, limit or self.dead)
        for done in range(redriven):
            progress(done + 1, redriven)
        self.dead -= redriven
        return {"redriven": redriven}

    async def purge(self, name: str) -> Any:
        self.asked.append(f"purge {find(name, self.queues())}")
        purged, self.dead = self.dead, 0
        return {"purged": purged}

    def handlers(self) -> dict[str, Handler]:
        return {
            "queue.list": self.list,
            "queue.show": self.show,
            "queue.redrive": self.redrive,
            "queue.purge": self.purge,
        }


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory and an environment without any configuration."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def broker(elsewhere: None) -> Iterator[SmallBroker]:
    broker = SmallBroker()
    with serving(Path("data"), broker.handlers()):
        yield broker


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["queue", *arguments], catch_exceptions=False)


def output(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list(broker: SmallBroker) -> None:
    lines = [line.split() for line in output("list").splitlines()]
    assert lines == [
        ["queue", "consumers", "waiting", "in", "flight", "returned", "dead", "oldest"],
        ["prism/shop/[orders]", "2", "1000+", "30", "4", "3", "2h"],
        ["prism/shop/", "2", "0", "30", "4", "0"],
        ["bmtp/42\\x1b", "2", "0", "30", "4", "0"],
    ]


def test_list_as_json(broker: SmallBroker) -> None:
    assert json.loads(output("list", "--json")) == list(broker.queues().values())


def test_no_queues() -> None:
    async def none() -> list[object]:
        return []

    with serving(Path("there"), {"queue.list": none}):
        assert output("list", "--data", "there").startswith("There are no queues yet")
        assert json.loads(output("list", "--data", "there", "--json")) == []


def test_show(broker: SmallBroker) -> None:
    text, _, letters = output("show", "shop/[orders]").partition("\n\n")
    about = {line[:14].strip(): line[14:] for line in text.splitlines()}
    oldest = about.pop("oldest")
    assert (len(oldest), oldest[-1]) == (27, "Z")
    assert about == {
        "queue": "prism/shop/[orders]",
        "protocol": "prism",
        "bindings": "order.*, #",
        "note": "order.* matches no topic",
        "consumers": "2",
        "waiting": "1000+",
        "in flight": "30",
        "returned": "4",
        "dead": "3",
        "position": "123456",
        "prefetch": "100, unless a consumer asks for another",
        "ack seconds": "at most 0.5",
        "deliveries": "no limit",
        "backlog": "at most 7d unconsumed",
        "dropped": "5",
        "dead letters": "dead/shop/orders",
    }
    assert [line.split() for line in letters.splitlines()] == [
        ["topic", "reason", "offset", "time", "deliveries", "size"],
        ["order/[new]", "16", "deliveries", "7", "2023-11-14T22:13:20Z", "16", "2.0", "KiB"],
        ["and", "2", "more"],
    ]


def test_show_a_queue_with_little_in_it(broker: SmallBroker) -> None:
    text = output("show", "shop")
    assert "bindings      none\n" in text
    assert "oldest        none\n" in text
    assert "backlog       no limit\n" in text
    assert text.endswith("dead letters  dead/shop/orders\n")


def test_show_as_json(broker: SmallBroker) -> None:
    shown = json.loads(output("show", "prism/shop/[orders]", "--json"))
    assert shown["dead_letters"] == [LETTER]


def test_redrive(broker: SmallBroker) -> None:
    assert output("redrive", "shop/[orders]", "--limit", "2") == "2 dead letters redriven\n"
    assert output("redrive", "shop/[orders]", "--yes") == "1 dead letter redriven\n"
    assert json.loads(output("redrive", "shop/[orders]", "--json")) == {"redriven": 0}
    name = "redrive prism/shop/[orders]"
    assert broker.asked == [f"{name} 2", f"{name} None", f"{name} None"]
    assert run("redrive", "shop", "--limit", "0").exit_code == 2


def test_purge(broker: SmallBroker) -> None:
    assert output("purge", "shop/[orders]") == "3 dead letters deleted\n"
    assert json.loads(output("purge", "shop/[orders]", "--json", "--yes")) == {"purged": 0}


@pytest.mark.parametrize("command", ["show", "redrive", "purge"])
def test_an_unknown_name(broker: SmallBroker, command: str) -> None:
    with pytest.raises(HeadwaterError, match=r'^there is no queue "x"; there are bmtp/42'):
        run(command, "x")


@pytest.mark.parametrize("command", ["list", "show x", "redrive x", "purge x"])
def test_without_a_broker(command: str) -> None:
    with pytest.raises(NoBroker, match=r"^no broker is running with the data directory data \(st"):
        run(*command.split())


class Terminal:
    """The real program on a terminal, where it asks."""

    def __init__(self, *arguments: str) -> None:
        self.screen, other = pty.openpty()
        program = "from headwater.cli import main; main()"
        command = [sys.executable, "-c", program, "queue", *arguments]
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other)
        os.close(other)

    def read_until(self, text: str) -> str:
        seen = b""
        while text.encode() not in seen:
            seen += os.read(self.screen, 1000)
        return seen.decode()

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    def end(self) -> int:
        code = self.process.wait(60)
        os.close(self.screen)
        return code


def test_on_a_terminal_it_asks(broker: SmallBroker) -> None:
    terminal = Terminal("purge", "shop/[orders]")
    assert "Delete 3 dead letters of shop/[orders]? [y/N]" in terminal.read_until("N]")
    terminal.type("n\n")
    terminal.read_until("Aborted")
    assert terminal.end() == 1
    terminal = Terminal("redrive", "shop/[orders]", "--limit", "2")
    assert "Redrive 2 dead letters of shop/[orders]? [y/N]" in terminal.read_until("N]")
    assert broker.asked == ["show", "show"]
    terminal.type("y\n")
    assert "2 dead letters redriven" in terminal.read_until("redriven\r\n")
    assert terminal.end() == 0


def test_on_a_terminal_it_can_be_told_not_to_ask(broker: SmallBroker) -> None:
    terminal = Terminal("purge", "shop/[orders]", "-y")
    terminal.read_until("3 dead letters deleted")
    assert terminal.end() == 0
    assert broker.asked == ["purge prism/shop/[orders]"]
