"""JSON as the envelope needs it: strict, and with the place of every member in the text.

Objects and arrays travel as they were written, so it matters where they begin and end. What is not
JSON by RFC 8259 (NaN, say), or is nested deeper than the parser goes, is a ValueError.
"""

import json
import re
from typing import NamedTuple, NoReturn

# What stands between names and values, with the spaces around it.
_OPEN, _COLON, _NEXT = (
    re.compile(rf"[ \t\n\r]*+{sign}[ \t\n\r]*+") for sign in (r"\{", ":", "[,}]")
)


class Member(NamedTuple):
    value: object
    start: int
    end: int


def members(text: str) -> dict[str, Member]:
    """The members of the one object that a text is. Each may be there once."""
    found: dict[str, Member] = {}
    sign, position = "", _behind(_OPEN, text, 0)
    if text.startswith("}", position):
        sign, position = "}", _behind(_NEXT, text, position)
    while sign != "}":
        if not text.startswith('"', position):
            raise ValueError(f"there is no member at character {position}")
        name, end = value_at(text, position)
        start = _behind(_COLON, text, end)
        value, end = value_at(text, start)
        if name in found:
            raise ValueError(f"the member {name!r} is there twice")
        found[str(name)] = Member(value, start, end)
        position = _behind(_NEXT, text, end)
        sign = text[end:position].strip()
    if position < len(text):
        raise ValueError("something follows the object")
    return found


def value_at(text: str, position: int) -> tuple[object, int]:
    """The value that begins here, and where it ends."""
    try:
        return _DECODER.raw_decode(text, position)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_container(payload: bytes) -> bool:
    """Is it an object or array and nothing else, not even a space?"""
    if payload[:1] not in (b"{", b"["):
        return False
    try:
        text = payload.decode()
        _, end = value_at(text, 0)
    except ValueError:
        return False
    return end == len(text)


#: The JSON string that stands for a text.
quoted = json.JSONEncoder(ensure_ascii=False).encode


def _behind(sign: re.Pattern[str], text: str, position: int) -> int:
    found = sign.match(text, position)
    if found is None:
        raise ValueError(f"there is something else at character {position}")
    return found.end()


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Hardly any number is looked at, and as floats the longest ones take no longer than others.
_DECODER = json.JSONDecoder(parse_int=float, parse_constant=_refuse)
