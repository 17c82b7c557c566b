"""The types that a field can have.

    string  long  double  boolean  timestamp  date  decimal(10,2)
    array<TYPE>      of any type, arrays and structs included
    struct           its fields are listed under `fields` of the same field

JSON has fewer types, so each says which JSON values it takes, strictly: a text "12" is no long.
"""

import re
from dataclasses import dataclass
from typing import Literal

SCALARS = ("string", "long", "double", "boolean", "timestamp", "date")
MOST_DIGITS = 38

#: The JSON value that each type takes, in words, for error messages and the documentation.
WORDS = {
    "string": "a text",
    "long": "a whole number of 64 bits, written without a point or an exponent",
    "double": "a number",
    "boolean": "true or false",
    "timestamp": "a time such as 2026-03-01T12:00:00Z (without a zone it is UTC)",
    "date": "a date such as 2026-03-01",
    "struct": "an object",
}
UNIT_WORDS = {
    "s": "a time as a number of seconds since 1970",
    "ms": "a time as a number of milliseconds since 1970",
    "us": "a time as a number of microseconds since 1970",
}
EXPECTED = "string, long, double, boolean, timestamp, date, decimal(10,2), array<TYPE> or struct"

Unit = Literal["s", "ms", "us"]

_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)")
_ARRAY = re.compile(r"array<(.*)>")


@dataclass(frozen=True, slots=True)
class FieldKind:
    """A type: `name` is one of SCALARS, or `decimal`, `array`, `struct`."""

    name: str
    precision: int = 0
    scale: int = 0
    item: "FieldKind | None" = None

    def __str__(self) -> str:
        if self.name == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return f"array<{self.item}>" if self.name == "array" else self.name

    @property
    def innermost(self) -> "FieldKind":
        return self if self.item is None else self.item.innermost

    def words(self, unit: Unit | None = None) -> str:
        if self.name == "decimal":
            whole, behind = self.precision - self.scale, self.scale
            return (
                f"a number, or a text with one, with at most {whole} digits before the point and "
                f"{behind} behind it"
            )
        if self.item is not None:
            return f"an array, in which each item is {self.item.words(unit)}"
        return UNIT_WORDS[unit] if unit and self.name == "timestamp" else WORDS[self.name]


def parse(text: str) -> FieldKind | None:
    """None if there is no such type."""
    text = text.strip()
    if text in SCALARS or text == "struct":
        return FieldKind(text)
    if found := _DECIMAL.fullmatch(text):
        precision, scale = int(found[1]), int(found[2])
        fits = 1 <= precision <= MOST_DIGITS and scale <= precision
        return FieldKind("decimal", precision, scale) if fits else None
    if found := _ARRAY.fullmatch(text):
        item = parse(found[1])
        return None if item is None else FieldKind("array", item=item)
    return None
