"""Values as people write them: sizes, durations, addresses, and the other kinds a setting can have.

    size       64MiB, 10GB, 512k, 4096      with an `i` powers of 1024, without powers of 1000
    duration   100ms, 5s, 30m, 12h, 7d, 2.5 a number alone means seconds
    address    0.0.0.0:13880, [::1]:0       port 0 lets the system pick one
               tls://0.0.0.0:8443           encrypted, where that is possible

What cannot be read is a ValueError. It carries no sentence: a `Kind` says in words what it wants,
so whoever reports the error can say what was expected and what was found. Of a secret, it says only
what was expected.
"""

import difflib
import ipaddress
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Text = TypeVar("Text", bound=str)

#: What a file can hold for one setting.
Scalar = str | int | float
#: The same, where a setting may be a list of texts.
Written = Scalar | list[str]

OFF = "off"
AUTO = "auto"
#: What is shown in place of a secret.
MASK = "***"

_QUANTITY = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) ?([A-Za-z]*)")
_ADDRESS = re.compile(r"(tls://)?(?:\[([^\[\]]+)\]|([^:/\[\]\s]+)):([0-9]{1,5})")
_CLIENT_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")

#: What stands in place of a secret in published examples; to everybody's knowledge, so no secret.
_PUBLISHED = re.compile(r"56dygmyhrfuhuwrdst3c|change[-_ ]?me.*", re.IGNORECASE | re.DOTALL)
_LEAST_SECRET = 16

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
    #: Whether the connection is inside TLS.
    secure: bool = False

    @classmethod
    def parse(cls, value: object) -> "Address":
        match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
        if match is None or int(match[4]) > 65535:
            raise ValueError(value)
        if match[2]:
            ipaddress.IPv6Address(match[2])  # an AddressValueError is a ValueError
        return cls(match[2] or match[3], int(match[4]), match[1] is not None)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls://' if self.secure else ''}{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """What values a setting can have: how to read, check and write them."""

    #: Completes the sentence "it must be …".
    words: str
    #: From what a file holds; raises ValueError.
    read: Callable[[object], T]
    #: Back to what a file holds; a secret is masked.
    write: Callable[[T], Written]
    #: From the text of a variable or flag to what a file would hold.
    from_text: Callable[[str], object] = str
    #: The texts that a person may have meant, for "did you mean".
    choices: tuple[str, ...] = ()
    #: Never shown, in error messages neither.
    secret: bool = False
    #: What to do about a value that is wrong.
    advice: str = ""
    #: What each item of a list is; None: it is no list.
    item: "Kind[Any] | None" = None


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


def boolean() -> Kind[bool]:
    def read(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(value)
        return value

    texts = {"true": True, "false": False}
    return Kind("true or false", read, bool, lambda text: texts.get(text.strip().lower(), text))


def address() -> Kind[Address]:
    def read(value: object) -> Address:
        address = Address.parse(value)
        if address.secure:
            raise ValueError(value)
        return address

    words = 'an address with a port from 0 to 65535, such as "0.0.0.0:8000" or "[::1]:8000"'
    return Kind(words, read, str)


def address_or_tls() -> Kind[Address]:
    examples = '"0.0.0.0:8000", "[::1]:8000" or "tls://0.0.0.0:8443"'
    words = f"an address with a port from 0 to 65535, such as {examples}"
    return Kind(words, Address.parse, str)


def path() -> Kind[Path]:
    def read(value: object) -> Path:
        if not isinstance(value, str) or not value or "\0" in value:
            raise ValueError(value)
        return Path(value)

    return Kind("a path", read, str)


def text(least: int, most: int) -> Kind[str]:
    """A text of so many bytes in UTF-8."""
    words = f"a text of {least} to {most} bytes" if least else f"a text of at most {most} bytes"
    return Kind(words, lambda value: _text(value, least, most), str)


def texts(item: Kind[str]) -> Kind[tuple[str, ...]]:
    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(value)
        return tuple(item.read(each) for each in value)

    plural = item.words.replace("a text", "texts", 1)
    return Kind(f"a list of {plural}", read, list, from_text=_split, item=item)


def topic() -> Kind[str]:
    return replace(text(1, 65535), words="a topic")


def client_id() -> Kind[str]:
    return Kind("1 to 64 letters, digits, `_`, `.` and `-`", _client_id, str)


def is_client_id(text: str) -> bool:
    return _CLIENT_ID.fullmatch(text) is not None


def whole_text(low: int, high: int) -> Kind[int]:
    """A whole number as the name of a key: only the shortest way to write it, so no two are one."""

    def read(value: object) -> int:
        if not isinstance(value, str) or not _WHOLE.fullmatch(value):
            raise ValueError(value)
        return within(int(value))

    within = _within(_whole, low, high)
    return Kind(f"a whole number {_range(str(low), str(high))}", read, str)


def secret() -> Kind[str]:
    """A text that is never shown."""

    def read(value: object) -> str:
        if value == MASK:
            raise ValueError
        return _text(value, 1, 1024)

    advice = f'"{MASK}" only stands for a secret'
    return Kind("a text of 1 to 1024 bytes", read, _masked, secret=True, advice=advice)


def app_secret() -> Kind[str]:
    """A secret that nobody guesses, because nobody made it up."""

    def read(value: object) -> str:
        text = _text(value, 1, 1024)
        if len(text) < _LEAST_SECRET or _PUBLISHED.fullmatch(text):
            raise ValueError
        return text

    words = f"a secret of at least {_LEAST_SECRET} characters that is in no published example"
    advice = "take this app out of the file, and make it with `headwater app add NAME`"
    return Kind(words, read, _masked, secret=True, advice=advice)


def or_off(kind: Kind[T]) -> Kind[T | None]:
    """The same kind, with "off" for none."""
    return _or(kind, OFF)


def or_auto(kind: Kind[T]) -> Kind[T | None]:
    """The same kind, with "auto" for what follows from other things."""
    return _or(kind, AUTO)


def _or(kind: Kind[T], word: str) -> Kind[T | None]:
    def read(value: object) -> T | None:
        return None if value == word else kind.read(value)

    def write(value: T | None) -> Written:
        return word if value is None else kind.write(value)

    words, choices = f'{kind.words}, or "{word}"', (*kind.choices, word)
    return Kind(words, read, write, kind.from_text, choices, kind.secret, kind.advice)


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


def _text(value: object, least: int, most: int) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(value)
    if not least <= len(value.encode()) <= most:  # a UnicodeEncodeError is a ValueError
        raise ValueError(value)
    return value


def _client_id(value: object) -> str:
    if not isinstance(value, str) or not is_client_id(value):
        raise ValueError(value)
    return value


def _split(text: str) -> object:
    """A variable has a list as texts with commas between them."""
    return [each.strip() for each in text.split(",")] if text.strip() else []


def _masked(_: str) -> str:
    return MASK


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
