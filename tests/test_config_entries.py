"""Entries of the configuration: arrays of tables, and tables with free names."""

import pytest

from headwater.protocols.prism.settings import PrismApp, PrismQueue
from tests.test_config import elsewhere, load_text, refusal

__all__ = ["elsewhere"]

SECRET = "0123456789abcdef"
APP = f"[[prism.apps]]\nclient_id = 'shop'\nclient_secret = '{SECRET}'\n"
QUEUE = "[[prism.queues]]\napp = 'shop'\nname = 'orders'\n"


def test_apps() -> None:
    loaded = load_text(APP + APP.replace("shop", "shop-2"))
    assert loaded.config.protocols["prism"].apps == (
        PrismApp("shop", SECRET),
        PrismApp("shop-2", SECRET),
    )
    assert str(loaded.origins["prism.apps[1]"]) == "test.toml:4"
    assert str(loaded.origins["prism.apps[1].client_secret"]) == "test.toml:6"


def test_entries_may_be_written_inline() -> None:
    loaded = load_text(
        f"prism.apps = [\n {{ client_id = 'a', client_secret = '{SECRET}' }},\n"
        f" {{ client_id = 'b', client_secret = '{SECRET}' }} ]\n"
        "bmtp = { channels = { 7 = 'seven' } }"
    )
    assert [app.client_id for app in loaded.config.protocols["prism"].apps] == ["a", "b"]
    assert str(loaded.origins["prism.apps[1].client_id"]) == "test.toml:3"
    assert loaded.config.protocols["bmtp"].channels == {7: "seven"}
    assert load_text("prism.apps = []").config.protocols["prism"].apps == ()


def test_queues_take_what_they_do_not_say_from_above() -> None:
    text = f"prism.prefetch = 5\n{QUEUE}{QUEUE.replace('orders', '')}"
    own = "bindings = ['a.*', '#']\nprefetch = 9\nack_seconds = 0.5\nmax_deliveries = 1\n"
    own += "backlog_age = '1h'\n"
    loaded = load_text(text + own, {"HEADWATER_PRISM_ACK_SECONDS": "30"})
    assert loaded.config.protocols["prism"].queues == (
        PrismQueue("shop", "orders", (), prefetch=5, ack_seconds=30.0, max_deliveries=16),
        PrismQueue(
            "shop",
            "",
            ("a.*", "#"),
            prefetch=9,
            ack_seconds=0.5,
            max_deliveries=1,
            backlog_age=3600.0,
        ),
    )
    origins = {key: str(origin) for key, origin in loaded.origins.items() if "queues[0]" in key}
    assert origins == {
        "prism.queues[0]": "test.toml:2",
        "prism.queues[0].app": "test.toml:3",
        "prism.queues[0].name": "test.toml:4",
        "prism.queues[0].bindings": "default",
        "prism.queues[0].prefetch": "prism.prefetch",
        "prism.queues[0].ack_seconds": "prism.ack_seconds",
        "prism.queues[0].max_deliveries": "prism.max_deliveries",
        "prism.queues[0].backlog_age": "default",
    }
    assert loaded.origins["prism.queues[0].ack_seconds"].kind == "environment"


