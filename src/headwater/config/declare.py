"""How a key is declared: as a field of a table.

    setting     one value:       sync = "always"
    array       many tables:     [[prism.apps]]
    pairs       many values:     [bmtp.channels], with names that are values too: 42 = "sensors/a"

An array's tables may also have fields that are `required`, and ones that are `inherited` from a
setting outside.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any, TypeVar, dataclass_transform

from headwater.units import Kind, Written

T = TypeVar("T")
Name = TypeVar("Name")


def setting(kind: Kind[T], default: Written, meaning: str) -> T:
    """Declare a key: what it can be, its default as a file would have it, what it means."""
    metadata = {"kind": kind, "meaning": meaning}
    return field(default=kind.read(default), repr=not kind.secret, metadata=metadata)


def required(kind: Kind[T], meaning: str) -> T:
    """Declare a key that every table of an array must have."""
    metadata = {"kind": kind, "meaning": meaning}
    declared: T = field(repr=not kind.secret, metadata=metadata)
    return declared


def inherited(kind: Kind[T], key: str, meaning: str) -> T:
    """Declare a key of an array's tables whose default is the value of another key."""
    metadata = {"kind": kind, "meaning": meaning, "inherits": key}
    declared: T = field(kw_only=True, metadata=metadata)
    return declared


def array(element: type[T], meaning: str) -> tuple[T, ...]:
    """Declare an array of tables."""
    return field(default=(), metadata={"element": element, "meaning": meaning})


def pairs(name: Kind[Name], value: Kind[T], meaning: str) -> Mapping[Name, T]:
    """Declare a table whose names are values, too."""
    metadata = {"name": name, "value": value, "meaning": meaning}
    return field(default_factory=lambda: MappingProxyType({}), metadata=metadata)


@dataclass_transform(frozen_default=True)
def table(cls: type[T]) -> type[T]:
    """Make a class a table of the configuration: a frozen dataclass whose fields are declared by
    the functions above, or are further tables."""
    return dataclass(frozen=True, slots=True)(cls)


def variable_of(key: str) -> str:
    return f"HEADWATER_{key.upper().replace('.', '_')}"


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one key."""

    key: str
    kind: Kind[Any]
    default: Any  # MISSING if it is required or inherited
    meaning: str
    inherits: str | None = None

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2]

    @property
    def is_required(self) -> bool:
        return self.default is MISSING and self.inherits is None

    @property
    def variable(self) -> str:
        return variable_of(self.key)

    @property
    def flag(self) -> str:
        """What a command that has a flag for this key calls it."""
        return f"--{self.key.replace('.', '-').replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Array:
    """The declaration of an array of tables."""

    key: str
    element: type[Any]
    meaning: str
    #: The keys of each table, by name.
    settings: Mapping[str, Setting]

    def entry(self, index: int, name: str = "") -> str:
        """What a table of the array, or a key in it, is called: `prism.apps[0].client_id`."""
        return f"{self.key}[{index}]{'.' if name else ''}{name}"


@dataclass(frozen=True, slots=True)
class Pairs:
    """The declaration of a table whose names are values."""

    key: str
    name: Kind[Any]
    value: Kind[Any]
    meaning: str

    def entry(self, name: object) -> str:
        """What a pair is called: `bmtp.channels.42`."""
        return f"{self.key}.{name}"


def declarations(defaults: Any, prefix: str = "") -> Iterator[Setting | Array | Pairs]:
    """All that is declared in a table and those in it, in this order."""
    for each in fields(defaults):
        key = f"{prefix}{each.name}"
        if each.metadata:
            yield _declaration(each, key)
        else:
            yield from declarations(each.default, f"{key}.")


def _declaration(declared: Field[Any], key: str) -> Setting | Array | Pairs:
    about = declared.metadata
    if "kind" in about:
        default, inherits = declared.default, about.get("inherits")
        return Setting(key, about["kind"], default, about["meaning"], inherits)
    if "element" in about:
        inner = [_declaration(each, f"{key}.{each.name}") for each in fields(about["element"])]
        settings = {each.name: each for each in inner if isinstance(each, Setting)}
        return Array(key, about["element"], about["meaning"], settings)
    return Pairs(key, about["name"], about["value"], about["meaning"])
