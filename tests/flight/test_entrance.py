"""Who may call over Flight, and what they may read and write there."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from headwater import local_tokens
from headwater.control import call
from headwater.errors import ConfigError, Refusal
from headwater.identity.attempts import FREE_ATTEMPTS
from headwater.identity.book import AccessBook
from headwater.spark.flight_client import FlightClient, RecordSelection
from tests.e2e.process import BrokerProcess, eventually
from tests.flight.relay import relay

CLOSED = {"HEADWATER_LISTENER_FLIGHT_ANONYMOUS": "auto", "HEADWATER_AUDIT_EVENTS": "all"}


class Caller:
    """pyarrow's own client, with a token."""

    def __init__(self, broker: BrokerProcess, token: str = "", port: int = 0) -> None:
        self._client = flight.connect(f"grpc://127.0.0.1:{port or broker.ports['flight']}")
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        self._options = flight.FlightCallOptions(headers=headers)

    def act(self, name: str, **arguments: Any) -> Any:
        action = flight.Action(name, json.dumps(arguments).encode())
        (answer,) = self._client.do_action(action, self._options)
        return json.loads(answer.body.to_pybytes())

    def topics(self) -> list[str]:
        return [each["topic"] for each in self.act("topics")["topics"]]

    def read(self, **wanted: Any) -> list[str]:
        request = {"start": 0, "end": self.act("log")["end"], **wanted}
        ticket = flight.Ticket(json.dumps(request).encode())
        table = self._client.do_get(ticket, self._options).read_all()
        found: list[str] = table.column("topic").to_pylist()
        return found

    def append(self, producer: str, sequence: int, *topics: str) -> Any:
        command = json.dumps({"do": "append", "producer": producer, "sequence": sequence})
        table = pa.table({"topic": list(topics), "value": [b"x"] * len(topics)})
        descriptor = flight.FlightDescriptor.for_command(command.encode())
        writer, reader = self._client.do_put(descriptor, table.schema, self._options)
        with writer:
            writer.write_table(table)
            writer.done_writing()
            return json.loads(reader.read().to_pybytes())


def closed_broker(data: Path) -> tuple[BrokerProcess, str]:
    """A broker that wants tokens, and the token of a user who may use what is below `a`."""
    book = AccessBook(data)
    book.add_user("alice", "mine")
    book.allow("alice", ["publish", "history"], "a/*")
    return BrokerProcess(data, **CLOSED), book.add_token("alice")["token"]


def test_without_a_token_nobody_gets_in(tmp_path: Path) -> None:
    broker, _ = closed_broker(tmp_path / "data")
    with broker:
        for token in ("", "hw_guess"):
            stranger = Caller(broker, token)
            with pytest.raises(flight.FlightUnauthenticatedError, match="wants a token"):
                stranger.act("log")
            with pytest.raises(flight.FlightUnauthenticatedError):
                stranger.append("p", 1, "a/x")
        assert call(broker.data, "metrics")["access"]["failed"] == 2  # to give none is no guess
        assert "could not log in" in broker.log


def guess(caller: Caller) -> None:
    """Until it has to wait."""
    for _ in eventually():  # on a slow machine, the first waits may be over by the next attempt
        with pytest.raises(flight.FlightUnauthenticatedError) as refused:
            caller.act("log")
        if "too many attempts: wait" in str(refused.value):
            return


def test_who_guesses_tokens_keeps_nobody_out_who_has_one(tmp_path: Path) -> None:
    broker, token = closed_broker(tmp_path / "data")
    with broker, relay(broker.ports["flight"], "127.0.0.2") as elsewhere:
        guess(Caller(broker, "hw_guess"))
        for port in (elsewhere, broker.ports["flight"]):
            assert Caller(broker, token, port).topics() == []
        assert Caller(broker, local_tokens.kept_in(broker.data)).act("log")
        # Others who guess are not kept out by those before them, but by themselves.
        stranger = Caller(broker, "hw_guess", elsewhere)
        with pytest.raises(flight.FlightUnauthenticatedError, match="this token is not known"):
            stranger.act("log")
        guess(stranger)
        figures = call(broker.data, "metrics")["access"]
        assert figures["failed"] >= 2 * FREE_ATTEMPTS and figures["locked_out"] >= 2
        broker.stop()
        for address in ("127.0.0.1", "127.0.0.2"):
            assert f"a token could not log in from {address}:" in broker.log