def test_channels() -> None:
    loaded = load_text("[bmtp.channels]\n0 = 'a'\n4294967295 = 'b/c'\n'42' = 'bmtp/42'\n")
    assert loaded.config.protocols["bmtp"].channels == {0: "a", 2**32 - 1: "b/c", 42: "bmtp/42"}
    assert str(loaded.origins["bmtp.channels.4294967295"]) == "test.toml:3"
    with pytest.raises(TypeError):
        loaded.config.protocols["bmtp"].channels[1] = "no"


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        # Not the right shape
        ("[prism.apps]\nclient_id = 'a'", 1, "must be an array of tables, each under"),
        ("\nprism.apps = 3", 2, "each under [[prism.apps]], not 3"),
        ("prism.apps = [\n3]", 2, "each under [[prism.apps]], not of 3"),
        ("[[bmtp.channels]]\n1 = 'a'", 1, "bmtp.channels must be a table, not an array"),
        ("bmtp.channels = 'a'", 1, 'bmtp.channels must be a table, not "a"'),
        # Missing
        ("\n[[prism.apps]]", 2, "this table of prism.apps has no client_id"),
        (f"{APP}\n[[prism.apps]]\nclient_id = 'b'", 5, "prism.apps has no client_secret"),
        ("[[prism.queues]]\napp = 'a'", 1, "this table of prism.queues has no name"),
        ("[[prism.queues]]\nname = 'a'", 1, "this table of prism.queues has no app"),
        # Unknown
        (
            "[[prism.apps]]\nclient_idd = 'a'",
            2,
            'there is no key "prism.apps.client_idd"; did you mean "prism.apps.client_id"?',
        ),
        (f"{APP}\n{QUEUE}prefech = 1", 8, 'did you mean "prism.queues.prefetch"?'),
        (f"{APP}colour = 'red'", 4, 'there is no key "prism.apps.colour"'),
        (f"{QUEUE}[prism.queues.bindings]\na = 1", 4, "bindings must be a list of texts"),
        ("[[prism.app]]", 1, 'there is no array "prism.app"; did you mean "prism.apps"?'),
        ("[bmtp.chanels]", 1, 'there is no table "bmtp.chanels"; did you mean "bmtp.channels"?'),
        ("'prism.apps' = []", 1, 'there is no key "prism.apps"'),
        # Wrong values
        ("[[prism.apps]]\nclient_id = 3", 2, "prism.apps.client_id must be 1 to 64 letters"),
        ("[[prism.apps]]\nclient_id = 'a/b'", 2, '`.` and `-`, not "a/b"'),
        (f"[[prism.apps]]\nclient_id = '{'x' * 65}'", 2, "prism.apps.client_id must be"),
        ("[[prism.queues]]\napp = ''", 2, "prism.queues.app must be 1 to 64 letters"),
        (f"[[prism.queues]]\nname = '{'é' * 129}'", 2, "name must be a text of at most 256 bytes"),
        (
            f"{QUEUE}bindings = 'a.*'",
            4,
            'bindings must be a list of texts of 1 to 256 bytes, not "',
        ),
        (
            f"{QUEUE}bindings = [\n'a',\n3]",
            6,
            "each of prism.queues.bindings must be a text of 1 to 256 bytes, not 3",
        ),
        (f"{QUEUE}bindings = ['a',\n'']", 5, 'must be a text of 1 to 256 bytes, not ""'),
        (f"{QUEUE}prefetch = 0", 4, "prism.queues.prefetch must be a whole number from 1 to 65535"),
        (f"{QUEUE}ack_seconds = 'soon'", 4, "prism.queues.ack_seconds must be a number from 0.1"),
        ("[bmtp.channels]\n4294967296 = 'a'", 2, "a name in bmtp.channels must be a whole number"),
        ("[bmtp.channels]\n-1 = 'a'", 2, 'from 0 to 4294967295, not "-1"'),
        ("[bmtp.channels]\n007 = 'a'", 2, 'from 0 to 4294967295, not "007"'),
        ("[bmtp.channels]\n'٣' = 'a'", 2, 'from 0 to 4294967295, not "٣"'),
        ("[bmtp.channels]\n1 = ''", 2, 'bmtp.channels.1 must be a topic, not ""'),
        ("[bmtp.channels]\n1 = 1", 2, "bmtp.channels.1 must be a topic, not 1"),
        ("[bmtp.channels]\n1.5 = 'a'", 2, "bmtp.channels.1 must be a topic, not a table"),
        ('[bmtp.channels]\n1 = "a\\u0000"', 2, "bmtp.channels.1 must be a topic, not"),
        # Two that exclude each other
        (
            "[bmtp.channels]\n1 = 'a'\n2 = 'b'\n3 = 'a'",
            4,
            'bmtp.channels.3 must have a topic of its own: "a" is that of channel 1',
        ),
        ("[bmtp.channels]\n1 = 'bmtp/2'", 2, '"bmtp/2" is that of channel 2'),
        ("[bmtp.channels]\n1 = 'bmtp/2'\n2 = 'c'", 2, '"bmtp/2" is that of channel 2'),
        (
            "[bmtp.channels]\n1 = 'ab'\n2 = 'é'\n3 = 'abc'\n[limits]\ntopic_bytes = 2",
            4,
            "bmtp.channels.3 is longer than limits.topic_bytes, which is 2",
        ),
        (f"{APP}\n{APP}", 6, 'prism.apps has an app "shop" already'),
        (f"{QUEUE}\n{QUEUE}", 7, 'prism.queues has a queue "orders" of "shop" already'),
    ],
)
def test_a_bad_entry_is_refused_with_its_line(text: str, line: int, sentence: str) -> None:
    error = refusal(text)
    assert error.startswith(f"test.toml:{line}: "), error
    assert sentence in error


def test_topics_that_only_look_like_those_of_channels() -> None:
    text = "[bmtp.channels]\n1 = 'bmtp/02'\n2 = 'bmtp/4294967296'\n3 = 'bmtp/x'\n"
    assert len(load_text(text).config.protocols["bmtp"].channels) == 3
    long = f"limits.topic_bytes = 65535\nbmtp.channels.1 = 'bmtp/{'9' * 60_000}'"
    assert len(load_text(long).config.protocols["bmtp"].channels) == 1


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "hunter2",
        "x" * 15,
        "56dygmyhrfuhuwrdst3c",
        "CHANGE-ME-TO-A-REAL-SECRET",
        "change_me_now_please",
    ],
)
def test_a_weak_secret_is_refused_and_not_repeated(secret: str) -> None:
    assert refusal(APP.replace(SECRET, secret)) == (
        "test.toml:3: prism.apps.client_secret must be a secret of at least 16 characters that is "
        "in no published example; take this app out of the file, and make it with "
        "`headwater app add NAME`"
    )


def test_a_secret_of_the_wrong_type_is_not_repeated() -> None:
    assert "12345" not in refusal(APP.replace(f"'{SECRET}'", "12345678901234567890"))
    assert "12345" not in refusal("crystal.secret_key = 12345")
    long = "y" * 1025
    assert refusal(f"crystal.secret_key = '{long}'") == (
        'test.toml:1: crystal.secret_key must be a text of 1 to 1024 bytes, or "off"; '
        '"***" only stands for a secret'
    )
    error = refusal("", {"HEADWATER_CRYSTAL_SECRET_KEY": long})
    assert error.startswith("HEADWATER_CRYSTAL_SECRET_KEY: crystal.secret_key must be")
    assert "yyy" not in error
