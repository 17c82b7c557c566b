"""What a request brings has to be what its handler declares: JSON does not know the difference."""

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from headwater.errors import HeadwaterError

#: The log, SQLite and Arrow have whole numbers of 64 bits.
_LEAST, _MOST = -(2**63), 2**63 - 1
_WORDS = {
    str: "a text",
    int: "a whole number of 64 bits",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
    NoneType: "null",
}


def check(do: str, handler: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Raises HeadwaterError if the handler cannot be called with these."""
    try:
        inspect.signature(handler).bind(**arguments)
    except TypeError as error:
        raise HeadwaterError(f"{do}: {error}") from None
    declared = get_type_hints(handler)
    for name, value in arguments.items():
        if name in declared and not _fits(value, declared[name]):
            raise HeadwaterError(f'{do}: "{name}" has to be {_word(declared[name])}')


def _fits(value: Any, declared: Any) -> bool:
    if get_origin(declared) in (Union, UnionType):
        return any(_fits(value, each) for each in get_args(declared))
    if get_origin(declared) is dict:
        _, of = get_args(declared)
        return isinstance(value, dict) and all(_fits(each, of) for each in value.values())
    if get_origin(declared) is list:
        (of,) = get_args(declared)
        return isinstance(value, list) and all(_fits(each, of) for each in value)
    if declared is int or declared is float:
        number = isinstance(value, int) and not isinstance(value, bool)
        within = number and _LEAST <= value <= _MOST
        return within or (declared is float and isinstance(value, float))
    # What is none of these comes from the broker itself.
    return declared not in _WORDS or isinstance(value, declared)


def _word(declared: Any) -> str:
    if get_origin(declared) in (Union, UnionType):
        return " or ".join(_word(each) for each in get_args(declared))
    return _WORDS.get(get_origin(declared) or declared, "of another kind")
