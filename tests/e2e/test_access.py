"""Who may come in, and what they may do there: over real sockets, in each protocol's own words."""

import asyncio
import json
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater import local_tokens
from headwater.client import connect
from headwater.control import call
from headwater.errors import HeadwaterError
from headwater.identity.book import AccessBook
from headwater.protocols.bpsp import codec as bpsp
from headwater.protocols.psmb import codec as psmb
from tests.e2e.process import PATIENCE, SECRET, BpspWire, BrokerProcess, eventually
from tests.flight.client import Client

PASSWORD = "correct horse"
CLOSED = {
    "HEADWATER_AUDIT_EVENTS": "all",
    "HEADWATER_LISTENER_PSMB_ANONYMOUS": "false",
    "HEADWATER_LISTENER_BMTP_ANONYMOUS": "false",
    "HEADWATER_LISTENER_BPSP_ANONYMOUS": "false",
    "HEADWATER_LISTENER_ANY_ANONYMOUS": "false",
}
TOML = f"""
[[prism.apps]]
client_id = "shop"
client_secret = "{SECRET}"
role = "shops"

[[crystal.groups]]
name = "lobby"
secret_key = "{SECRET}"
role = "games"
"""


def closed_broker(data: Path, **settings: str) -> BrokerProcess:
    """Everyone has to say who they are; alice is a device, root an operator."""
    book = AccessBook(data)
    book.add_user("alice", "devices", PASSWORD)
    book.add_user("root", "operator", PASSWORD)
    book.allow("role:devices", ["publish", "subscribe"], "sensors/*")
    book.allow("role:shops", ["publish", "queues"], "order/*")
    book.allow("role:games", ["publish", "subscribe"], "game/*")
    return BrokerProcess(data, toml=TOML, **CLOSED, **settings)


def log_in(wire: BpspWire, name: str = "alice", password: str = PASSWORD) -> int:
    wire.request(bpsp.CONNECT, x_username=name, x_password=password)
    return wire.status()


def subscribed(wire: BpspWire, pattern: str) -> int:
    wire.request(bpsp.SUB, x_topic=pattern)
    return wire.status()


def test_users_log_in_and_do_what_rules_allow(tmp_path: Path) -> None:
    with closed_broker(tmp_path / "data") as broker:
        wire = broker.bpsp()
        assert wire.publish("sensors/a", b"too early") == 403
        assert log_in(wire, password="wrong password") == 403
        assert log_in(wire, name="nobody") == 403
        assert wire.publish("sensors/a", b"still too early") == 403
        assert log_in(wire) == 200
        assert wire.publish("sensors/a", b"1") == 200
        assert wire.publish("other", b"not allowed") == 403
        assert wire.publish("$audit/login", b"not allowed") == 403
        assert subscribed(wire, "other") == 403
        assert subscribed(wire, "+/a") == 200
        other = broker.bpsp()
        assert log_in(other) == 200
        assert other.publish("sensors/a", b"2") == 200
        opcode, headers, payload = wire.frame()
        assert (opcode, headers["x-from"], payload) == (bpsp.MSG, "alice", b"2")


def test_a_subscription_gets_what_is_allowed_and_nothing_else(tmp_path: Path) -> None:
    with closed_broker(tmp_path / "data") as broker:
        alice, root = broker.bpsp(), broker.bpsp()
        assert log_in(alice) == 200 == log_in(root, "root")
        alice.subscribe("*")
        assert root.publish("secret", b"no") == 200
        assert root.publish("sensors/a", b"yes") == 200
        assert alice.frame()[2] == b"yes"


