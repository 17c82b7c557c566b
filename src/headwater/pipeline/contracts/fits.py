"""Records that certainly fit, found with Arrow, many at once.

Most records fit their contract. Arrow's parser reads them several times as quickly as Python does,
into typed columns; but it is all or nothing, it cannot say what is wrong, and it takes some things
that a contract does not. So nothing is refused here: a record that is not certain to fit is left to
`checks.py`, which has the last word. The two have to agree about those that do.

Contracts with arrays or structs are left to `checks.py` altogether.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.pipeline.contracts import patterns
from headwater.pipeline.contracts.evolution import Column
from headwater.pipeline.contracts.kinds import Kind
from headwater.pipeline.contracts.model import Contract, Field, Unknown
from headwater.pipeline.contracts.values import FIRST_MICROSECOND, LAST_MICROSECOND, UNITS

STAMP = pa.timestamp("us", tz="UTC")

#: A number that is too long for checks.py has so many digits in a row; a short record has no such.
_LONG, _MANY_DIGITS = 900, rb"[0-9]{100}"
_TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
    r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?$"
)
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
# Arrow takes decimals with an exponent, with a plus, with nothing before or behind the point, and
# with any number of zeros.
_ODD_DECIMAL = rb':\s*"?(\+|-?\.|-?[0-9]+(\.[0-9]*)?[eE]|-?[0-9]+\.")|[0-9.]{38}'
_ROW = re.compile(r" in row ([0-9]+)$")
_SCALARS = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_int64,
    pa.types.is_string,
    pa.types.is_timestamp,
)


def arrow_type(kind: Kind, field: Field) -> pa.DataType:
    """The type of a column for a field."""
    if kind.item is not None:
        return pa.list_(arrow_type(kind.item, field))
    if kind.name == "struct":
        return pa.struct([(each.column, arrow_type(each.kind, each)) for each in field.fields])
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    return {
        "string": pa.string(),
        "long": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "timestamp": STAMP,
        "date": pa.date32(),
    }[kind.name]


class Unreadable(Exception):
    """Some record cannot be read; `row` is its number, if Arrow has told it."""

    def __init__(self, row: int | None) -> None:
        super().__init__()
        self.row = row


class Fits:
    """Finds the records of one contract that certainly fit."""

    def __init__(self, contract: Contract, columns: Sequence[Column]) -> None:
        self._contract = contract
        self._fields = tuple(_Reading(each) for each in contract.fields)
        self.possible = all(each.kind.name not in ("array", "struct") for each in contract.fields)
        self._decimals = any(each.kind.name == "decimal" for each in contract.fields)
        self._evolved = tuple(columns)
        self._names = [*(each.name for each in contract.fields), *(c.field for c in columns)]
        self._columns = [*(each.column for each in contract.fields), *(c.column for c in columns)]
        self._options = self._parsing()

    def _parsing(self) -> Any:
        schema = [(each.field.name, each.type) for each in self._fields]
        schema += [(each.field, each.type) for each in self._evolved]
        # What is left out of the row has to be JSON all the same, so it is read.
        unknown = "infer" if self._contract.unknown is Unknown.DISCARD_VALUE else "error"
        return pj.ParseOptions(explicit_schema=pa.schema(schema), unexpected_field_behavior=unknown)

    def candidates(self, values: Any) -> Any:
        """Which values may be tried: those that look like one object each."""
        looks = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}"))
        sizes = pc.binary_length(values)
        looks = pc.and_(looks, pc.less_equal(sizes, self._contract.max_bytes))
        long = pc.greater(sizes, _LONG)
        if pc.any(long).as_py():
            some = pc.if_else(long, values, pa.scalar(None, values.type))
            odd = pc.match_substring_regex(some, _MANY_DIGITS)
            looks = pc.and_not(looks, pc.fill_null(odd, False))
        if self._decimals:
            odd = pc.match_substring_regex(values, _ODD_DECIMAL)
            looks = pc.and_not(looks, odd)
        return looks

    def read(self, values: Any) -> tuple[Any, Any]:
        """Rows of candidates, and which of them fit. Raises Unreadable if one cannot be read."""
        try:
            values.cast(pa.string())  # Arrow's parser does not look whether it is UTF-8
            found = self._parsed(values)
            columns, fits = [], None
            for name, each in zip(self._names, self._fields, strict=False):
                column, certain = each.read(found.column(name))
                columns.append(column)
                fits = certain if fits is None else pc.and_(fits, certain)
            columns += [found.column(each.field) for each in self._evolved]
            for each in found.columns[len(self._fields) :]:
                if pa.types.is_floating(each.type):
                    fits = pc.and_(fits, _finite(each))
        except pa.ArrowInvalid as error:
            place = _ROW.search(str(error))
            raise Unreadable(int(place[1]) if place else None) from None
        return pa.table(columns, self._columns), fits

    def _parsed(self, values: Any) -> Any:
        """Nobody can smuggle in a second object: there would be more rows than values."""
        every = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        joined = pc.binary_join(every, b"\n")[0].as_buffer()
        reading = pj.ReadOptions(use_threads=False, block_size=max(joined.size, 1) + 1)
        found = pj.read_json(
            pa.BufferReader(joined), read_options=reading, parse_options=self._options
        ).combine_chunks()
        extra = found.columns[len(self._names) :]
        known = (*_SCALARS, pa.types.is_floating)
        plain = all(any(is_(each.type) for is_ in known) for each in extra)
        if found.num_rows != len(values) or not plain:
            raise Unreadable(None)
        return found


def _finite(column: Any) -> Any:
    """Arrow takes NaN and Infinity, which are not JSON."""
    return _true_or_null(pc.is_finite(column))


def _true_or_null(condition: Any) -> Any:
    return pc.fill_null(condition, True)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a declared field is read."""

    field: Field

    @property
    def type(self) -> pa.DataType:
        """What Arrow's parser makes of it."""
        kind = self.field.kind
        if kind.name in ("timestamp", "date"):
            return pa.string() if self.field.unit is None else pa.int64()
        if kind.name == "decimal":
            return pa.decimal128(38, kind.scale)
        return arrow_type(kind, self.field)

    def read(self, column: Any) -> tuple[Any, Any]:
        """The typed column, and where its values certainly fit."""
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        typed, fits = _TYPED.get(self.field.kind.name, _as_it_is)(self.field, column)
        for rule in _rules(self.field):
            fits = pc.and_(fits, _true_or_null(rule(typed)))
        if self.field.required:
            fits = pc.and_(fits, pc.is_valid(typed))
        return typed, fits


