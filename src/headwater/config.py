"""The configuration: what can be set, and how it is read from file, environment and flags.

Rules that hold here:

- A key is declared once, as a field of one of the dataclasses below. Validation, the documentation
  and `headwater config` are made from that declaration.
- Flags win over environment variables, these over the file, the file over the defaults. Each value
  remembers where it came from.
- Nothing unknown and nothing out of range is accepted silently: a ConfigError names the file and
  line, the variable or the flag.
- A `Config` is complete: it needs no look at the environment, no defaults later on.
"""

import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeVar, dataclass_transform

from headwater import units
from headwater.errors import ConfigError
from headwater.units import Address, Kind, Scalar

T = TypeVar("T")

DEFAULT_FILE = Path("headwater.toml")
FILE_VARIABLE = "HEADWATER_CONFIG"


def setting(kind: Kind[T], default: Scalar, meaning: str) -> T:
    """Declare a key: what it can be, its default as a file would have it, what it means."""
    return field(default=kind.read(default), metadata={"kind": kind, "meaning": meaning})


@dataclass_transform(frozen_default=True)
def table(cls: type[T]) -> type[T]:
    """Make a class a table of the configuration: a frozen dataclass whose fields are settings,
    or further tables."""
    return dataclass(frozen=True, slots=True)(cls)


def _listener(default: str, what: str) -> Address | None:
    return setting(units.or_off(units.address()), default, f"Where to listen for {what}.")


@table
class Listen:
    psmb: Address | None = _listener("0.0.0.0:13880", "PSMB clients")
    bmtp: Address | None = _listener("0.0.0.0:1039", "BMTP clients")
    prism: Address | None = _listener("0.0.0.0:8080", "Prism Notify clients")
    bpsp: Address | None = _listener("0.0.0.0:29010", "BPSP clients")
    crystal: Address | None = _listener("0.0.0.0:33927", "CrystalConnector clients")
    console: Address | None = _listener("127.0.0.1:8090", "browsers that open the console")
    flight: Address | None = _listener("127.0.0.1:8815", "Arrow Flight clients, such as Spark")


@table
class Log:
    sync: Literal["always", "interval", "os"] = setting(
        units.choice("always", "interval", "os"),
        "always",
        "When messages are forced to disk: before each acknowledgement, at an interval, "
        "or when the operating system likes.",
    )
    sync_interval: float = setting(
        units.duration("1ms", "1h"),
        "100ms",
        'The time between two syncs when `log.sync` is "interval".',
    )
    segment_bytes: int = setting(
        units.size("64KiB", "1TiB"), "64MiB", "The size at which the log begins a new segment file."
    )
    retention_bytes: int | None = setting(
        units.or_off(units.size("64KiB")),
        "off",
        "The size of the log above which its oldest segments are dropped.",
    )
    retention_age: float | None = setting(
        units.or_off(units.duration("1s", "36500d")),
        "off",
        "The age above which segments are dropped.",
    )


@table
class Limits:
    message_bytes: int = setting(
        units.size("1", "1GiB"), "16MiB", "The largest message that is accepted."
    )
    connections: int = setting(
        units.whole_number(1, 10_000_000),
        20_000,
        "How many clients may be connected at the same time.",
    )
    subscriptions: int = setting(
        units.whole_number(1, 10_000_000),
        100_000,
        "How many subscriptions one client may have.",
    )
    output_buffer_bytes: int = setting(
        units.size("4KiB", "1GiB"),
        "1MiB",
        "How much may wait in memory for a client that reads slowly; the rest stays in the log.",
    )
    handshake_seconds: float = setting(
        units.number(0.1, 3600), 10, "How long a new client may take to introduce itself."
    )
    topic_bytes: int = setting(
        units.size("1", "65535"), "1KiB", "The longest topic that is accepted."
    )


@table
class Psmb:
    keepalive_seconds: float = setting(
        units.number(0.1, 86400), 10, "How long a client may be silent before it is sent a NOP."
    )
    keepalive_misses: int = setting(
        units.whole_number(1, 1000), 3, "After how many unanswered NOPs a connection is closed."
    )


