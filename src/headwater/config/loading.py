"""How the configuration is read: from the file, the environment, and the flags of a command."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from headwater import units
from headwater.config import checks
from headwater.config.lines import KeyPath, Lines
from headwater.config.tables import DECLARED, SETTINGS, TABLES, Config
from headwater.declare import Array, Pairs, Setting, members, rebuilt, value_of, variable_of
from headwater.errors import ConfigError
from headwater.registry import REGISTRY
from headwater.units import Kind, Written

DEFAULT_FILE = Path("headwater.toml")
FILE_VARIABLE = "HEADWATER_CONFIG"


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
class Shown:
    """A value as a file would have it, a secret masked, and where it came from."""

    value: Written
    origin: Origin


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and how it came about."""

    config: Config
    #: By key; those of entries by their names, such as `shop.apps[0].client_id`.
    origins: Mapping[str, Origin]
    file: Path | None
    #: Sentences about things that were ignored.
    warnings: tuple[str, ...]

    def value(self, key: str) -> Any:
        return reduce(value_of, key.split("."), self.config)

    def written(self, key: str) -> Written:
        """The value as a file would have it; a secret is masked."""
        return SETTINGS[key].kind.write(self.value(key))

    def elements(self, array: Array) -> list[dict[str, Shown]]:
        """The tables of an array."""

        def shown(index: int, element: Any, setting: Setting) -> Shown:
            value = setting.kind.write(getattr(element, setting.name))
            return Shown(value, self.origins[array.entry(index, setting.name)])

        return [
            {name: shown(index, element, each) for name, each in array.settings.items()}
            for index, element in enumerate(self.value(array.key))
        ]

    def pairs(self, pairs: Pairs) -> dict[str, Shown]:
        return {
            str(pairs.name.write(name)): Shown(
                pairs.value.write(value), self.origins[pairs.entry(name)]
            )
            for name, value in self.value(pairs.key).items()
        }


