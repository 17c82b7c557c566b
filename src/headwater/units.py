"""Values as people write them: sizes, durations, addresses, and the other kinds a setting can have.

    size       64MiB, 10GB, 512k, 4096      with an `i` powers of 1024, without powers of 1000
    duration   100ms, 5s, 30m, 12h, 7d, 2.5 a number alone means seconds
    address    0.0.0.0:13880, [::1]:0       port 0 lets the system pick one

What cannot be read is a ValueError. It carries no sentence: a `Kind` says in words what it wants,
so whoever reports the error can say what was expected and what was found.
"""

import difflib
import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
Text = TypeVar("Text", bound=str)

#: What a file can hold for one setting.
Scalar = str | int | float

OFF = "off"

_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) ?([A-Za-z]*)")
_ADDRESS = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]\s]+)):([0-9]{1,5})")

_BINARY = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_DECIMAL = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES = {unit.upper(): factor for unit, factor in (_BINARY | _DECIMAL).items()}
_SIZES |= {unit.upper().removesuffix("B"): factor for unit, factor in _DECIMAL.items()}
_SIZES |= {"": 1, "B": 1}
_DURATIONS = {
    "d": Fraction(86400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
}


def parse_size(value: object) -> int:
    """Bytes, from a whole number or a text such as "64MiB"."""
    if isinstance(value, str):
        number, unit = _quantity(value)
        if unit.upper() not in _SIZES:
            raise ValueError(value)
        size = number * _SIZES[unit.upper()]
        if size.denominator != 1:
            raise ValueError(value)
        return size.numerator
    return _whole(value)


def format_size(size: int) -> str:
    """The shortest text that `parse_size` reads as exactly this size."""
    exact = [
        f"{size // factor}{unit}"
        for unit, factor in (_BINARY | _DECIMAL).items()
        if size and size % factor == 0
    ]
    return min([*exact, str(size)], key=len)


def parse_duration(value: object) -> float:
    """Seconds, from a number or a text such as "100ms"."""
    if isinstance(value, str):
        number, unit = _quantity(value)
        if unit and unit not in _DURATIONS:
            raise ValueError(value)
        return float(number * _DURATIONS.get(unit, 1))
    return _number(value)


def format_duration(seconds: float) -> str:
    """The shortest text that `parse_duration` reads as exactly this duration."""
    decimal = Decimal(repr(seconds))
    exact = [
        f"{Fraction(decimal) / factor}{unit}"
        for unit, factor in _DURATIONS.items()
        if seconds and (Fraction(decimal) / factor).denominator == 1
    ]
    return min(exact, key=len, default=f"{decimal:f}s")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, or what to connect to."""

    host: str
    port: int

    @classmethod
    def parse(cls, value: object) -> "Address":
        match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
        if match is None or int(match[3]) > 65535:
            raise ValueError(value)
        if match[1]:
            ipaddress.IPv6Address(match[1])  # an AddressValueError is a ValueError
        return cls(match[1] or match[2], int(match[3]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """What values a setting can have: how to read, check and write them."""

    #: Completes the sentence "it must be …".
    words: str
    #: From what a file holds; raises ValueError.
    read: Callable[[object], T]
    #: Back to what a file holds.
    write: Callable[[T], Scalar]
    #: From the text of a variable or flag to what a file would hold.
    from_text: Callable[[str], object] = str
    #: The texts that a person may have meant, for "did you mean".
    choices: tuple[str, ...] = ()


def choice(*options: Text) -> Kind[Text]:
    def read(value: object) -> Text:
        return options[options.index(value)]  # a ValueError if it is none of them

    quoted = [f'"{option}"' for option in options]
    words = f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    return Kind(words, read, lambda option: str(option), choices=options)


def size(low: str, high: str = "") -> Kind[int]:
    read = _within(parse_size, parse_size(low), parse_size(high) if high else math.inf)
    return Kind(f"a size {_range(low, high)}", read, format_size)


def duration(low: str, high: str) -> Kind[float]:
    read = _within(parse_duration, parse_duration(low), parse_duration(high))
    return Kind(f"a duration {_range(low, high)}", read, format_duration)


def number(low: float, high: float) -> Kind[float]:
    def write(value: float) -> Scalar:
        return int(value) if value.is_integer() else value

    words = f"a number {_range(str(low), str(high))}"
    return Kind(words, _within(_number, low, high), write, _number_or_text)


def whole_number(low: int, high: int) -> Kind[int]:
    words = f"a whole number {_range(str(low), str(high))}"
    return Kind(words, _within(_whole, low, high), int, _whole_or_text)


def address() -> Kind[Address]:
    words = 'an address with a port from 0 to 65535, such as "0.0.0.0:8000" or "[::1]:8000"'
    return Kind(words, Address.parse, str)


def path() -> Kind[Path]:
    def read(value: object) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(value)
        return Path(value)

    return Kind("a path", read, str)


def or_off(kind: Kind[T]) -> Kind[T | None]:
    """The same kind, with "off" for none."""

    def read(value: object) -> T | None:
        return None if value == OFF else kind.read(value)

    def write(value: T | None) -> Scalar:
        return OFF if value is None else kind.write(value)

    return Kind(f'{kind.words}, or "{OFF}"', read, write, kind.from_text, (*kind.choices, OFF))


def show(value: object) -> str:
    """What a file holds, for an error message: quoted as in the file, and not too long."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "an array"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The end of an error message that names a near miss, or the same name in another table."""
    names = list(names)
    near = [each for each in names if each.rpartition(".")[2] == name.rpartition(".")[2]]
    if len(near) != 1:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return f'; did you mean "{near[0]}"?' if near else ""


def _quantity(text: str) -> tuple[Fraction, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return Fraction(match[1]), match[2]


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):  # to Python, true is 1
        raise ValueError(value)
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not _is_finite(value):
        raise ValueError(value)
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number with hundreds of digits
        return False


def _whole_or_text(text: str) -> object:
    return int(text) if re.fullmatch(r" *[0-9]{1,18} *", text) else text


def _number_or_text(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


Amount = TypeVar("Amount", int, float)


def _within(
    read: Callable[[object], Amount], low: float, high: float
) -> Callable[[object], Amount]:
    def checked(value: object) -> Amount:
        amount = read(value)
        if not low <= amount <= high:
            raise ValueError(value)
        return amount

    return checked


def _range(low: str, high: str) -> str:
    return f"from {low} to {high}" if high else f"of at least {low}"
