"""The pages of the protocols: their conversations are true, and what they name exists."""

import re
from fnmatch import fnmatchcase
from itertools import count

import pytest

from headwater.commands import (
    Acknowledge,
    Close,
    Command,
    Confirm,
    Consume,
    Publish,
    Respond,
    Subscribe,
    Unsubscribe,
)
from headwater.config import DECLARED, SETTINGS
from headwater.errors import Code, Refusal
from headwater.message import Batch
from tests.generated_docs import ROOT
from tests.protocols.vectors import File, Key, escape, files, service_of, unescape

FILES = files()
PAGES = {file.protocol: ROOT / "docs" / "protocols" / f"{file.protocol}.md" for file in FILES}
#: No client hears of the first; one protocol alone is greeted, and another has one subscription.
NOT_MET = {
    file.protocol: {"limits.dead_peer_seconds"}
    | ({"limits.greeting_seconds"} if file.protocol != "bpsp" else set())
    | ({"limits.client_queues"} if file.protocol != "bmtp" else set())
    | ({"limits.subscriptions"} if file.protocol == "psmb" else set())
    | {"limits.patterns"}  # of protocols that are installed
    | ({"limits.queues_per_user"} if file.protocol not in ("bmtp", "prism") else set())
    for file in FILES
}
LINE = re.compile(r"^(\w) ([→←]) (.+?)(?: {2,}.*)?$", re.MULTILINE)


def page(file: File) -> str:
    return PAGES[file.protocol].read_text()


def names_on(text: str) -> set[str]:
    """What stands in code in the last column of the table of vectors."""
    table = text.partition("| document | vectors |")[2]
    assert table, "the page has no table of vectors"
    rows = [line.rpartition(" | ")[2] for line in table.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall("`([^`]+)`", row)}


def vectors_of(file: File) -> set[str]:
    return {vector.name for vector in (*file.vectors, *file.clients)}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.protocol)
def test_the_vectors_that_a_page_names_exist(file: File) -> None:
    known = vectors_of(file)
    names = names_on(page(file))
    missing = [name for name in names if not any(fnmatchcase(each, name) for each in known)]
    assert not missing


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.protocol)
def test_every_vector_is_on_its_page(file: File) -> None:
    names = names_on(page(file))
    left_out = {
        each for each in vectors_of(file) if not any(fnmatchcase(each, name) for name in names)
    }
    assert not left_out


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.protocol)
def test_the_keys_that_a_page_names_exist(file: File) -> None:
    sections = {key.partition(".")[0] for key in SETTINGS if "." in key}
    named = re.findall(rf"`((?:{'|'.join(sections)})\.\w+)`", page(file))
    assert f"listen.{file.protocol}" in named
    assert not [key for key in named if key not in DECLARED]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.protocol)
def test_every_limit_that_a_client_can_meet_is_on_its_page(file: File) -> None:
    limits = page(file).partition("\n## Limits\n")[2].partition("\n## ")[0]
    keys = {key for key in SETTINGS if key.startswith("limits.")} - NOT_MET[file.protocol]
    assert not [key for key in sorted(keys) if f"`{key}`" not in limits]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.protocol)
def test_the_port_on_a_page_is_the_default(file: File) -> None:
    setting = SETTINGS[f"listen.{file.protocol}"]
    port = str(setting.kind.write(setting.default)).rpartition(":")[2]
    assert f"**{port}**" in page(file)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.protocol)
def test_the_conversation_on_a_page_is_true(file: File) -> None:
    text = page(file).partition("<!-- played by a test -->")[2]
    block = text.partition("```text\n")[2].partition("```")[0]
    lines = LINE.findall(block)
    assert len(lines) > 8
    exchange = Exchange(file)
    for who, direction, written in lines:
        if direction == "→":
            exchange.send(who, unescape(written))
        else:
            exchange.expect(who, written)
    assert not any(exchange.outbox.values()), "more was sent than the page shows"


class Exchange:
    """A few connections of one protocol, and just enough of a broker between them."""

    def __init__(self, file: File) -> None:
        service = service_of(file.protocol, file.settings)
        self._sessions = {name: service.session(file.terms) for name in "SP"}
        self._consumed: dict[str, Consume] = {}
        self._wanted: dict[tuple[str, str], tuple[str, Subscribe]] = {}
        self._offsets = count()
        self.outbox = {name: each.greet() for name, each in self._sessions.items()}

    def send(self, who: str, data: bytes) -> None:
        for command in self._sessions[who].receive(data):
            self._handle(who, command)

    def expect(self, who: str, written: str) -> None:
        parts = [re.escape(unescape(part)) for part in written.split("…")]
        # What varies at the end is all that is left.
        ending = b"\\Z" if written.endswith("…") else b""
        found = re.compile(b".*?".join(parts) + ending, re.DOTALL).match(self.outbox[who])
        assert found, f"{who} got {escape(self.outbox[who])}, the page says {written}"
        self.outbox[who] = self.outbox[who][found.end() :]

    def _handle(self, who: str, command: Command) -> None:
        if isinstance(command, Confirm | Acknowledge):
            return
        if isinstance(command, Unsubscribe) and command.key not in self._wanted:
            reaction = self._sessions[who].refuse(
                command, Refusal(Code.NOT_FOUND, "not subscribed")
            )
            assert isinstance(reaction, Respond | Close)
            command = reaction
        self.outbox[who] += command.answer
        if isinstance(command, Subscribe):
            self._wanted[command.key] = (who, command)
        if isinstance(command, Consume):
            self._consumed[who] = command
        if isinstance(command, Publish):
            self._deliver(command)

    def _deliver(self, command: Publish) -> None:
        batch = Batch(next(self._offsets), 0, command.run)
        for who, consume in self._consumed.items():
            if any(each.matches(command.run.topic) for each in consume.queue.filters):
                buffers, _ = self._sessions[who].send(batch, consume.key, False)
                self.outbox[who] += b"".join(buffers)
        for who, wanted in self._wanted.values():
            if wanted.filter.matches(command.run.topic):
                session = self._sessions[who]
                subscription = Key(wanted.key, wanted.durable is not None)
                self.outbox[who] += session.encode(batch, subscription)
                self.outbox[who] += session.mark(batch.end)
