"""The configuration: defaults, precedence, every kind of bad value, and the finder of lines."""

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import units
from headwater.config import (
    DECLARED,
    SETTINGS,
    Array,
    Config,
    KeyPath,
    Limits,
    Lines,
    Listen,
    Loaded,
    Log,
    Setting,
    Tls,
    load,
)
from headwater.errors import ConfigError
from headwater.protocols.bmtp.settings import BmtpSettings
from headwater.protocols.prism.settings import PrismSettings
from headwater.protocols.psmb.settings import PsmbSettings
from headwater.units import Address


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without a headwater.toml that someone may have left."""
    monkeypatch.chdir(tmp_path)


def load_text(text: str, environ: dict[str, str] | None = None, **flags: str) -> Loaded:
    file = Path("test.toml")
    file.write_bytes(text.encode())
    given = {key.replace("__", "."): value for key, value in flags.items()}
    return load(file, given, environ or {})


def refusal(text: str, environ: dict[str, str] | None = None, **flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_text(text, environ, **flags)
    return str(caught.value)


# Defaults and precedence


def test_defaults() -> None:
    loaded = load(environ={})
    config = loaded.config
    assert config == Config()
    assert config.data == Path("data")
    assert config.loop == "auto"
    assert config.listen.protocols["psmb"] == Address("127.0.0.1", 13880)
    assert config.listen.protocols["bmtp"] == Address("127.0.0.1", 1039)
    assert config.listen.protocols["prism"] == Address("127.0.0.1", 8080)
    assert config.listen.protocols["bpsp"] == Address("127.0.0.1", 29010)
    assert config.listen.protocols["crystal"] == Address("127.0.0.1", 33927)
    assert config.listen.console == Address("127.0.0.1", 8090)
    assert config.listen.flight == Address("127.0.0.1", 8815)
    assert config.log == Log("always", 0.1, 64 << 20, None, None)
    assert config.limits == Limits(
        message_bytes=16 << 20,
        connections=20_000,
        subscriptions=100_000,
        client_queues=100_000,
        output_buffer_bytes=1 << 20,
        input_bytes=256 << 20,
        output_bytes=256 << 20,
        unfinished_seconds=30.0,
        handshake_seconds=10.0,
        greeting_seconds=2.0,
        dead_peer_seconds=60.0,
        topic_bytes=1024,
    )
    assert config.listen.any is None
    assert (config.console.session_hours, config.console.names) == (12.0, ())
    assert config.protocols["psmb"] == PsmbSettings(10.0, 3, "all")
    assert config.tls == Tls(None, None)
    assert config.protocols["bmtp"] == BmtpSettings(
        "document", "json", "broadcast", 60.0, 120.0, 600.0, 604800.0, {}
    )
    assert config.protocols["prism"] == PrismSettings(False, 300.0, 1, 60.0, 16, 604800.0, (), ())
    assert config.protocols["crystal"].secret_key is None
    assert loaded.file is None
    assert loaded.warnings == ()
    assert {origin.kind for origin in loaded.origins.values()} == {"default"}


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Config().log.sync = "os"  # type: ignore[misc]


def test_declarations_are_complete() -> None:
    for setting in SETTINGS.values():
        assert setting.meaning.endswith("."), setting.key
        assert setting.kind.read(setting.kind.write(setting.default)) == setting.default
    assert SETTINGS["log.sync_interval"].variable == "HEADWATER_LOG_SYNC_INTERVAL"
    assert SETTINGS["log.sync_interval"].flag == "--log-sync-interval"
    for names in ([s.variable for s in SETTINGS.values()], [s.flag for s in SETTINGS.values()]):
        assert len(set(names)) == len(SETTINGS)
    for declared in DECLARED.values():
        inside = declared.settings if isinstance(declared, Array) else {}
        assert all(each.meaning.endswith(".") for each in (declared, *inside.values()))
        assert all(each.inherits in (None, *SETTINGS) for each in inside.values())
    for table in {key.rpartition(".")[0] for key in DECLARED}:
        here = [each for key, each in DECLARED.items() if key.rpartition(".")[0] == table]
        # In a file, nothing of a table can stand behind the tables in it.
        assert here == sorted(here, key=lambda each: not isinstance(each, Setting))


def test_a_file_sets_every_kind_of_value() -> None:
    loaded = load_text(
        """
        data = "/srv/log"
        loop = "asyncio"
        limits = { connections = 5, handshake_seconds = 0.5 }
        log.sync = "interval"
        log.sync_interval = 2
        log.segment_bytes = 70000
        log.retention_bytes = "10GB"
        log.retention_age = "7d"

        [listen]
        psmb = "off"
        bpsp = "[::1]:0"
        """
    )
    assert loaded.config == Config(
        data=Path("/srv/log"),
        loop="asyncio",
        listen=Listen({**Listen().protocols, "psmb": None, "bpsp": Address("::1", 0)}),
        log=Log("interval", 2.0, 70_000, 10**10, 7 * 86400.0),
        limits=Limits(connections=5, handshake_seconds=0.5),
    )
    assert str(loaded.origins["data"]) == "test.toml:2"
    assert str(loaded.origins["limits.connections"]) == "test.toml:4"
    assert str(loaded.origins["log.retention_age"]) == "test.toml:9"
    assert str(loaded.origins["listen.bpsp"]) == "test.toml:13"
    assert str(loaded.origins["listen.prism"]) == "default"
    assert loaded.written("listen.bpsp") == "[::1]:0"
    assert loaded.written("log.retention_bytes") == "10GB"


def test_flags_win_over_environment_over_file() -> None:
    text = '[log]\nsync = "os"\nsegment_bytes = "1MiB"\nretention_age = "1h"\n'
    environ = {"HEADWATER_LOG_SEGMENT_BYTES": "2MiB", "HEADWATER_LOG_RETENTION_AGE": "off"}
    loaded = load_text(text, environ, log__segment_bytes="3MiB", data="there")
    assert loaded.config.log == Log(sync="os", segment_bytes=3 << 20)
    origins = {key: str(o) for key, o in loaded.origins.items() if o.kind != "default"}
    assert origins == {
        "data": "--data",
        "log.sync": "test.toml:2",
        "log.segment_bytes": "--log-segment-bytes",
        "log.retention_age": "HEADWATER_LOG_RETENTION_AGE",
    }


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("HEADWATER_DATA", "d", "data", Path("d")),
        ("HEADWATER_LISTEN_PSMB", "localhost:1", "listen.psmb", Address("localhost", 1)),
        ("HEADWATER_LIMITS_CONNECTIONS", "7", "limits.connections", 7),
        ("HEADWATER_LIMITS_HANDSHAKE_SECONDS", "2.5", "limits.handshake_seconds", 2.5),
        ("HEADWATER_LIMITS_GREETING_SECONDS", "off", "limits.greeting_seconds", None),
        ("HEADWATER_LIMITS_TOPIC_BYTES", "99", "limits.topic_bytes", 99),
        ("HEADWATER_LOG_SYNC_INTERVAL", "5", "log.sync_interval", 5.0),
        ("HEADWATER_CONSOLE_NAMES", "a.org, b.org", "console.names", ("a.org", "b.org")),
        ("HEADWATER_LISTEN_ANY", "tls://[::1]:0", "listen.any", Address("::1", 0, True)),
        ("HEADWATER_PRISM_NUMERIC_TAGS", "True", "prism.numeric_tags", True),
        ("HEADWATER_CRYSTAL_SECRET_KEY", "hunter2", "crystal.secret_key", "hunter2"),
        ("HEADWATER_CRYSTAL_SECRET_KEY", "off", "crystal.secret_key", None),
        ("HEADWATER_LOG_SYNC", "", "log.sync", "always"),  # empty is not set
    ],
)
def test_environment(variable: str, text: str, key: str, value: object) -> None:
    environ = {"HEADWATER_TLS_CERTIFICATE": "c", "HEADWATER_TLS_KEY": "k", variable: text}
    assert load(environ=environ).value(key) == value


# Which file


def test_a_file_in_the_working_directory_is_taken() -> None:
    Path("headwater.toml").write_text("loop = 'asyncio'")
    loaded = load(environ={})
    assert loaded.config.loop == "asyncio"
    assert loaded.file == Path("headwater.toml")


def test_the_environment_names_the_file_unless_the_caller_does() -> None:
    Path("headwater.toml").write_text("loop = 'auto'")
    Path("one.toml").write_text("loop = 'asyncio'")
    Path("two.toml").write_text("loop = 'uvloop'")
    environ = {"HEADWATER_CONFIG": "one.toml"}
    assert load(environ=environ).config.loop == "asyncio"
    assert load(Path("two.toml"), environ=environ).config.loop == "uvloop"


def test_a_file_that_cannot_be_read() -> None:
    with pytest.raises(ConfigError, match=r"^cannot read the configuration no\.toml: No such"):
        load(Path("no.toml"), environ={})
    with pytest.raises(ConfigError, match=r"^HEADWATER_CONFIG: there is no file no\.toml$"):
        load(environ={"HEADWATER_CONFIG": "no.toml"})
    Path("bad.toml").write_bytes(b"# \xc3\xa9\ndata = '\xff'\n")
    with pytest.raises(ConfigError, match=r"^bad\.toml:2: this is not UTF-8$"):
        load(Path("bad.toml"), environ={})


# Refusals


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        # Unknown names
        ('colour = "red"', 1, 'there is no key "colour"'),
        ("\n[log]\nsynk = 1", 3, 'there is no key "log.synk"; did you mean "log.sync"?'),
        ("\nlog.synk = 1", 2, 'there is no key "log.synk"; did you mean "log.sync"?'),
        ("sync = 'os'", 1, 'there is no key "sync"; did you mean "log.sync"?'),
        ("[psmb]\nsync = 'os'", 2, 'there is no key "psmb.sync"; did you mean "log.sync"?'),
        ("\n\n[logs]\nsync = 'os'", 3, 'there is no table "logs"; did you mean "log"?'),
        ("[log]\n[log.files]\nx = 1", 2, 'there is no table "log.files"'),
        ("[[listen]]\npsmb = 'off'", 1, "listen must be a table, not an array"),
        ("log = 3", 1, "log must be a table, not 3"),
        ("limits = {\tmesage_bytes = 3 }", 1, 'no key "limits.mesage_bytes"; did you mean'),
        # Text and choices
        ("data = 3", 1, "data must be a path, not 3"),
        ("data = ''", 1, 'data must be a path, not ""'),
        ('data = "a\\u0000b"', 1, "data must be a path, not"),
        ("[data]", 1, "data must be a path, not a table"),
        (
            "[log]\nsync = 'alwyas'",
            2,
            'log.sync must be "always", "interval" or "os", not "alwyas"; did you mean "always"?',
        ),
        ("[log]\nsync = true", 2, 'log.sync must be "always", "interval" or "os", not true'),
        ("loop = ['auto']", 1, 'loop must be "auto", "uvloop" or "asyncio", not an array'),
        # Sizes
        ("[log]\n\nsegment_bytes = 65535", 3, "must be a size from 64KiB to 1TiB, not 65535"),
        ("[log]\nsegment_bytes = '12 parsecs'", 2, 'to 1TiB, not "12 parsecs"'),
        ("[log]\nsegment_bytes = 1e6", 2, "to 1TiB, not 1000000.0"),
        ("[log]\nretention_bytes = 'of'", 2, 'not "of"; did you mean "off"?'),
        ("[log]\nretention_bytes = -1", 2, 'a size of at least 64KiB, or "off", not -1'),
        ("[limits]\nmessage_bytes = 0", 2, "from 1 to 1GiB, not 0"),
        ("[limits]\nmessage_bytes = '2GiB'", 2, 'from 1 to 1GiB, not "2GiB"'),
        ("[limits]\nmessage_bytes = '0.3'", 2, 'from 1 to 1GiB, not "0.3"'),
        ("[limits]\ntopic_bytes = 65536", 2, "from 1 to 65535, not 65536"),
        # Durations
        ("[log]\nsync_interval = '5 minutes'", 2, "must be a duration from 1ms to 1h, not"),
        ("[log]\nsync_interval = '5M'", 2, 'not "5M"'),
        ("[log]\nsync_interval = 0", 2, "from 1ms to 1h, not 0"),
        ("[log]\nretention_age = 2020-01-01", 2, 'to 36500d, or "off", not 2020-01-01'),
        # Numbers
        ("[limits]\nconnections = 0", 2, "a whole number from 1 to 10000000, not 0"),
        ("[limits]\nconnections = '5'", 2, 'a whole number from 1 to 10000000, not "5"'),
        ("[limits]\nconnections = true", 2, "a whole number from 1 to 10000000, not true"),
        ("[limits]\nconnections = 1.5", 2, "a whole number from 1 to 10000000, not 1.5"),
        ("[limits]\nhandshake_seconds = nan", 2, "a number from 0.1 to 3600, not nan"),
        ("[limits]\nhandshake_seconds = inf", 2, "a number from 0.1 to 3600, not inf"),
        (f"[limits]\nhandshake_seconds = 1{'0' * 400}", 2, "3600, not 10000"),
        ("[psmb]\nkeepalive_misses = 0", 2, "a whole number from 1 to 1000, not 0"),
        # Addresses
        ("[listen]\npsmb = 13880", 2, "listen.psmb must be an address with a port from 0 to 65535"),
        ("[listen]\npsmb = 'localhost'", 2, 'or "off", not "localhost"'),
        ("[listen]\npsmb = ':13880'", 2, 'not ":13880"'),
        ("[listen]\npsmb = 'localhost:65536'", 2, 'not "localhost:65536"'),
        ("[listen]\npsmb = '::1:13880'", 2, 'not "::1:13880"'),
        ("[listen]\npsmb = '[::1'", 2, 'not "[::1"'),
        ("[listen]\npsmb = '[localhost]:1'", 2, 'not "[localhost]:1"'),
        ("[listen]\npsmb = 'tcp://localhost:1'", 2, 'not "tcp://localhost:1"'),
        ("[listen]\npsmb = 'tls://tls://localhost:1'", 2, 'not "tls://tls://localhost:1"'),
        ("[console]\nsession_hours = 0", 2, "console.session_hours must be"),
        ("[console]\nnames = 'broker'", 2, "console.names must be a list of texts"),
        ("[console]\nnames = ['']", 2, "console.names must be a list of texts of 1 to 253"),
        # True and false
        ("[prism]\nnumeric_tags = 'true'", 2, 'must be true or false, not "true"'),
        ("[prism]\nnumeric_tags = 1", 2, "must be true or false, not 1"),
        # What is not TOML
        ("[log]\n\nsync = ", 3, "invalid value"),
        ("[log]\nsync = 'os'\nsync = 'os'\n", 3, "cannot overwrite a value"),
        ("\n\nlog = [1,\n2\n", 5, "unclosed array"),
        ("[log\nsync = 'os'", 1, "expected ']'"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(text: str, line: int, sentence: str) -> None:
    error = refusal(text)
    assert error.startswith(f"test.toml:{line}: "), error
    assert sentence in error
    # Windows' line ends change nothing.
    assert refusal(text.replace("\n", "\r\n")) == error


def test_a_value_is_found_behind_a_text_of_many_lines() -> None:
    text = 'data = """\n[log]\nsync = 3 # \\""" \n\n"""\n[log]\nsync = 3\n'
    assert refusal(text).startswith("test.toml:7: log.sync must be")


