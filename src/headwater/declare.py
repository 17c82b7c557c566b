"""How a key is declared: as a field of a table.

    setting     one value:       sync = "always"
    array       many tables:     [[shop.apps]]
    pairs       many values:     [shop.channels], with names that are values too: 42 = "sensors/a"
    spread      further names:   those of the protocols, which only the registry knows

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


def spread(members: Mapping[str, Any]) -> Mapping[str, Any]:
    """Declare names that stand in the table itself, beside its other fields, and are known only
    when the program runs. Each is declared by a function above, or is a further table."""
    defaults = MappingProxyType(
        {
            name: member.default if isinstance(member, Field) else member
            for name, member in members.items()
        }
    )
    return field(default_factory=lambda: defaults, metadata={"spread": members})


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
        """What a table of the array, or a key in it, is called: `shop.apps[0].client_id`."""
        return f"{self.key}[{index}]{'.' if name else ''}{name}"


@dataclass(frozen=True, slots=True)
class Pairs:
    """The declaration of a table whose names are values."""

    key: str
    name: Kind[Any]
    value: Kind[Any]
    meaning: str

    def entry(self, name: object) -> str:
        """What a pair is called: `shop.channels.42`."""
        return f"{self.key}.{name}"


def declarations(defaults: Any, prefix: str = "") -> Iterator[Setting | Array | Pairs]:
    """All that is declared in a table and those in it, in this order."""
    for name, member in members(defaults).items():
        key = f"{prefix}{name}"
        if isinstance(member, Field):
            yield _declaration(member, key)
        else:
            yield from declarations(member, f"{key}.")


def members(defaults: Any) -> dict[str, Any]:
    """All names in a table: each is a declared field, or the defaults of a further table."""
    found: dict[str, Any] = {}
    for each in fields(defaults):
        if "spread" in each.metadata:
            found |= each.metadata["spread"]
        else:
            found[each.name] = each if each.metadata else each.default
    return found


def rebuilt(defaults: Any, values: Mapping[str, Any]) -> Any:
    """A table like `defaults`, with a value for each of its names."""
    content = {
        each.name: MappingProxyType({name: values[name] for name in each.metadata["spread"]})
        if "spread" in each.metadata
        else values[each.name]
        for each in fields(defaults)
    }
    return type(defaults)(**content)


def value_of(table: Any, name: str) -> Any:
    """What a name in a table stands for."""
    for each in fields(table):
        if name in each.metadata.get("spread", ()):
            return getattr(table, each.name)[name]
    return getattr(table, name)


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