@table
class Config:
    data: Path = setting(units.path(), "data", "The directory of the log and its state.")
    loop: Literal["auto", "uvloop", "asyncio"] = setting(
        units.choice("auto", "uvloop", "asyncio"),
        "auto",
        'The event loop; "auto" takes uvloop where it is installed.',
    )
    listen: Listen = Listen()
    log: Log = Log()
    limits: Limits = Limits()
    psmb: Psmb = Psmb()


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one key."""

    key: str
    kind: Kind[Any]
    default: object
    meaning: str

    @property
    def variable(self) -> str:
        return f"HEADWATER_{self.key.upper().replace('.', '_')}"

    @property
    def flag(self) -> str:
        """What a command that has a flag for this key calls it."""
        return f"--{self.key.replace('.', '-').replace('_', '-')}"


def _declared(defaults: Any, prefix: str = "") -> Iterator[Setting]:
    for each in fields(defaults):
        if "kind" in each.metadata:
            key = f"{prefix}{each.name}"
            yield Setting(key, each.metadata["kind"], each.default, each.metadata["meaning"])
        else:
            yield from _declared(each.default, f"{prefix}{each.name}.")


#: Every key there is, in the order of declaration.
SETTINGS = {each.key: each for each in _declared(Config())}
TABLES = tuple(each.name for each in fields(Config) if "kind" not in each.metadata)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from."""

    kind: Literal["default", "file", "environment", "flag"]
    #: For a person: `headwater.toml:3`, `HEADWATER_LOG_SYNC`, `--data`.
    text: str

    def __str__(self) -> str:
        return self.text


_DEFAULT = Origin("default", "default")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and how it came about."""

    config: Config
    origins: Mapping[str, Origin]
    file: Path | None
    #: Sentences about things that were ignored.
    warnings: tuple[str, ...]

    def value(self, key: str) -> Any:
        return reduce(getattr, key.split("."), self.config)

    def written(self, key: str) -> Scalar:
        """The value as a file would have it."""
        return SETTINGS[key].kind.write(self.value(key))

    def unserved(self, served: Collection[str]) -> list[str]:
        """Listeners that were asked for but are not in `served`, by name.

        A default asks for nothing: it takes effect with the version that has the listener.
        """
        wanted = {each.name for each in fields(Listen) if getattr(self.config.listen, each.name)}
        asked = {name for name in wanted if self.origins[f"listen.{name}"] != _DEFAULT}
        return sorted(asked.difference(served))


def load(
    file: Path | None = None,
    flags: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Read the configuration. `flags` maps keys to what the command line gave for them."""
    environ = os.environ if environ is None else environ
    path = _find_file(file, environ)
    values: dict[str, object] = {}
    origins = dict.fromkeys(SETTINGS, _DEFAULT)
    given = chain(
        _from_file(path) if path else (), _from_environment(environ), _from_flags(flags or {})
    )
    for key, value, origin in given:  # later ones win
        values[key] = value
        origins[key] = origin
    warnings = tuple(_misspelt_variables(environ))
    return Loaded(_build(Config(), values), origins, path, warnings)


_Entry = tuple[str, object, Origin]


def _build(defaults: Any, values: Mapping[str, object], prefix: str = "") -> Any:
    """A table like `defaults`, with `values` in place of its own."""
    content = {}
    for each in fields(defaults):
        own, key = getattr(defaults, each.name), f"{prefix}{each.name}"
        is_setting = "kind" in each.metadata
        content[each.name] = values.get(key, own) if is_setting else _build(own, values, f"{key}.")
    return type(defaults)(**content)


def _find_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if file is not None:
        return file
    if named := environ.get(FILE_VARIABLE):
        if not Path(named).is_file():
            raise ConfigError(f"{FILE_VARIABLE}: there is no file {named}")
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Entry]:
    for each in SETTINGS.values():
        # Compose files and the like pass on variables that are not set as empty ones.
        if text := environ.get(each.variable):
            origin = Origin("environment", each.variable)
            yield each.key, _read(each, each.kind.from_text(text), origin), origin


def _from_flags(flags: Mapping[str, str]) -> Iterator[_Entry]:
    for each, text in ((SETTINGS[key], text) for key, text in flags.items()):
        origin = Origin("flag", each.flag)
        yield each.key, _read(each, each.kind.from_text(text), origin), origin