def test_a_bad_value_is_refused_even_where_a_flag_wins() -> None:
    assert refusal("loop = 'no'", loop="auto").startswith("test.toml:1: loop must be")


def test_nesting_without_end_is_refused() -> None:
    assert refusal("x = " + "[" * 100_000) == "test.toml: values are nested too deeply"


def test_a_long_value_is_not_repeated_whole() -> None:
    assert len(refusal(f"loop = '{'x' * 10_000}'")) < 200


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("HEADWATER_LOG_SYNC", "allways", 'not "allways"; did you mean "always"?'),
        ("HEADWATER_LISTEN_BPSP", "29010", 'or "off", not "29010"'),
        ("HEADWATER_LIMITS_CONNECTIONS", "many", "a whole number from 1 to 10000000, not"),
        ("HEADWATER_LIMITS_CONNECTIONS", "1.5", "a whole number from 1 to 10000000, not"),
        ("HEADWATER_PSMB_KEEPALIVE_SECONDS", "nan", "a number from 0.1 to 86400, not nan"),
        ("HEADWATER_PRISM_NUMERIC_TAGS", "yes", 'must be true or false, not "yes"'),
    ],
)
def test_a_bad_variable_is_refused_by_name(name: str, text: str, sentence: str) -> None:
    error = refusal("", {name: text})
    assert error.startswith(f"{name}: ")
    assert sentence in error


