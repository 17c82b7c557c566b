"""Columns as Arrow's JSON reader makes them, as columns of a table; and where values certainly fit.

A null fits, unless the field is required. An item of an array only has to be of the right type.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.contracts import patterns
from headwater.pipeline.contracts.kinds import FieldKind
from headwater.pipeline.contracts.model import Field
from headwater.pipeline.contracts.values import FIRST_MICROSECOND, LAST_MICROSECOND, UNITS

STAMP = pa.timestamp("us", tz="UTC")

_TIME = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
    r"(Z|[+-](0[0-9]|1[0-7]):[0-5][0-9])?$"
)
_ZONE = r"(Z|[+-][0-9]{2}:[0-9]{2})$"
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"

#: A column, and where its values certainly fit.
Typed = tuple[Any, Any]


def arrow_type(kind: FieldKind, field: Field) -> pa.DataType:
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


def parsed_type(kind: FieldKind, field: Field) -> pa.DataType:
    """The type that Arrow's parser reads a field as."""
    if kind.item is not None:
        return pa.list_(parsed_type(kind.item, field))
    if kind.name == "struct":
        return pa.struct([(each.name, parsed_type(each.kind, each)) for each in field.fields])
    if kind.name in ("timestamp", "date"):
        return pa.string() if field.unit is None else pa.int64()
    if kind.name == "decimal":
        return pa.decimal128(38, kind.scale)
    return arrow_type(kind, field)


def checked(field: Field, parsed: Any) -> Typed:
    """The typed column of a field."""
    parsed = parsed.combine_chunks() if isinstance(parsed, pa.ChunkedArray) else parsed
    typed, fits = _typed(field.kind, field, parsed)
    for rule in _rules(field):
        fits = pc.and_(fits, true_or_null(rule(typed)))
    if field.required:
        fits = pc.and_(fits, pc.is_valid(typed))
    return typed, fits


def finite(column: Any) -> Any:
    """Arrow takes NaN and Infinity, which are not JSON."""
    return true_or_null(pc.is_finite(column))


def true_or_null(condition: Any) -> Any:
    return pc.fill_null(condition, True)


def _typed(kind: FieldKind, field: Field, column: Any) -> Typed:
    return _TYPED.get(kind.name, _as_it_is)(kind, field, column)


def _as_it_is(kind: FieldKind, field: Field, column: Any) -> Typed:
    return column, _all(column)


def _all(column: Any) -> Any:
    return pa.repeat(True, len(column))


def _array(kind: FieldKind, field: Field, column: Any) -> Typed:
    assert kind.item is not None
    items, right = _typed(kind.item, field, column.flatten())
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    ends = np.concatenate(([0], np.cumsum(lengths)))
    wrong = np.concatenate(([0], np.cumsum(~right.to_numpy(zero_copy_only=False))))
    typed = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items, mask=column.is_null())
    return typed, pa.array(wrong[ends[1:]] == wrong[ends[:-1]])


def _struct(kind: FieldKind, field: Field, column: Any) -> Typed:
    parts = [checked(each, part) for each, part in zip(field.fields, column.flatten(), strict=True)]
    fits = _all(column)
    for _, right in parts:
        fits = pc.and_(fits, right)
    typed = pa.StructArray.from_arrays(
        [part for part, _ in parts], fields=list(arrow_type(kind, field)), mask=column.is_null()
    )
    return typed, pc.or_(fits, column.is_null())  # a struct that is null has no required fields


def _double(kind: FieldKind, field: Field, column: Any) -> Typed:
    return column, finite(column)


def _time(kind: FieldKind, field: Field, column: Any) -> Typed:
    if field.unit is not None:
        factor, _ = UNITS[field.unit]
        low, high = FIRST_MICROSECOND // factor, LAST_MICROSECOND // factor
        fits = true_or_null(_between(column, low, high))
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
    return typed, pc.and_(true_or_null(shaped), true_or_null(inside))


def _date(kind: FieldKind, field: Field, column: Any) -> Typed:
    shaped = pc.and_(
        pc.match_substring_regex(column, _DATE), pc.invert(pc.starts_with(column, "0000"))
    )
    text = pc.if_else(shaped, column, pa.scalar(None, pa.string()))
    return text.cast(pa.date32()), true_or_null(shaped)


def _decimal(kind: FieldKind, field: Field, column: Any) -> Typed:
    most = Decimal(10) ** (kind.precision - kind.scale)
    if kind.precision == 38:
        return column, _all(column)
    low, high = (pa.scalar(each, column.type) for each in (-most, most))
    fits = true_or_null(pc.and_(pc.greater(column, low), pc.less(column, high)))
    narrow = pc.if_else(fits, column, pa.scalar(None, column.type))
    return narrow.cast(arrow_type(kind, field)), fits


_TYPED: dict[str, Callable[[FieldKind, Field, Any], Typed]] = {
    "array": _array,
    "struct": _struct,
    "double": _double,
    "timestamp": _time,
    "date": _date,
    "decimal": _decimal,
}


def _between(column: Any, low: int, high: int) -> Any:
    return pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high))


Rule = Callable[[Any], Any]


def _rules(field: Field) -> list[Rule]:
    """The rules for typed values. A null breaks none of them."""
    kind = arrow_type(field.kind, field)
    found: list[Rule] = []
    length = pc.list_value_length if field.kind.name == "array" else pc.utf8_length
    if field.min_length is not None:
        found.append(lambda typed: pc.greater_equal(length(typed), field.min_length))
    if field.max_length is not None:
        found.append(lambda typed: pc.less_equal(length(typed), field.max_length))
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
