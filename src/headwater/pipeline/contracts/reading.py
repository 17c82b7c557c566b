"""Contracts from YAML, strictly. An error names the file, the line, and what to write instead."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NoReturn

import yaml

from headwater.errors import ConfigError, HeadwaterError
from headwater.filters import RegexFilter
from headwater.pipeline.contracts import kinds, patterns
from headwater.pipeline.contracts.kinds import FieldKind
from headwater.pipeline.contracts.model import (
    CONTRACT,
    FIELD,
    MOST_BYTES,
    OWN_COLUMNS,
    Contract,
    ContractTopics,
    Field,
    Unknown,
)
from headwater.pipeline.contracts.values import date_of, time_of
from headwater.units import did_you_mean, parse_duration, parse_size

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.IGNORECASE)
_FIELD_NAME = re.compile(r"[^'\"`\\\[\]\x00-\x1f]{1,128}")
_ORDERED = ("long", "double", "decimal", "timestamp", "date")
_KEY_KINDS = ("string", "long", "boolean", "timestamp", "date", "decimal")


def load(directory: Path | str) -> tuple[Contract, ...]:
    """All contracts of a directory, by name. None if there is no such directory."""
    place = Path(directory)
    files = sorted(each for each in place.glob("*") if each.suffix in (".yml", ".yaml"))
    contracts = sorted(map(read, files), key=lambda each: each.name)
    for number, one in enumerate(contracts):
        for other in contracts[number + 1 :]:
            _tell_apart(one, other)
    return tuple(contracts)


def _tell_apart(one: Contract, other: Contract) -> None:
    if one.name.lower() == other.name.lower():
        raise ConfigError(
            f"{other.file.name}: the name {other.name} is taken by {one.file.name}; "
            "give this contract another name"
        )
    if both := one.topics.shared_with(other.topics):
        raise ConfigError(
            f"{other.file.name}: the topic {both} is claimed by {one.file.name} already; "
            "take it out of one of them"
        )


def read(file: Path) -> Contract:
    try:
        return parse(file.read_text("utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: {error}") from None


def parse(text: str, file: Path) -> Contract:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file.name}, line {line}: this is not YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file.name}: this is not YAML: {error}") from None
    if root is None:
        raise ConfigError(f"{file.name} is empty: a contract needs topics and fields")
    return replace(_contract(_Yaml(file, "", root), file), text=text)


class _Yaml:
    """A node of the file, with its name for error messages."""

    def __init__(self, file: Path, name: str, node: Any) -> None:
        self.file, self.name, self.node = file, name, node

    def fail(self, sentence: str) -> NoReturn:
        where = f"{self.name}: " if self.name else ""
        line = self.node.start_mark.line + 1
        raise ConfigError(f"{self.file.name}, line {line}: {where}{sentence}")

    @property
    def value(self) -> Any:
        """As YAML means it."""
        return _construct(self.node)

    def parts(self, known: Sequence[str] = ()) -> dict[str, "_Yaml"]:
        if not isinstance(self.node, yaml.MappingNode):
            self.fail("write keys with values here")
        found: dict[str, _Yaml] = {}
        for key, value in self.node.value:
            name = str(key.value)
            part = _Yaml(self.file, f"{self.name}.{name}" if self.name else name, value)
            if known and name not in known:
                hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
                _Yaml(self.file, part.name, key).fail(f"there is no such key{hint}")
            if name in found:
                _Yaml(self.file, part.name, key).fail("this key is there twice; keep one of them")
            found[name] = part
        return found

    def text(self, words: str = "a text") -> str:
        if not isinstance(self.node, yaml.ScalarNode) or not self.node.value:
            self.fail(f"write {words}")
        return str(self.node.value)

    def items(self, words: str) -> list["_Yaml"]:
        if not isinstance(self.node, yaml.SequenceNode) or not self.node.value:
            self.fail(f"write {words}")
        return [_Yaml(self.file, self.name, each) for each in self.node.value]

    def whole(self, low: int, high: int) -> int:
        value = self.value
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fail(f"write a whole number from {low} to {high}")
        return value

    def flag(self) -> bool:
        value = self.value
        if not isinstance(value, bool):
            self.fail("write true or false")
        return value

    def choice(self, *words: str) -> str:
        value = self.text(", ".join(words))
        if value not in words:
            self.fail(f"write one of {', '.join(words)}, not {value}")
        return value

    def read(self, parse: Callable[[Any], Any], words: str, low: float, high: float) -> Any:
        try:
            value = parse(self.value)
        except (ValueError, TypeError):
            self.fail(f"write {words}")
        if not low <= value <= high:
            self.fail(f"write {words}")
        return value

    def duration(self) -> float:
        return float(
            self.read(parse_duration, "a duration from 0s to 3650d, such as 10m", 0, 3.2e8)
        )


def _construct(node: Any) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_construct(each) for each in node.value]
    loader: Any = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except (yaml.YAMLError, ValueError):
        return None
    finally:
        loader.dispose()


def _contract(root: _Yaml, file: Path) -> Contract:
    parts = root.parts([each.name for each in CONTRACT])
    for name in ("topics", "fields"):
        if name not in parts:
            root.fail(f"the key {name} is missing; a contract needs topics and fields")
    fields = _fields(parts["fields"])
    by_name = {each.name: each for each in fields}
    given: dict[str, Any] = {}
    if "format" in parts:
        parts["format"].choice("json")
    if "version" in parts:
        given["version"] = parts["version"].whole(1, 10**9)
    for name in ("lateness", "future", "dedupe_window"):
        if name in parts:
            given[name] = parts[name].duration()
    if "unknown" in parts:
        given["unknown"] = Unknown(parts["unknown"].choice(*[each.value for each in Unknown]))
    if "max_bytes" in parts:
        words = "a size from 1 byte to 16MiB, such as 64KiB"
        given["max_bytes"] = parts["max_bytes"].read(parse_size, words, 1, MOST_BYTES)
    if "doc" in parts:
        given["doc"] = parts["doc"].text()
    if "key" in parts:
        given["key"] = _key(parts["key"], by_name)
    if "event_time" in parts:
        given["event_time"] = _event_time(parts["event_time"], by_name)
    return Contract(
        name=_contract_name(parts.get("name"), root, file),
        topics=_topics(parts["topics"]),
        fields=fields,
        file=file,
        **given,
    )


def _contract_name(part: _Yaml | None, root: _Yaml, file: Path) -> str:
    name = file.stem if part is None else part.text()
    if not _NAME.fullmatch(name):
        (part or root).fail(f"the name is {name}; write name: with letters, digits and _")
    return name


def _topics(part: _Yaml) -> ContractTopics:
    words = "a pattern such as sensors/.* or a list of topics"
    if isinstance(part.node, yaml.SequenceNode):
        return ContractTopics(names=tuple(each.text("a topic") for each in part.items(words)))
    pattern = part.text(words)
    try:
        RegexFilter.parse(pattern)
    except HeadwaterError as error:
        part.fail(f"{error}; write {words}")
    return ContractTopics(pattern=pattern)


def _key(part: _Yaml, fields: Mapping[str, Field]) -> tuple[str, ...]:
    found = []
    for each in part.items("a list of fields, such as [id]"):
        name = each.text("the name of a field")
        if name not in fields:
            each.fail(f"there is no field {name}{did_you_mean(name, fields)}")
        if fields[name].kind.name not in _KEY_KINDS:
            each.fail(f"{name} is {fields[name].kind}; a key is one of {', '.join(_KEY_KINDS)}")
        found.append(name)
    return tuple(found)


def _event_time(part: _Yaml, fields: Mapping[str, Field]) -> str:
    name = part.text("the name of a field")
    if name not in fields:
        part.fail(f"there is no field {name}{did_you_mean(name, fields)}")
    if fields[name].kind.name != "timestamp":
        part.fail(f"{name} is {fields[name].kind}; write type: timestamp there")
    return name


# Fields


def _fields(part: _Yaml, top: bool = True) -> tuple[Field, ...]:
    parts = part.parts()
    if not parts:
        part.fail("list at least one field")
    found: dict[str, Field] = {}
    for name, each in parts.items():
        made = _field(name, each)
        column = made.column.lower()
        if top and column in OWN_COLUMNS:
            each.fail(f"the table has a column {made.column} of its own; write column: my_{column}")
        if column in found:
            each.fail(f"the column {made.column} is taken by {found[column].name}; write column:")
        found[column] = made
    return tuple(found.values())


def _field(name: str, part: _Yaml) -> Field:
    if not _FIELD_NAME.fullmatch(name):
        part.fail(
            "a field's name has 1 to 128 characters, without quotes, brackets and backslashes"
        )
    if isinstance(part.node, yaml.ScalarNode):  # `id: long` for short
        return Field(name, _kind(part), column_of(name))
    parts = part.parts([each.name for each in FIELD])
    if "type" not in parts:
        part.fail(f"the key type is missing; write type: with {kinds.EXPECTED}")
    kind, given = _kind(parts["type"]), {}
    for key, read in _READ.items():
        if key in parts:
            given[_ATTRIBUTE.get(key, key)] = read(parts[key], kind)
    column = parts["column"].text() if "column" in parts else column_of(name)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", column):
        part.fail(f"the column would be called {column}; write column: with letters, digits and _")
    made = Field(name, kind, column, **given)
    _check_field(made, parts, part)
    return made


def column_of(name: str) -> str:
    """The name of a column that every tool accepts."""
    safe = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{safe}" if safe[0].isdigit() else safe


def _kind(part: _Yaml) -> FieldKind:
    written = part.text(kinds.EXPECTED)
    kind = kinds.parse(written)
    if kind is None:
        part.fail(f"there is no type {written}; write {kinds.EXPECTED}")
    return kind


def _check_field(made: Field, parts: Mapping[str, _Yaml], part: _Yaml) -> None:
    struct = made.kind.innermost.name == "struct"
    if struct != bool(made.fields):
        part.fail("a struct needs fields:, and nothing else has them")
    if made.unit and made.kind.innermost.name != "timestamp":
        parts["unit"].fail("only a timestamp has a unit; take it out")
    if made.minimum is not None and made.maximum is not None and made.minimum > made.maximum:
        parts["min"].fail("min is larger than max; exchange them")


def _bound(part: _Yaml, kind: FieldKind) -> Any:
    if kind.name not in _ORDERED:
        part.fail(f"a {kind} has no min and max; take it out")
    return _value(part, kind)


def _value(part: _Yaml, kind: FieldKind) -> Any:
    """A value of a type, as it is compared."""
    value = part.value
    whole = isinstance(value, int) and not isinstance(value, bool)
    made: Any = None
    if kind.name == "string":
        made = value if isinstance(value, str) else None
    elif kind.name == "long":
        made = value if whole and -(2**63) <= value < 2**63 else None
    elif kind.name == "double":
        number = _decimal(part.text())  # to YAML, 1e9 is a text
        made = None if number is None or isinstance(value, bool) else float(number)
    elif kind.name == "boolean":
        made = value if isinstance(value, bool) else None
    elif kind.name == "decimal":
        made = _decimal(part.text())
    elif kind.name == "date":
        made = value if type(value) is date else date_of(part.text())
    elif kind.name == "timestamp":
        made = time_of(part.text()) or (_at(value) if isinstance(value, datetime) else None)
    if made is None:
        part.fail(f"write {kind.words()}" + (", in quotes" if kind.name == "string" else ""))
    return made


def _at(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _decimal(text: str) -> Decimal | None:
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _choices(part: _Yaml, kind: FieldKind) -> tuple[Any, ...]:
    if kind.name in ("array", "struct"):
        part.fail(f"a {kind} has no one_of; take it out")
    return tuple(_value(each, kind) for each in part.items("a list of values"))


def _length(part: _Yaml, kind: FieldKind) -> int:
    if kind.name not in ("string", "array"):
        part.fail(f"a {kind} has no length; take it out")
    return part.whole(0, 2**31 - 1)


def _pattern(part: _Yaml, kind: FieldKind) -> str:
    if kind.name != "string":
        part.fail(f"a {kind} has no pattern; take it out")
    pattern = part.text("a regular expression")
    if wrong := patterns.problem(pattern):
        part.fail(f"this is not a regular expression of RE2: {wrong}")
    return pattern


def _unit(part: _Yaml, _: FieldKind) -> str:
    return part.choice("s", "ms", "us")


_READ: dict[str, Callable[[_Yaml, FieldKind], Any]] = {
    "required": lambda part, _: part.flag(),
    "min": _bound,
    "max": _bound,
    "pattern": _pattern,
    "one_of": _choices,
    "min_length": _length,
    "max_length": _length,
    "unit": _unit,
    "fields": lambda part, _: _fields(part, top=False),
    "doc": lambda part, _: part.text(),
}
_ATTRIBUTE = {"min": "minimum", "max": "maximum"}