def test_a_bad_flag_is_refused_by_name() -> None:
    assert refusal("", log__segment_bytes="1").startswith(
        "--log-segment-bytes: log.segment_bytes must be a size from"
    )


# Warnings


def test_misspelt_variables_are_named() -> None:
    environ = {
        "HEADWATER_LOG_SYNK": "os",
        "HEADWATER_LOG_COLOURFUL_OUTPUT": "1",
        "HEADWATER_DEBUG": "1",
        "HEADWATER_PORT": "tcp://10.0.0.1:80",
        "HOME": "/",
    }
    assert load(environ=environ).warnings == (
        "HEADWATER_LOG_COLOURFUL_OUTPUT is ignored: no setting has it",
        'HEADWATER_LOG_SYNK is ignored: no setting has it; did you mean "HEADWATER_LOG_SYNC"?',
    )


def test_variables_of_entries_are_named() -> None:
    environ = {"HEADWATER_BMTP_CHANNELS": "1=a", "HEADWATER_PRISM_APPS": "shop"}
    assert load(environ=environ).warnings == (
        "HEADWATER_BMTP_CHANNELS is ignored: bmtp.channels can only be set in a file",
        "HEADWATER_PRISM_APPS is ignored: prism.apps can only be set in a file",
    )


# TLS