def _as_it_is(field: Field, column: Any) -> tuple[Any, Any]:
    return column, _all(column)


def _all(column: Any) -> Any:
    return pa.repeat(True, len(column))


def _double(field: Field, column: Any) -> tuple[Any, Any]:
    return column, _finite(column)


def _time(field: Field, column: Any) -> tuple[Any, Any]:
    if field.unit is not None:
        factor, _ = UNITS[field.unit]
        low, high = FIRST_MICROSECOND // factor, LAST_MICROSECOND // factor
        fits = _true_or_null(_between(column, low, high))
        number = pc.if_else(fits, column, pa.scalar(None, pa.int64()))
        return pc.multiply(number, factor).cast(STAMP), fits
    shaped = pc.and_(
        pc.match_substring_regex(column, _TIME), pc.invert(pc.starts_with(column, "0000"))
    )
    text = pc.if_else(shaped, column, pa.scalar(None, pa.string()))
    zoned = pc.match_substring_regex(text, _ZONE)
    text = pc.if_else(zoned, text, pc.binary_join_element_wise(text, "Z", ""))
    typed = text.cast(STAMP)
    inside = _between(typed.cast(pa.int64()), FIRST_MICROSECOND, LAST_MICROSECOND)
    return typed, pc.and_(_true_or_null(shaped), _true_or_null(inside))


def _date(field: Field, column: Any) -> tuple[Any, Any]:
    shaped = pc.and_(
        pc.match_substring_regex(column, _DATE), pc.invert(pc.starts_with(column, "0000"))
    )
    text = pc.if_else(shaped, column, pa.scalar(None, pa.string()))
    return text.cast(pa.date32()), _true_or_null(shaped)


def _decimal(field: Field, column: Any) -> tuple[Any, Any]:
    kind = field.kind
    most = Decimal(10) ** (kind.precision - kind.scale)
    if kind.precision == 38:
        return column, _all(column)
    low, high = (pa.scalar(each, column.type) for each in (-most, most))
    fits = _true_or_null(pc.and_(pc.greater(column, low), pc.less(column, high)))
    narrow = pc.if_else(fits, column, pa.scalar(None, column.type))
    return narrow.cast(arrow_type(kind, field)), fits


_TYPED: dict[str, Callable[[Field, Any], tuple[Any, Any]]] = {
    "double": _double,
    "timestamp": _time,
    "date": _date,
    "decimal": _decimal,
}


def _between(column: Any, low: int, high: int) -> Any:
    return pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))


Rule = Callable[[Any], Any]


def _rules(field: Field) -> list[Rule]:
    """What typed values have to be like. A null is always right."""
    kind = arrow_type(field.kind, field)
    found: list[Rule] = []
    if field.kind.name == "string":
        if field.min_length is not None:
            found.append(lambda typed: pc.greater_equal(pc.utf8_length(typed), field.min_length))
        if field.max_length is not None:
            found.append(lambda typed: pc.less_equal(pc.utf8_length(typed), field.max_length))
    if field.minimum is not None:
        found.append(partial(_compared, pc.greater_equal, field.minimum, kind))
    if field.maximum is not None:
        found.append(partial(_compared, pc.less_equal, field.maximum, kind))
    if field.one_of is not None:
        found.append(partial(_among, pa.array(field.one_of, kind)))
    if field.pattern is not None:
        found.append(partial(patterns.matching, field.pattern))
    return found


def _compared(comparison: Callable[[Any, Any], Any], bound: Any, kind: Any, typed: Any) -> Any:
    return comparison(typed, pa.scalar(bound, kind))


def _among(values: Any, typed: Any) -> Any:
    return pc.if_else(pc.is_valid(typed), pc.is_in(typed, value_set=values), True)