def test_a_user_reads_and_writes_what_rules_allow(tmp_path: Path) -> None:
    broker, token = closed_broker(tmp_path / "data")
    with broker:
        wire = broker.bpsp()
        for topic in ("a/1", "b/1", "a/2"):
            assert wire.publish(topic, b"x") == 200
        alice = Caller(broker, token)
        assert alice.topics() == ["a/1", "a/2"]
        assert alice.read() == ["a/1", "a/2"]
        assert alice.read(pattern=".*1") == ["a/1"]
        with pytest.raises(flight.FlightUnauthorizedError, match="may not read the history of b/1"):
            alice.read(topics=["a/1", "b/1"])
        assert alice.append("p", 1, "a/3", "a/4")["count"] == 2
        with pytest.raises(flight.FlightUnauthorizedError, match="may not publish to b/2"):
            alice.append("p", 2, "a/5", "b/2")
        # Another one's producer of the same name is another one.
        owner = Caller(broker, local_tokens.kept_in(broker.data))
        assert owner.append("p", 1, "b/3")["repeated"] is False
        assert "$audit/login" in owner.topics()
        assert sorted(owner.read(pattern="[ab]/.*")) == ["a/1", "a/2", "a/3", "a/4", "b/1", "b/3"]


def test_programs_of_the_same_user_need_not_be_told_the_token(tmp_path: Path) -> None:
    broker, _ = closed_broker(tmp_path / "data")
    with broker:
        port = broker.ports["flight"]
        token_file = broker.data / local_tokens.FILE
        assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
        for server in (f"localhost:{port}", f"127.0.0.1:{port}"):
            assert local_tokens.find(server) == token_file.read_text().strip()
            FlightClient((server,)).log()
        assert local_tokens.find(f"example.com:{port}") is None
        wrong = FlightClient((f"localhost:{port}",), "hw_another")
        with pytest.raises(ConfigError, match="wants another token"):
            wrong.log()
        broker.stop()
        assert local_tokens.find(f"localhost:{port}") is None
        broker.keep_ports()
        broker.start()
        FlightClient((f"localhost:{port}",)).log()  # the same token as before
        broker.kill()
        assert local_tokens.find(f"localhost:{port}") is None  # whoever listens there now


def test_what_others_can_write_or_read_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "shown"
    monkeypatch.setattr(local_tokens, "_directories", lambda: iter([directory]))
    shown = local_tokens.ShownToken("127.0.0.1", 1, "secret")
    (file,) = directory.iterdir()
    assert local_tokens.find("127.0.0.1:1") == "secret"
    for path, mode in ((file, 0o644), (directory, 0o755)):
        before = path.stat().st_mode
        path.chmod(mode)
        assert local_tokens.find("127.0.0.1:1") is None
        path.chmod(before)
    file.write_text(json.dumps({"token": "secret", "pid": 2**22 + os.getpid()}))
    assert local_tokens.find("127.0.0.1:1") is None
    file.write_text("nonsense")
    assert local_tokens.find("127.0.0.1:1") is None
    shown.withdraw()
    assert not list(directory.iterdir())


def test_the_connector_is_told_what_is_not_allowed(tmp_path: Path) -> None:
    broker, token = closed_broker(tmp_path / "data")
    with broker:
        assert broker.bpsp().publish("b", b"x") == 200
        client = FlightClient((f"127.0.0.1:{broker.ports['flight']}",), token)
        with pytest.raises(Refusal, match="may not read the history of b"):
            list(client.read(RecordSelection(topics=("b",)), 0, client.log().end))