def test_a_listener_with_tls() -> None:
    loaded = load_text(
        "listen = { any = 'tls://0.0.0.0:8443' }\ntls = { certificate = 'c', key = 'k' }"
    )
    assert loaded.config.listen.any == Address("0.0.0.0", 8443, secure=True)
    assert loaded.config.tls == Tls(Path("c"), Path("k"))
    assert loaded.written("listen.any") == "tls://0.0.0.0:8443"


@pytest.mark.parametrize(
    ("tls", "missing"),
    [
        ("", "tls.certificate and tls.key"),
        ("\n[tls]\nkey = 'k'", "tls.certificate"),
        ("\n[tls]\ncertificate = 'c'\nkey = 'off'", "tls.key"),
    ],
)
def test_tls_needs_a_certificate(tls: str, missing: str) -> None:
    assert refusal(f"[listen]\npsmb = '[::1]:1'\nprism = 'tls://[::1]:2'{tls}") == (
        'test.toml:3: listen.prism begins with "tls://", which needs a certificate and its key: '
        f"set {missing}"
    )
    assert refusal("", {"HEADWATER_LISTEN_ANY": "tls://a:1"}).startswith(
        'HEADWATER_LISTEN_ANY: listen.any begins with "tls://"'
    )


def test_a_listener_has_its_own_certificate_and_key_or_those_of_all() -> None:
    own = "[listener.any]\ncertificate = 'c'\nkey = 'k'\n[tls]\ncertificate = 'C'\nkey = 'K'"
    config = load_text(f"listen.any = 'tls://[::1]:1'\n{own}").config
    assert config.key_pair_of("any") == (Path("c"), Path("k"))
    assert config.key_pair_of("console") == (Path("C"), Path("K"))


