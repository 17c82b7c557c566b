"""The file with the rules, and what it makes of questions."""

import stat
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError, Refusal
from headwater.identity.book import AccessBook
from headwater.identity.rules import FILE, Rules
from headwater.rights import Principal, Rights


def test_before_the_first_rule_everyone_who_is_let_in_may_do_everything(tmp_path: Path) -> None:
    rules = Rules(tmp_path / FILE).all()
    for principal in (
        Principal("anonymous"),
        Principal("user", "a", "client"),
        Principal("app", "shop", "app"),
        Principal("user", "root", "operator"),
    ):
        rights = Rights(principal, rules)
        assert all(rights.of(action).may("x/y") for action in ("publish", "subscribe", "queues"))
        assert rights.history.may("$audit/login") == (principal.role == "operator")
    assert not Rights(Principal("user", "a", "viewer"), rules).history.may("x")
    assert Rights(Principal("user", "a", "reader"), rules).history.may("x")
    assert not Rights(Principal("user", "a", "reader"), rules).publish.may("x")
    assert not Rights(Principal("user", "a", "mine"), rules).subscribe.may("x")


def test_rules_are_added_and_taken_back(tmp_path: Path) -> None:
    rules = Rules(tmp_path / FILE)
    before = rules.version
    rules.allow("role:devices", ["publish", "subscribe"], "sensors/{user}/*")
    assert rules.version != before
    device = Principal("user", "d7", "devices")
    assert Rights(device, rules.all()).publish.may("sensors/d7/t")
    assert not Rights(device, rules.all()).publish.may("sensors/d8/t")
    rules.revoke("role:devices", ["publish"], "sensors/{user}/*")
    assert not Rights(device, rules.all()).publish.may("sensors/d7/t")
    assert Rights(device, rules.all()).subscribe.may("sensors/d7/t")
    rules.revoke("anonymous", ["publish"], "*")
    assert not Rights(Principal("anonymous"), rules.all()).publish.may("x")
    with pytest.raises(Refusal, match="no rule allows anonymous to publish"):
        rules.revoke("anonymous", ["publish"], "*")
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("who", "may", "topics"),
    [
        ("alice", ["publish"], "a"),
        ("user:", ["publish"], "a"),
        ("user:a b", ["publish"], "a"),
        ("user:a", [], "a"),
        ("user:a", ["fly"], "a"),
        ("user:a", ["publish"], ""),
        ("user:a", ["publish"], "a/*/b"),
        ("user:a", ["publish"], "$audit/*"),
    ],
)
def test_rules_that_make_no_sense(tmp_path: Path, who: str, may: list[str], topics: str) -> None:
    rules = Rules(tmp_path / FILE)
    with pytest.raises(Refusal):
        rules.allow(who, may, topics)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"rules": [{}]}', '{"rules": [{"who": "x"}]}', "{" * 10_000]
)
def test_a_damaged_file_lets_nobody_in(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(HeadwaterError, match="cannot be read"):
        Rules(tmp_path / FILE).all()


def test_explanations(tmp_path: Path) -> None:
    book = AccessBook(tmp_path)
    book.add_user("alice", "devices")
    book.add_user("bob", "client")
    book.allow("role:devices", ["publish"], "sensors/*")
    good = book.explain("alice", "publish", "sensors/a")
    assert good["allowed"]
    assert good["why"] == (
        "user:alice may publish to sensors/a: role:devices may, on topics that match sensors/*"
    )
    bad = book.explain("alice", "publish", "other")
    assert not bad["allowed"]
    assert "the rules that allow it are for sensors/* (role:devices)" in bad["why"]
    none = book.explain("user:alice", "queues", "sensors/a")
    assert "no rule allows user:alice or role:devices to consume queues of any topic" in none["why"]
    assert book.explain("bob", "queues", "x")["allowed"]
    assert book.explain("anonymous", "queues", "x")["allowed"]
    with pytest.raises(Refusal, match="there is no user and no app"):
        book.explain("carol", "publish", "x")