def _misspelt_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Others may use the prefix HEADWATER_ too, but hardly with the name of a table behind it."""
    known = {each.variable for each in SETTINGS.values()}
    tables = tuple(f"HEADWATER_{name.upper()}_" for name in TABLES)
    for name in sorted(environ):
        if name.startswith(tables) and name not in known:
            yield f"{name} is ignored: no setting has it{units.did_you_mean(name, known)}"


def _from_file(path: Path) -> Iterator[_Entry]:
    try:
        text = path.read_bytes().decode().replace("\r\n", "\n")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: this is not UTF-8") from None
    try:
        tables = tomllib.loads(text)
        lines = Lines(text).found
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_error(path, text, str(error))) from None
    except RecursionError:
        raise ConfigError(f"{path}: values are nested too deeply") from None
    yield from _from_table(Config(), tables, (), lambda at: Origin("file", f"{path}:{lines[at]}"))


def _syntax_error(path: Path, text: str, message: str) -> str:
    place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", message)
    line = place[1] if place and place[1] else text.count("\n") + 1
    what = message[: place.start()] if place else message
    return f"{path}:{line}: {what[:1].lower()}{what[1:]}"


def _from_table(defaults: Any, content: Any, at: "KeyPath", origin_of: Any) -> Iterator[_Entry]:
    declared = {each.name: each for each in fields(defaults)}
    for name, value in content.items():
        path = (*at, name)
        key, origin = ".".join(map(str, path)), origin_of(path)
        if name not in declared:
            what, names = ("table", TABLES) if isinstance(value, dict) else ("key", SETTINGS)
            raise ConfigError(f"{origin}: {_unknown(what, key, names)}")
        if "kind" in declared[name].metadata:
            yield key, _read(SETTINGS[key], value, origin), origin
        elif isinstance(value, dict):
            yield from _from_table(declared[name].default, value, path, origin_of)
        else:
            raise ConfigError(f"{origin}: {key} must be a table, not {units.show(value)}")


def _read(declared: Setting, value: object, origin: Origin) -> object:
    try:
        return declared.kind.read(value)
    except ValueError:
        wrong = f"{declared.key} must be {declared.kind.words}, not {units.show(value)}"
        hint = units.did_you_mean(str(value), declared.kind.choices)
        raise ConfigError(f"{origin}: {wrong}{hint}") from None


def _unknown(what: str, name: str, names: Iterable[str]) -> str:
    return f'there is no {what} "{name}"{units.did_you_mean(name, names)}'


#: Names of tables and keys; a number is the place in an array.
KeyPath = tuple[str | int, ...]


class Lines:
    """The line of every table and key in a TOML document, which tomllib does not tell.

    It reads only documents that tomllib has accepted, so it checks nothing.
    """

    _BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
    _BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
    _STRING = re.compile(
        # The content of a multi-line string may end in one or two quotes of its own.
        r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
        r"|'''.*?'''(?:'{0,2})"
        r'|"(?:\\.|[^"\\])*"'
        r"|'[^']*'",
        re.DOTALL,
    )
    _SCALAR = re.compile(r"[^,\]}\n#]*")

    def __init__(self, text: str) -> None:
        self.found: dict[KeyPath, int] = {}
        self._text = text
        self._at = 0
        self._array_lengths: dict[KeyPath, int] = {}
        self._document()

    def _document(self) -> None:
        table: KeyPath = ()
        while self._peek():
            if self._take("[["):
                table = self._array_header(self._key())
                self._take("]]")
            elif self._take("["):
                table = self._resolve(self._key())
                self._note(table)
                self._take("]")
            else:
                self._pair(table)

    def _array_header(self, key: KeyPath) -> KeyPath:
        array = (*self._resolve(key[:-1]), key[-1])
        index = self._array_lengths.get(array, 0)
        self._array_lengths[array] = index + 1
        self._note((*array, index))
        return (*array, index)

    def _resolve(self, key: KeyPath) -> KeyPath:
        """The path of a table: a name that stands for an array means its last element."""
        path: KeyPath = ()
        for part in key:
            path = (*path, part)
            if path in self._array_lengths:
                path = (*path, self._array_lengths[path] - 1)
        return path

    def _pair(self, table: KeyPath) -> None:
        path = (*table, *self._key())
        self._note(path)
        self._take("=")
        self._value(path)

    def _key(self) -> KeyPath:
        parts: list[str] = []
        while True:
            if self._peek() in "\"'":
                quoted = self._match(self._STRING)
                parts.append(tomllib.loads(f"key = {quoted}")["key"])
            else:
                parts.append(self._match(self._BARE_KEY))
            if not self._take("."):
                return tuple(parts)

    def _value(self, path: KeyPath) -> None:
        if self._take("["):
            index = 0
            while not self._take("]"):
                self._note((*path, index))
                self._value((*path, index))
                self._take(",")
                index += 1
        elif self._take("{"):
            while not self._take("}"):
                self._pair(path)
                self._take(",")
        else:
            self._match(self._STRING if self._peek() in "\"'" else self._SCALAR)

    def _note(self, path: KeyPath) -> None:
        """The first mention of a path counts, and mentions the tables that it is in."""
        line = self._text.count("\n", 0, self._at) + 1
        for length in range(1, len(path) + 1):
            self.found.setdefault(path[:length], line)

    def _peek(self) -> str:
        self._match(self._BLANK)
        return self._text[self._at : self._at + 1]

    def _take(self, token: str) -> bool:
        self._match(self._BLANK)
        taken = self._text.startswith(token, self._at)
        self._at += len(token) * taken
        return taken

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None, f"tomllib accepts what is not TOML at character {self._at}"
        self._at = match.end()
        return match[0]