def test_a_certificate_and_its_key_come_from_one_place() -> None:
    own = "[listener.any]\ncertificate = 'c'\n[tls]\ncertificate = 'C'\nkey = 'K'"
    assert refusal(f"listen.any = 'tls://[::1]:1'\n{own}").endswith("set listener.any.key")


@pytest.mark.parametrize("name", ["certificate", "key", "client_ca"])
def test_a_certificate_of_a_listener_without_tls_is_a_mistake(name: str) -> None:
    own = f"[listener.any]\n{name} = 'c'"
    assert refusal(f"listen.any = '[::1]:1'\n{own}") == (
        f'test.toml:3: listener.any.{name} has no effect unless listen.any begins with "tls://"'
    )
    load_text(own)  # it does not listen


# Units


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("17B", 17),
        ("512k", 512_000),
        ("512 kB", 512_000),
        ("512KiB", 512 << 10),
        ("64mib", 64 << 20),
        ("10GB", 10**10),
        ("1.5GiB", 3 << 29),
        ("2T", 2 * 10**12),
        (" 1TiB ", 1 << 40),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("5s", 5), ("30m", 1800), ("12h", 43200), ("7d", 604800), ("2.5", 2.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "k", "-1k", "1e3", "1_000", "1 2", "1kk", "٣k", "9" * 999])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError):
        units.parse_size(text)
    with pytest.raises(ValueError):
        units.parse_duration(text)


