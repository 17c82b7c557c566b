"""Conditions on rows, written as in SQL and checked by Arrow: no Spark, and nothing is executed.

    price > 20 AND shop IN ('a', 'b')
    NOT (reason LIKE '%range%') OR late_by_seconds BETWEEN 10 AND 60
    timestamp >= '2030-01-01T10:00:00Z' AND publisher IS NOT NULL

A text or a number takes the type of the column that it is compared with.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import HeadwaterError
from headwater.units import did_you_mean

_TOKENS = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?)|'(?P<text>(?:[^']|'')*)'|`(?P<quoted>[^`]+)`"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|!=|==|[=<>(),]))"
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda a, b: a == b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_CONSTANTS = {"TRUE": True, "FALSE": False}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    @property
    def keyword(self) -> str:
        return self.text.upper() if self.kind in ("word", "sign") else ""


def parse(condition: str, schema: Any) -> Any:
    """A pyarrow expression over the columns of a schema. Raises HeadwaterError with a sentence."""
    parser = _Parser(_tokens(condition), schema, condition)
    found = parser.either()
    if parser.ahead is not None:
        raise parser.wrong()
    return found


def column_of(name: str, kind: Any) -> Any:
    """A column to compare with something.

    Files that deltalake has merged have texts of another type (string_view). Arrow fails to compare
    these with the bounds that such a file states; after a cast, it compares row by row.
    """
    text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return pc.field(name).cast(kind) if text else pc.field(name)


def _tokens(condition: str) -> list[_Token]:
    found, at = [], 0
    while at < len(condition.rstrip()):
        match = _TOKENS.match(condition, at)
        if match is None:
            raise HeadwaterError(
                f"this condition cannot be read from here on: {condition[at:].strip()}"
            )
        kind = match.lastgroup or ""
        found.append(_Token(kind, match[kind].replace("''", "'")))
        at = match.end()
    return found


class _Parser:
    """One method for each level: OR, AND, NOT, comparison."""

    def __init__(self, tokens: list[_Token], schema: Any, condition: str) -> None:
        self._tokens, self._schema, self._condition = tokens, schema, condition
        self._at = 0

    @property
    def ahead(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def wrong(self) -> HeadwaterError:
        what = "its end" if self.ahead is None else f'"{self.ahead.text}"'
        return HeadwaterError(f"the condition makes no sense at {what}: {self._condition}")

    def either(self) -> Any:
        found = self._both()
        while self._takes("OR"):
            found = found | self._both()
        return found

    def _both(self) -> Any:
        found = self._not()
        while self._takes("AND"):
            found = found & self._not()
        return found

    def _not(self) -> Any:
        if self._takes("NOT"):
            return ~self._not()
        if self._takes("("):
            found = self.either()
            self._expect(")")
            return found
        return self._comparison()

    def _comparison(self) -> Any:
        name = self._column()
        kind = self._schema.field(name).type
        column = column_of(name, kind)
        if self._takes("IS"):
            inverted = self._takes("NOT")
            self._expect("NULL")
            return column.is_valid() if inverted else column.is_null()
        if self._takes("NOT"):
            return ~self._membership(column, kind)
        if self.ahead is not None and self.ahead.keyword in _COMPARE:
            compare = _COMPARE[self._next().keyword]
            return compare(column, self._value(kind))
        return self._membership(column, kind)

    def _membership(self, column: Any, kind: Any) -> Any:
        if self._takes("IN"):
            self._expect("(")
            values = [self._value(kind)]
            while self._takes(","):
                values.append(self._value(kind))
            self._expect(")")
            return column.isin(pa.array([each.as_py() for each in values], kind))
        if self._takes("BETWEEN"):
            low = self._value(kind)
            self._expect("AND")
            return (column >= low) & (column <= self._value(kind))
        if self._takes("LIKE"):
            return pc.match_like(column, self._value(pa.string()).as_py())
        raise self.wrong()

    def _column(self) -> str:
        token = self._next()
        if token.kind not in ("word", "quoted"):
            self._at -= 1
            raise self.wrong()
        if token.text not in self._schema.names:
            guess = did_you_mean(token.text, self._schema.names)
            columns = ", ".join(self._schema.names)
            raise HeadwaterError(f"there is no column {token.text}{guess}; there are {columns}")
        return token.text

    def _value(self, kind: Any) -> Any:
        token = self._next()
        if token.keyword in _CONSTANTS:
            return pa.scalar(_CONSTANTS[token.keyword])
        if token.kind not in ("number", "text"):
            self._at -= 1
            raise self.wrong()
        try:
            return pa.scalar(token.text).cast(kind)
        except pa.ArrowException:
            raise HeadwaterError(f'"{token.text}" is not of the type {kind}') from None

    def _next(self) -> _Token:
        token = self.ahead
        if token is None:
            raise self.wrong()
        self._at += 1
        return token

    def _takes(self, keyword: str) -> bool:
        taken = self.ahead is not None and self.ahead.keyword == keyword
        self._at += taken
        return taken

    def _expect(self, keyword: str) -> None:
        if not self._takes(keyword):
            raise self.wrong()