def load(
    file: Path | None = None,
    flags: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Loaded:
    """Read the configuration. `flags` maps keys to what the command line gave for them."""
    environ = os.environ if environ is None else environ
    path = _find_file(file, environ)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(SETTINGS, _DEFAULT)
    given = chain(
        _from_file(path) if path else (), _from_environment(environ), _from_flags(flags or {})
    )
    for key, value, origin in given:  # later ones win
        values[key] = value
        origins[key] = origin
    config = _build(Config(), values)
    for key, sentence in checks.complaints(config):
        raise ConfigError(f"{origins[key]}: {sentence}")
    origins |= _origins_left_out(values, origins)
    return Loaded(config, origins, path, tuple(_misspelt_variables(environ)))


_Entry = tuple[str, object, Origin]
_OriginOf = Callable[[KeyPath], Origin]


# Building


def _build(defaults: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    """A table like `defaults`, with `values` in place of its own."""
    content: dict[str, Any] = {}
    for name, member in members(defaults).items():
        key = f"{prefix}{name}"
        match DECLARED.get(key):
            case Setting() as setting:
                content[name] = values.get(key, setting.default)
            case Array() as array:
                content[name] = tuple(_build_array(array, values))
            case Pairs():
                content[name] = MappingProxyType(values.get(key, {}))
            case None:
                content[name] = _build(member, values, f"{key}.")
    return rebuilt(defaults, content)


def _build_array(array: Array, values: Mapping[str, Any]) -> Iterator[Any]:
    inherited = {
        each.name: values.get(each.inherits, SETTINGS[each.inherits].default)
        for each in array.settings.values()
        if each.inherits is not None
    }
    for given in values.get(array.key, ()):
        yield array.element(**inherited | given)


def _origins_left_out(
    values: Mapping[str, Any], origins: Mapping[str, Origin]
) -> dict[str, Origin]:
    """The origins of what entries did not say for themselves."""
    found = {}
    for array in (each for each in DECLARED.values() if isinstance(each, Array)):
        for index, given in enumerate(values.get(array.key, ())):
            for each in (each for each in array.settings.values() if each.name not in given):
                above = each.inherits
                origin = Origin(origins[above].kind, above) if above else _DEFAULT
                found[array.entry(index, each.name)] = origin
    return found


# The environment and flags


def _from_environment(environ: Mapping[str, str]) -> Iterator[_Entry]:
    for each in SETTINGS.values():
        # Compose files and the like pass on variables that are not set as empty ones.
        if text := environ.get(each.variable):
            origin = Origin("environment", each.variable)
            yield each.key, _read(each.key, each.kind, each.kind.from_text(text), origin), origin


def _from_flags(flags: Mapping[str, str]) -> Iterator[_Entry]:
    for each, text in ((SETTINGS[key], text) for key, text in flags.items()):
        origin = Origin("flag", each.flag)
        yield each.key, _read(each.key, each.kind, each.kind.from_text(text), origin), origin


#: What someone may take for the variables of what has many entries, by name.
_VARIABLES_OF_ENTRIES = {
    variable_of(key): key for key, each in DECLARED.items() if not isinstance(each, Setting)
}


def _misspelt_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Others may use the prefix HEADWATER_ too, but hardly with the name of a table behind it."""
    known = {each.variable for each in SETTINGS.values()}
    of_clients = {name for each in REGISTRY.values() for name in each.client_variables}
    tables = tuple(f"HEADWATER_{name.upper()}_" for name in TABLES)
    for name in sorted(environ):
        if name in _VARIABLES_OF_ENTRIES:
            yield f"{name} is ignored: {_VARIABLES_OF_ENTRIES[name]} can only be set in a file"
        elif name.startswith(tables) and name not in known | of_clients:
            yield f"{name} is ignored: no setting has it{units.did_you_mean(name, known)}"


# The file


def _find_file(file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if file is not None:
        return file
    if named := environ.get(FILE_VARIABLE):
        if not Path(named).is_file():
            raise ConfigError(f"{FILE_VARIABLE}: there is no file {named}")
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


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


def _from_table(defaults: Any, content: Any, at: KeyPath, origin_of: _OriginOf) -> Iterator[_Entry]:
    inside = members(defaults)
    for name, value in content.items():
        path = (*at, name)
        key, origin = ".".join(map(str, path)), origin_of(path)
        if name not in inside:
            raise ConfigError(f"{origin}: {_unknown(key, value)}")
        match DECLARED.get(key):
            case Setting() as setting:
                yield key, _read(key, setting.kind, value, origin), origin
            case Array() as array:
                yield from _from_array(array, value, path, origin_of)
            case Pairs() as pairs:
                yield from _from_pairs(pairs, _table(key, value, origin), path, origin_of)
            case None:
                below = _table(key, value, origin)
                yield from _from_table(inside[name], below, path, origin_of)


def _table(key: str, value: object, origin: Origin) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(f"{origin}: {key} must be a table, not {units.show(value)}")
    return value


def _from_array(
    array: Array, content: object, at: KeyPath, origin_of: _OriginOf
) -> Iterator[_Entry]:
    wanted = f"{array.key} must be an array of tables, each under [[{array.key}]], not"
    if not isinstance(content, list):
        raise ConfigError(f"{origin_of(at)}: {wanted} {units.show(content)}")
    elements = []
    for index, element in enumerate(content):
        path = (*at, index)
        if not isinstance(element, dict):
            raise ConfigError(f"{origin_of(path)}: {wanted} of {units.show(element)}")
        entries = list(_from_element(array, index, element, path, origin_of))
        yield from entries
        elements.append({key.rpartition(".")[2]: value for key, value, _ in entries})
        yield array.entry(index), None, origin_of(path)
    yield array.key, elements, origin_of(at)


def _from_element(
    array: Array, index: int, content: dict[str, Any], at: KeyPath, origin_of: _OriginOf
) -> Iterator[_Entry]:
    for name, value in content.items():
        key, path = f"{array.key}.{name}", (*at, name)
        if name not in array.settings:
            known = [each.key for each in array.settings.values()]
            hint = units.did_you_mean(key, known)
            raise ConfigError(f'{origin_of(path)}: there is no key "{key}"{hint}')
        kind = array.settings[name].kind
        if kind.item is not None and isinstance(value, list):
            for number, item in enumerate(value):
                _read(f"each of {key}", kind.item, item, origin_of((*path, number)))
        origin = origin_of(path)
        yield array.entry(index, name), _read(key, kind, value, origin), origin
    for each in array.settings.values():
        if each.is_required and each.name not in content:
            raise ConfigError(f"{origin_of(at)}: this table of {array.key} has no {each.name}")


def _from_pairs(
    pairs: Pairs, content: dict[str, object], at: KeyPath, origin_of: _OriginOf
) -> Iterator[_Entry]:
    found = {}
    for name, value in content.items():
        origin = origin_of((*at, name))
        key = _read(f"a name in {pairs.key}", pairs.name, name, origin)
        found[key] = _read(f"{pairs.key}.{name}", pairs.value, value, origin)
        yield pairs.entry(key), found[key], origin
    yield pairs.key, found, origin_of(at)


def _read(what: str, kind: Kind[Any], value: object, origin: Origin) -> object:
    try:
        return kind.read(value)
    except ValueError:
        wrong = f"{origin}: {what} must be {kind.words}"
        if not kind.secret:
            hint = units.did_you_mean(str(value), kind.choices)
            wrong += f", not {units.show(value)}{hint}"
        raise ConfigError(f"{wrong}{'; ' if kind.advice else ''}{kind.advice}") from None


def _unknown(name: str, value: object) -> str:
    is_array = isinstance(value, list) and any(isinstance(each, dict) for each in value)
    names: Iterable[str] = SETTINGS
    if isinstance(value, dict) or is_array:
        names = [*TABLES, *(key for key in DECLARED if key not in SETTINGS)]
    what = "key" if names is SETTINGS else "array" if is_array else "table"
    return f'there is no {what} "{name}"{units.did_you_mean(name, names)}'