@pytest.mark.property
@given(st.integers(0, 1 << 60))
def test_sizes_are_written_as_they_are_read(size: int) -> None:
    assert units.parse_size(units.format_size(size)) == size
    assert units.parse_size(units.format_size(size << 20)) == size << 20


@pytest.mark.property
@given(st.floats(1e-12, 1e12))
def test_durations_are_written_as_they_are_read(seconds: float) -> None:
    for value in (seconds, float(int(seconds))):
        assert units.parse_duration(units.format_duration(value)) == value


@pytest.mark.property
@given(st.ip_addresses() | st.just("localhost"), st.integers(0, 65535))
def test_addresses_are_written_as_they_are_read(host: object, port: int) -> None:
    for secure in (False, True):
        address = Address(str(host), port, secure)
        assert Address.parse(str(address)) == address


# The finder of lines, against documents whose lines are known because we write them


TRICKY = st.lists(
    st.sampled_from(
        [*"aé \t#=.,[]{}'\"\\\n", "'''", '"""', "\n[log]\n", "\nsync = 1\n", "# no\n", "\\\n"]
    ),
    max_size=6,
).map("".join)
BARE = re.compile(r"[A-Za-z0-9_-]+")
NAMES = st.sampled_from(["a", "b", "log", "sync", "1", "-", "1.5", "true"]) | TRICKY


