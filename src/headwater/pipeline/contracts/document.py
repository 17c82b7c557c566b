"""JSON as the contracts read it: strictly, and with bounds.

Numbers stay apart, as Spark's parser keeps them: `int` is written without point and exponent and
fits 64 bits, `Decimal` is written without exponent and has at most 38 digits, `float` is the rest.
"""

import json
import re
from decimal import Decimal
from typing import Any

from headwater.pipeline.contracts.model import MOST_DEPTH, MOST_NUMBER_LENGTH

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NO_BRACKET = re.compile(r"[^\[\]{}]+")
_ROUND = str.maketrans("[{]}", "(())")
_DIGITS = 38


class NotJson(ValueError):
    """The text is not JSON, or exceeds a bound."""


def parse(text: str) -> Any:
    if is_too_deep(text):
        raise NotJson
    try:
        found = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_whole,
            parse_float=_fraction,
            parse_constant=_refused,
        )
        if "\\u" in text:  # half a character is a UnicodeEncodeError, which is a ValueError
            json.dumps(found, ensure_ascii=False, default=str).encode()
        return found
    except (ValueError, RecursionError):
        raise NotJson from None


def is_too_deep(text: str) -> bool:
    """Whether more than MOST_DEPTH objects and arrays are in each other."""
    if text.count("[") + text.count("{") <= MOST_DEPTH:
        return False
    brackets = _NO_BRACKET.sub("", _STRING.sub("", text)).translate(_ROUND)
    for _ in range(MOST_DEPTH):
        brackets = brackets.replace("()", "")
    return bool(brackets)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise NotJson
    return made


def _whole(text: str) -> int | Decimal | float:
    _check_length(text)
    number = int(text)
    if -(2**63) <= number < 2**63:
        return number
    return Decimal(number) if len(text.lstrip("-")) <= _DIGITS else float(text)


def _fraction(text: str) -> Decimal | float:
    _check_length(text)
    if "e" in text or "E" in text:
        return float(text)
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    fits = len(digits) <= _DIGITS and isinstance(exponent, int) and -exponent <= _DIGITS
    return number if fits else float(text)


def _check_length(text: str) -> None:
    if len(text) > MOST_NUMBER_LENGTH:
        raise NotJson


def _refused(text: str) -> Any:
    raise NotJson(text)


def text(value: Any) -> str:
    """A parsed value as JSON again, its numbers as they were written."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, dict):
        pairs = (f"{text(name)}:{text(each)}" for name, each in value.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