def test_rules_change_while_clients_are_connected(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closed_broker(data) as broker:
        alice, root = broker.bpsp(), broker.bpsp()
        assert log_in(alice) == 200 == log_in(root, "root")
        alice.subscribe("*")
        rule: dict[str, Any] = {"who": "alice", "topics": "doors/+"}
        call(data, "access.allow", may=["publish", "subscribe"], **rule)
        assert alice.publish("doors/1", b"mine") == 200
        assert root.publish("doors/1", b"open") == 200
        assert alice.frame()[2] == b"open"
        call(data, "access.revoke", may=["subscribe"], **rule)
        assert root.publish("doors/1", b"hidden") == 200
        assert root.publish("sensors/a", b"shown") == 200
        assert alice.frame()[2] == b"shown"
        call(data, "access.revoke", may=["publish"], **rule)
        assert alice.publish("doors/1", b"no more") == 403


def test_a_file_that_was_changed_by_others_is_noticed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closed_broker(data) as broker:
        alice = broker.bpsp()
        assert log_in(alice) == 200
        AccessBook(data).allow("alice", ["publish"], "doors/+")
        for _ in eventually():
            if alice.publish("doors/1", b"open") == 200:
                break


def test_who_is_removed_is_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closed_broker(data) as broker:
        alice = broker.bpsp()
        assert log_in(alice) == 200
        call(data, "user.remove", name="alice")
        opcode, headers, text = alice.frame()
        assert (opcode, headers["x-status-code"]) == (bpsp.ERR, "403")
        assert b"not known any more" in text
        assert alice.rest() == b""
        assert log_in(broker.bpsp()) == 403


def test_guessing_takes_ever_longer(tmp_path: Path) -> None:
    with closed_broker(tmp_path / "data") as broker:
        known = broker.bpsp()
        assert log_in(known) == 200
        wire = broker.bpsp()
        refused = b""
        for _ in eventually():
            wire.request(bpsp.CONNECT, x_username="root", x_password="guess")
            refused = wire.frame()[2]
            if b"too many attempts" in refused:
                break
        assert b"wait" in refused
        assert "root could not log in from 127.0.0.1" in broker.log
        # The right password does not help now, and others who were here before are not harmed.
        wire.request(bpsp.CONNECT, x_username="root", x_password=PASSWORD)
        assert b"too many attempts" in wire.frame()[2]
        assert log_in(broker.bpsp()) == 200


def test_protocols_without_credentials_are_refused_in_their_own_words(tmp_path: Path) -> None:
    with closed_broker(tmp_path / "data") as broker:
        for name in ("psmb", "any"):
            wire = broker.wire(name)
            wire.send(psmb.PsmbClientSession.hello() + psmb.PsmbClientSession.publishing("a"))
            wire.expect(b"OK\0\0\0\0\0FAILED\0this listener is for clients that say who they are")
        for name in ("bmtp", "any"):
            wire = broker.wire(name)
            wire.send(b"\x11BMTP")
            assert wire.rest() == b"\x22"


def test_whoever_does_not_log_in_has_to_go(tmp_path: Path) -> None:
    settings = {"HEADWATER_LIMITS_HANDSHAKE_SECONDS": "0.5"}
    with closed_broker(tmp_path / "data", **settings) as broker:
        wire = broker.bpsp()
        assert wire.publish("sensors/a", b"too early") == 403
        opcode, _, text = wire.frame()
        assert (opcode, text) == (bpsp.ERR, b"the handshake took too long")
        assert wire.rest() == b""


def test_apps_have_roles(tmp_path: Path) -> None:
    async def check(broker: BrokerProcess) -> None:
        prism = f"prism://shop:{SECRET}@127.0.0.1:{broker.ports['prism']}"
        async with connect(prism) as shop:
            await shop.publish("order/new", b"1")
            with pytest.raises(HeadwaterError, match="app:shop may not publish to price"):
                await shop.publish("price", b"2")
        crystal = f"crystal://{SECRET}@127.0.0.1:{broker.ports['crystal']}"
        async with connect(crystal) as game:
            await game.publish("game/chat", b"hello")
            with pytest.raises(HeadwaterError):
                await game.publish("other/chat", b"hello")
        with pytest.raises(HeadwaterError):
            async with connect(f"crystal://wrong@127.0.0.1:{broker.ports['crystal']}") as game:
                await game.publish("game/chat", b"hello")

    with closed_broker(tmp_path / "data") as broker:
        asyncio.run(asyncio.wait_for(check(broker), PATIENCE))


def test_an_app_cannot_read_other_topics_through_its_default_queue(tmp_path: Path) -> None:
    async def check(broker: BrokerProcess) -> None:
        root = broker.bpsp()
        assert log_in(root, "root") == 200
        async with connect(f"prism://shop:{SECRET}@127.0.0.1:{broker.ports['prism']}") as shop:
            await shop.subscribe("")
            assert root.publish("secret/price", b"not for shops") == 200
            assert root.publish("order/new", b"for shops") == 200
            assert (await anext(shop)).payload == b"for shops"

    with closed_broker(tmp_path / "data") as broker:
        asyncio.run(asyncio.wait_for(check(broker), PATIENCE))


def test_what_happens_at_the_gate_is_on_record(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with closed_broker(data) as broker:
        root, alice = broker.bpsp(), broker.bpsp()
        assert log_in(root, "root") == 200
        root.subscribe("$audit/*")
        assert log_in(alice, password="wrong password") == 403
        assert log_in(alice) == 200
        call(data, "access.allow", who="alice", may=["history"], topics="x", by="root")
        call(data, "user.add", name="bob", role="client", password=PASSWORD, by="root")
        found: list[tuple[str, str]] = []
        while len(found) < 4:
            _, headers, payload = root.frame()
            event = json.loads(payload)
            found.append((headers["x-origin-topic"], event["who"]))
            assert PASSWORD not in payload.decode()
        assert found == [
            ("$audit/failure", "user:alice"),
            ("$audit/login", "user:alice"),
            ("$audit/access", "root"),
            ("$audit/access", "root"),
        ]
        assert subscribed(alice, "$audit/*") == 403


def exports(broker: BrokerProcess) -> list[dict[str, Any]]:
    with closing(Client(broker.ports["flight"], local_tokens.kept_in(broker.data))) as owner:
        table = owner.read(start=0, end=owner.act("log")["end"], topics=["$audit/export"])
    return [json.loads(each) for each in table.column("value").to_pylist()]


def test_reading_over_flight_is_on_record(tmp_path: Path) -> None:
    data = tmp_path / "data"
    broker = closed_broker(data)
    book = AccessBook(data)
    book.allow("alice", ["history"], "sensors/*")
    token = book.add_token("alice")["token"]
    with broker:
        wire = broker.bpsp()
        assert log_in(wire) == 200
        for _ in range(3):
            assert wire.publish("sensors/a", b"1") == 200
        alice = Client(broker.ports["flight"], token)
        owner = Client(broker.ports["flight"], local_tokens.kept_in(data))
        with closing(alice), closing(owner):
            end = alice.act("log")["end"]
            for _ in range(2):
                assert len(alice.read(start=0, end=end, pattern="sensors/.*")) == 3
            owner.read(start=end, end=end)  # nothing is read
            assert len(owner.read(start=0, end=end, topics=["sensors/a"])) == 3
        broker.stop()
        broker.start()
        first, second, *rest = exports(broker)
        del first["at"], second["at"]
        about = {"do": "flight.read", "from": "127.0.0.1"}
        asked = {"start": 0, "end": end}
        assert first == about | {"who": "user:alice", "with": asked | {"pattern": "sensors/.*"}}
        assert second == about | {"who": "owner", "with": asked | {"topics": ["sensors/a"]}}
        told = [(each["who"], each["reads"], each["messages"]) for each in rest]
        assert told == [("user:alice", 2, 6), ("owner", 1, 3)]


def test_nobody_else_can_read_what_the_broker_keeps(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    (data / "old").write_text("from before")
    with BrokerProcess(data) as broker:
        assert broker.bpsp().publish("a", b"1") == 200
        assert "other users of this machine could read" in broker.log
        for path in (data, *data.rglob("*")):
            mode = path.stat().st_mode
            if not stat.S_ISSOCK(mode):
                assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path


def test_a_listener_for_others_needs_a_way_to_know_them(tmp_path: Path) -> None:
    """No broker is open to strangers by mistake. (It is never asked to listen here.)"""

    def refusal(**settings: str) -> str:
        broker = BrokerProcess(tmp_path / "data", **settings)
        with pytest.raises(RuntimeError) as caught:
            broker.start()
        return str(caught.value)

    for name in ("PSMB", "BMTP", "BPSP", "ANY", "CONSOLE"):
        said = refusal(**{f"HEADWATER_LISTEN_{name}": "0.0.0.0:0"})
        assert f"listen.{name.lower()} can be reached by other machines" in said
        assert f"[listener.{name.lower()}] anonymous = true" in said
    AccessBook(tmp_path / "data").add_user("alice", "client", PASSWORD)
    said = refusal(HEADWATER_LISTEN_PSMB="0.0.0.0:0", HEADWATER_LISTEN_BPSP="0.0.0.0:0")
    assert "listen.psmb can be reached by other machines" in said


def test_it_is_told_what_is_open_to_whom(tmp_path: Path) -> None:
    with closed_broker(tmp_path / "data") as broker:
        said = broker.table
        assert said["psmb"] == "nobody"
        assert said["bpsp"] == "users with their password"
        assert said["prism"] == said["crystal"] == "apps with their secret"