class Writer:
    """Writes a TOML document and notes on which line each path stands."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.text = ""
        self.lines: dict[KeyPath, int] = {}

    def document(self) -> None:
        self.pairs((), self.names())
        for number, name in enumerate(self.names()):
            # A number in front keeps tables apart from the keys above.
            path = (f"{number}", name)
            if self.draw(st.booleans()):
                self.table(path)
            else:
                for index in range(self.draw(st.integers(1, 3))):
                    self.element(path, index)

    def table(self, path: KeyPath) -> None:
        self.blank()
        self.note(path)
        self.text += f"[{self.key(path)}]"
        self.end_of_line()
        self.pairs(path, self.names())

    def element(self, path: KeyPath, index: int) -> None:
        self.blank()
        self.note((*path, index))
        self.text += f"[[{self.key(path)}]]"
        self.end_of_line()
        self.pairs((*path, index), self.names())
        if self.draw(st.booleans()):
            self.note((*path, index, "sub\n"))
            self.text += f"[ {self.key((*path, 'sub' + chr(10)))} ]"
            self.end_of_line()
            self.pairs((*path, index, "sub\n"), self.names())

    def pairs(self, table: KeyPath, names: list[str]) -> None:
        for name in names:
            self.blank()
            self.pair(table, f"_{name}", depth=0)
            self.end_of_line()

    def pair(self, table: KeyPath, name: str, depth: int) -> None:
        more = self.draw(st.lists(NAMES, max_size=2))
        self.note((*table, name, *more))
        self.text += self.key((name, *more))
        self.text += self.draw(st.sampled_from(["=", " = ", "\t=  "]))
        self.value((*table, name, *more), depth)

    def value(self, path: KeyPath, depth: int) -> None:
        kind = self.draw(st.sampled_from(["scalar", "text", "array", "table"]))
        if kind == "array" and depth < 2:
            self.array(path, depth)
        elif kind == "table" and depth < 2:
            self.inline_table(path, depth)
        elif kind == "scalar":
            scalars = ["1", "-1.5e3", "0xFF", "true", "inf", "1979-05-27 07:32:00Z", "07:32:00"]
            self.text += self.draw(st.sampled_from(scalars))
        else:
            self.text += self.draw(st.sampled_from(list(spellings(self.draw(TRICKY)))))

    def array(self, path: KeyPath, depth: int) -> None:
        self.text += "["
        for index in range(self.draw(st.integers(0, 3))):
            self.text += "," if index else ""
            self.text += self.draw(st.sampled_from(["", " ", "\n", "# ] '\n\n  "]))
            self.note((*path, index))
            self.value((*path, index), depth + 1)
        self.text += self.draw(st.sampled_from(["]", " ]", "\n]", '#"""\n]']))

    def inline_table(self, path: KeyPath, depth: int) -> None:
        self.text += "{ "
        for index, name in enumerate(self.names()):
            self.text += ", " if index else ""
            self.pair(path, name, depth + 1)
        self.text += "}"

    def names(self) -> list[str]:
        return self.draw(st.lists(NAMES, max_size=3, unique=True))

    def key(self, path: KeyPath) -> str:
        dot = self.draw(st.sampled_from([".", " . "]))
        return dot.join(self.key_part(str(part)) for part in path)

    def key_part(self, name: str) -> str:
        if BARE.fullmatch(name) and self.draw(st.booleans()):
            return name
        if "'" not in name and "\n" not in name and self.draw(st.booleans()):
            return f"'{name}'"
        return json.dumps(name)

    def note(self, path: KeyPath) -> None:
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], self.text.count("\n") + 1)

    def blank(self) -> None:
        self.text += self.draw(st.sampled_from(["", "\n", "  ", "# x = 1 '''\n", "\t\n\n"]))

    def end_of_line(self) -> None:
        self.text += self.draw(st.sampled_from(["\n", "  \n", ' # """ [no]\n', "#\n\n"]))


def spellings(content: str) -> Iterator[str]:
    """All ways to write a text."""
    yield json.dumps(content)
    if "'" not in content and "\n" not in content:
        yield f"'{content}'"
    if "'''" not in content:
        yield f"'''{content}'''"
    escaped = content.replace("\\", "\\\\").replace('"""', '""\\"')
    yield f'"""{escaped}"""'
    yield f'"""{escaped}\\\n  """'


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[KeyPath, int]]:
    writer = Writer(draw)
    writer.document()
    return writer.text, writer.lines


def paths(value: Any, at: KeyPath = ()) -> Iterator[KeyPath]:
    """All paths in what tomllib read."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for name, below in value.items():
            yield (*at, name)
            yield from paths(below, (*at, name))


@pytest.mark.property
@given(documents())
def test_every_key_is_found_on_its_line(document: tuple[str, dict[KeyPath, int]]) -> None:
    text, lines = document
    found = Lines(text).found
    assert found == lines
    assert found.keys() == set(paths(tomllib.loads(text)))
