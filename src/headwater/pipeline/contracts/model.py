"""A contract: its topics, its fields, and how records and fields outside it are treated.

`reading.py` makes these from YAML, with errors that name the line. `CONTRACT` and `FIELD` describe
every key; the documentation's tables are made from them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from headwater.filters import RegexFilter
from headwater.pipeline.contracts.kinds import FieldKind, Unit

#: Columns that every silver table has besides the fields.
OWN_COLUMNS = (
    "_offset",
    "_topic",
    "_timestamp",
    "_protocol",
    "_publisher",
    "_event_time",
    "_rest",
    "date",
)
MOST_BYTES = 16 * 1024 * 1024
#: Objects and arrays in each other. Parsers run out of stack somewhere far above.
MOST_DEPTH = 64
MOST_NUMBER_LENGTH = 1000


class Unknown(Enum):
    """How a field that the contract does not declare is treated."""

    EVOLVE = "evolve"
    FREEZE = "freeze"
    DISCARD_ROW = "discard_row"
    DISCARD_VALUE = "discard_value"


@dataclass(frozen=True, slots=True)
class Key:
    """A key that may be written in a contract."""

    name: str
    words: str
    default: str
    meaning: str


CONTRACT = (
    Key("name", "letters, digits and `_`", "the name of the file", "The table is `silver_<name>`."),
    Key("version", "a whole number", "`1`", "Raise it when the contract changes."),
    Key(
        "topics",
        "a PCRE pattern, or a list of topics",
        "",
        "The topics of the contract: those that the pattern matches as a whole. If two contracts "
        "claim a topic, the first one by name gets it.",
    ),
    Key("format", "`json`", "`json`", "The format of values."),
    Key("fields", "fields by name", "", "The fields of a record; see below."),
    Key(
        "key",
        "a list of fields",
        "",
        "The fields that identify a record. A second record with the same key within "
        "`dedupe_window` is left out. A record that lacks one of these fields has no key.",
    ),
    Key(
        "event_time",
        "a field of type timestamp",
        "",
        "The field that says when the event happened. Without it, or without a value, the time of "
        "arrival at the broker counts.",
    ),
    Key(
        "lateness",
        "a duration",
        "`10m`",
        "A record whose event time is more than this before its arrival goes to the table `late`.",
    ),
    Key(
        "future",
        "a duration",
        "`5m`",
        "An event time more than this after the arrival is a violation.",
    ),
    Key(
        "dedupe_window",
        "a duration",
        "`10m`",
        "How long keys are remembered, by arrival.",
    ),
    Key(
        "unknown",
        "`evolve`, `freeze`, `discard_row` or `discard_value`",
        "`evolve`",
        "A field that the contract does not declare becomes a new column (`evolve`); is a "
        "violation (`freeze`); puts the record into quarantine under the rule `discard_row`, "
        "without being an error (`discard_row`); is left out of the row (`discard_value`).",
    ),
    Key(
        "max_bytes",
        "a size",
        "`1MiB`",
        "A larger value is a violation, and is not parsed.",
    ),
    Key("doc", "a text", "", "The purpose of the contract."),
)

FIELD = (
    Key("type", "a type", "", "One of the types above."),
    Key(
        "required",
        "`true` or `false`",
        "`false`",
        "Whether the field must be present and not null.",
    ),
    Key("min", "a value of the type", "", "The smallest allowed value."),
    Key("max", "a value of the type", "", "The largest allowed value."),
    Key(
        "pattern",
        "a regular expression",
        "",
        "For strings: matches the whole text. Patterns are those of RE2, without `(?=…)` and "
        "`\\1`; they are never slow.",
    ),
    Key("one_of", "a list of values", "", "All allowed values."),
    Key("min_length", "a whole number", "", "The fewest characters, or items of an array."),
    Key("max_length", "a whole number", "", "The most characters, or items of an array."),
    Key("unit", "`s`, `ms` or `us`", "", "The timestamp is a number since 1970, of this unit."),
    Key("fields", "fields by name", "", "The fields of a struct, or of an array's structs."),
    Key("column", "a name", "the name of the field", "The name of the column."),
    Key("doc", "a text", "", "A description of the field."),
)

#: The rules that put a record into quarantine, in the order in which they are checked.
RULES = {
    "contract": "no contract claims its topic any more",
    "size": "the value is larger than `max_bytes`",
    "utf8": "the value is not UTF-8",
    "json": f"the value is not JSON, has a key twice, or is nested deeper than {MOST_DEPTH} levels",
    "object": "the value is JSON, but no object",
    "required": "a required field is missing or null",
    "type": "a value is of another type",
    "length": "a text or an array is too short or too long",
    "range": "a value is below `min` or above `max`",
    "pattern": "a text does not match `pattern`",
    "one_of": "a value is not in `one_of`",
    "unknown": "a field is not declared in the contract, and `unknown` is `freeze`",
    "discard_row": "a field is not declared in the contract, and `unknown` is `discard_row`",
    "future": "the event time is more than `future` after the arrival",
}


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: FieldKind
    column: str
    required: bool = False
    minimum: Any = None
    maximum: Any = None
    pattern: str | None = None
    one_of: tuple[Any, ...] | None = None
    min_length: int | None = None
    max_length: int | None = None
    unit: Unit | None = None
    fields: "tuple[Field, ...]" = ()
    doc: str = ""

    def range_words(self) -> str:
        low, high = _shown(self.minimum), _shown(self.maximum)
        if self.minimum is None:
            return f"at most {high}"
        return f"at least {low}" if self.maximum is None else f"from {low} to {high}"

    def length_words(self) -> str:
        what = "items" if self.kind.name == "array" else "characters"
        least, most = self.min_length, self.max_length
        if least is None:
            return f"at most {most} {what}"
        return f"at least {least} {what}" if most is None else f"{least} to {most} {what}"

    def choice_words(self) -> str:
        return "one of " + ", ".join(_shown(each) for each in self.one_of or ())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


@dataclass(frozen=True, slots=True)
class Contract:
    name: str
    topics: "ContractTopics"
    fields: tuple[Field, ...]
    version: int = 1
    key: tuple[str, ...] = ()
    event_time: str | None = None
    lateness: float = 600.0
    future: float = 300.0
    dedupe_window: float = 600.0
    unknown: Unknown = Unknown.EVOLVE
    max_bytes: int = 1024 * 1024
    doc: str = ""
    file: Path = field(default=Path(), compare=False)
    #: The YAML that says all this, for tasks on other machines.
    text: str = field(default="", compare=False, repr=False)

    @property
    def table(self) -> str:
        return f"silver_{self.name}"

    @property
    def names(self) -> frozenset[str]:
        """The fields that are declared."""
        return frozenset(each.name for each in self.fields)

    @property
    def columns(self) -> list[str]:
        return [each.column for each in self.fields]

    def field(self, name: str) -> Field:
        return next(each for each in self.fields if each.name == name)


@dataclass(frozen=True, slots=True)
class ContractTopics:
    """A pattern, or some topics."""

    pattern: str | None = None
    names: tuple[str, ...] = ()

    def matches(self, topic: str) -> bool:
        if self.pattern is None:
            return topic in self.names
        return RegexFilter.parse(self.pattern).matches(topic)

    @property
    def regex(self) -> str:
        """A PCRE pattern for the whole topic."""
        if self.pattern is not None:
            return f"(?:{self.pattern})"
        return "(?:" + "|".join(re.sub(r"([^\w/])", r"\\\1", each) for each in self.names) + ")"

    def shared_with(self, other: "ContractTopics") -> str | None:
        """A topic or pattern that both have, if it is easily seen."""
        if self.pattern is not None and self.pattern == other.pattern:
            return self.pattern
        both = [each for each in self.names if other.matches(each)]
        both += [each for each in other.names if self.matches(each)]
        return both[0] if both else None


def contract_of(contracts: Sequence[Contract], topic: str) -> Contract | None:
    """The contract for a topic: the first by name."""
    return next((each for each in contracts if each.topics.matches(topic)), None)
