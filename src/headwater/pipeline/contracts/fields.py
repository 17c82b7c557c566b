"""One field as Spark expressions: what kind of JSON it has, its typed value, what it breaks.

Expressions are texts of SQL. `Cell` names the columns in which a field's parts were put, or how to
get at them for fields inside of others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from typing import Any

from headwater.pipeline.contracts import checks
from headwater.pipeline.contracts.kinds import Kind
from headwater.pipeline.contracts.model import Contract, Field, Unknown
from headwater.pipeline.contracts.values import (
    DATE,
    FIRST_MICROSECOND,
    LAST_MICROSECOND,
    TIME,
    UNITS,
    microseconds_of,
)

_SQL = {"string": "string", "long": "bigint", "double": "double", "boolean": "boolean"}
_names = count()


@dataclass(frozen=True, slots=True)
class Cell:
    """Expressions for a field: its VARIANT, its kind of JSON, its typed value, its text."""

    variant: str
    kind: str
    typed: str
    text: str


@dataclass(frozen=True, slots=True)
class Check:
    """A rule (as an expression), when it is broken, and the sentence that says so."""

    rule: str
    condition: str
    reason: str


def literal(value: Any) -> str:
    """A value in SQL."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"
    if isinstance(value, int):
        return f"CAST('{value}' AS BIGINT)"
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, Decimal):
        # Just as many digits as it has: with more, Spark rounds what it is compared with.
        whole, _, behind = f"{abs(value):f}".partition(".")
        return f"CAST('{value:f}' AS DECIMAL({len(whole + behind)},{len(behind)}))"
    if isinstance(value, datetime):
        return f"timestamp_micros({microseconds_of(value)})"
    assert isinstance(value, date)
    return f"DATE'{value.isoformat()}'"


def key_text(contract: str, parts: Sequence[tuple[str, Kind]]) -> str:
    """A key as a text that no other key has; null if a part is null."""
    texts = [f"CAST({_countable(part, kind)} AS STRING)" for part, kind in parts]
    # Each with its length in front, so that ("a", "bc") is not ("ab", "c").
    measured = [f"CAST(length({each}) AS STRING), ':', {each}" for each in texts]
    return f"concat({literal(contract + '/')}, {', '.join(measured)})"


def _countable(part: str, kind: Kind) -> str:
    """A time as a number: its text would depend on the session's time zone."""
    return f"unix_micros({part})" if kind.name == "timestamp" else part


# Typed values


def source_text(field: Field) -> bool:
    """Whether its typed value is made from the text of the JSON value."""
    return _from_text(field.kind, field)


def _from_text(kind: Kind, field: Field) -> bool:
    timestamp = kind.name == "timestamp" and field.unit is None
    return timestamp or kind.name in ("date", "decimal")


def typed_value(field: Field, cell: Cell) -> str:
    return _typed(field.kind, field, cell.variant, cell.text)


def _typed(kind: Kind, field: Field, variant: str, text: str) -> str:
    if kind.name in _SQL:
        return f"try_variant_get({variant}, '$', '{_SQL[kind.name]}')"
    if kind.name == "timestamp":
        return _time(text) if field.unit is None else _time_since(variant, field.unit)
    if kind.name == "date":
        return f"CASE WHEN {text} RLIKE {_whole(DATE)} THEN try_cast({text} AS DATE) END"
    if kind.name == "decimal":
        return _decimal(kind, text)
    if kind.name == "struct":
        return _typed_struct(field, variant)
    assert kind.item is not None
    item = f"x{next(_names)}"
    made = _typed(kind.item, field, item, _text_of(item))
    return f"transform(try_variant_get({variant}, '$', 'array<variant>'), {item} -> {made})"


def _typed_struct(field: Field, variant: str) -> str:
    parts = []
    for each in field.fields:
        inner = _inner(variant, each.name)
        parts.append(f"{literal(each.column)}, {_typed(each.kind, each, inner, _text_of(inner))}")
    is_object = f"try_variant_get({variant}, '$', 'map<string,variant>') IS NOT NULL"
    return f"CASE WHEN {is_object} THEN named_struct({', '.join(parts)}) END"


def _whole(pattern: str) -> str:
    """A pattern for a whole text. (To Java, `$` is also before a last line end.)"""
    return literal(f"\\A(?:{pattern})\\z")


def _inner(variant: str, name: str) -> str:
    path = f"$['{name}']"
    return f"try_variant_get({variant}, {literal(path)}, 'variant')"


def _text_of(variant: str) -> str:
    return f"try_variant_get({variant}, '$', 'string')"


def _time(text: str) -> str:
    zoned = f"IF({text} RLIKE '(Z|[+-]..:..)$', {text}, concat({text}, 'Z'))"
    made = f"try_cast({zoned} AS TIMESTAMP)"
    return f"CASE WHEN {text} RLIKE {_whole(TIME)} THEN {made} END"


def _time_since(variant: str, unit: str) -> str:
    factor, digits = UNITS[unit]
    number = f"try_variant_get({variant}, '$', 'decimal(38,{digits})')"
    low, high = FIRST_MICROSECOND // factor, LAST_MICROSECOND // factor
    return (
        f"CASE WHEN {number} BETWEEN {low} AND {high} "
        f"THEN timestamp_micros(CAST({number} * {factor} AS BIGINT)) END"
    )


def _decimal(kind: Kind, text: str) -> str:
    whole = kind.precision - kind.scale
    before = f"0*[0-9]{{1,{whole}}}" if whole else "0+"
    behind = f"(\\.(?=[0-9])[0-9]{{0,{kind.scale}}}0*)?" if kind.scale else "(\\.0+)?"
    fits = f"{text} RLIKE {_whole(f'-?{before}{behind}')}"
    return f"CASE WHEN {fits} THEN try_cast({text} AS {kind}) END"


# Checks


def scalar_checks(field: Field, cell: Cell, path: str) -> list[Check]:
    """The checks of a field that is neither array nor struct, in order."""
    found = []
    if field.required:
        missing = f"concat({path}, IF({cell.variant} IS NULL, ' is missing', ' is null'))"
        absent = f"({cell.kind} IS NULL OR {cell.kind} = 'VOID')"
        found.append(Check("'required'", absent, missing))
    words = field.kind.words(field.unit)
    wrong = f"({cell.kind} <> 'VOID' AND {_is_other(field.kind, field, cell)})"
    found.append(_check("type", wrong, path, cell.variant, words))
    found += [
        _check(rule, condition, path, cell.variant, words)
        for rule, condition, words in _value_rules(field, cell.typed)
    ]
    return found


def _check(rule: str, condition: str, path: str, variant: str, words: str) -> Check:
    return Check(literal(rule), condition, _reason(path, variant, words))


def _reason(path: str, variant: str, words: str) -> str:
    shown = f"left(to_json({variant}), {checks.SHOWN})"
    return f"concat({path}, ' is ', {shown}, {literal(f'; it has to be {words}')})"


def _is_other(kind: Kind, field: Field, cell: Cell) -> str:
    """Whether a JSON value that is not null is of another type."""
    number = f"({cell.kind} = 'BIGINT' OR startswith({cell.kind}, 'DECIMAL'))"
    infinite = f"abs({cell.typed}) = CAST('Infinity' AS DOUBLE)"
    tests = {
        "string": f"{cell.kind} <> 'STRING'",
        "long": f"{cell.kind} <> 'BIGINT'",
        "boolean": f"{cell.kind} <> 'BOOLEAN'",
        "double": f"(NOT ({number} OR {cell.kind} = 'DOUBLE') OR {infinite})",
        "date": f"({cell.kind} <> 'STRING' OR {cell.typed} IS NULL)",
        "decimal": f"(NOT ({number} OR {cell.kind} = 'STRING') OR {cell.typed} IS NULL)",
        "timestamp": f"({cell.kind} <> 'STRING' OR {cell.typed} IS NULL OR "
        f"unix_micros({cell.typed}) NOT BETWEEN {FIRST_MICROSECOND} AND {LAST_MICROSECOND})",
    }
    if kind.name == "timestamp" and field.unit is not None:
        return f"(NOT {number} OR {cell.typed} IS NULL)"
    return tests[kind.name]


def _value_rules(field: Field, typed: str) -> list[tuple[str, str, str]]:
    """Rule, when it is broken, what it wants; for typed values."""
    found = []
    sides = []
    if field.kind.name == "string":
        found += _length_rules(field, f"length({typed})")
    if field.minimum is not None:
        sides.append(f"{typed} < {literal(field.minimum)}")
    if field.maximum is not None:
        sides.append(f"{typed} > {literal(field.maximum)}")
    if sides:
        found.append(("range", f"({' OR '.join(sides)})", field.range_words()))
    if field.pattern is not None:
        # (?d): a line ends with \n only, as in Python.
        whole = literal(f"(?d)\\A(?:{field.pattern})\\z")
        found.append(("pattern", f"NOT ({typed} RLIKE {whole})", checks.pattern_words(field)))
    if field.one_of is not None:
        among = ", ".join(map(literal, field.one_of))
        found.append(("one_of", f"{typed} NOT IN ({among})", field.choice_words()))
    return found


def _length_rules(field: Field, length: str) -> list[tuple[str, str, str]]:
    sides = []
    if field.min_length is not None:
        sides.append(f"{length} < {field.min_length}")
    if field.longest is not None:
        sides.append(f"{length} > {field.longest}")
    return [("length", f"({' OR '.join(sides)})", field.length_words())] if sides else []


# Fields inside of others


def nested_violation(contract: Contract, field: Field, variant: str, path: str) -> str:
    """The first violation in a field, whatever its type: a struct of rule and reason, or null."""
    cases = []
    if field.required:
        missing = f"concat({path}, IF({variant} IS NULL, ' is missing', ' is null'))"
        broken = _violation("'required'", missing)
        cases.append(f"WHEN {variant} IS NULL OR is_variant_null({variant}) THEN {broken}")
    cases.append(f"WHEN {variant} IS NULL OR is_variant_null({variant}) THEN NULL")
    if field.kind.name in ("array", "struct"):
        inside = _inside(contract, field, field.kind, variant, path, top=True)
    else:
        inside = _scalar_violation(field, field.kind, variant, path, _value_rules)
    return f"CASE {' '.join(cases)} ELSE {inside} END"


def _violation(rule: str, reason: str) -> str:
    return f"named_struct('rule', {rule}, 'reason', {reason})"


def _scalar_violation(field: Field, kind: Kind, variant: str, path: str, rules: Any = None) -> str:
    text = _text_of(variant)
    typed = _typed(kind, field, variant, text)
    cell = Cell(variant, f"schema_of_variant({variant})", typed, text)
    found = [("type", _is_other(kind, field, cell), kind.words(field.unit))]
    found += rules(field, typed) if rules is not None else []
    cases = [
        f"WHEN {condition} THEN {_violation(literal(rule), _reason(path, variant, words))}"
        for rule, condition, words in found
    ]
    return f"CASE {' '.join(cases)} END"


def _inside(
    contract: Contract, field: Field, kind: Kind, variant: str, path: str, top: bool = False
) -> str:
    """The first violation of a value that is not null."""
    if kind.name == "struct":
        return _in_struct(contract, field, variant, path)
    if kind.item is None:
        return _scalar_violation(field, kind, variant, path)
    return _in_array(contract, field, kind, variant, path, top)


def _in_struct(contract: Contract, field: Field, variant: str, path: str) -> str:
    members = f"try_variant_get({variant}, '$', 'map<string,variant>')"
    wrong = _violation("'type'", _reason(path, variant, Kind("struct").words()))
    found = []
    for each in field.fields:
        inner = _inner(variant, each.name)
        inner_path = f"concat({path}, {literal('.' + each.name)})"
        found.append(nested_violation(contract, each, inner, inner_path))
    if contract.unknown in (Unknown.FREEZE, Unknown.DISCARD_ROW):
        found.append(_unknown_inside(contract, field, members, path))
    return f"CASE WHEN {members} IS NULL THEN {wrong} ELSE coalesce({', '.join(found)}) END"


def _unknown_inside(contract: Contract, field: Field, members: str, path: str) -> str:
    rule = "unknown" if contract.unknown is Unknown.FREEZE else "discard_row"
    names = ", ".join(literal(each.name) for each in field.fields)
    more = f"array_min(array_except(map_keys({members}), array({names})))"
    reason = f"concat({path}, '.', {more}, ' is not in the contract')"
    return f"CASE WHEN {more} IS NOT NULL THEN {_violation(literal(rule), reason)} END"


def _in_array(
    contract: Contract, field: Field, kind: Kind, variant: str, path: str, top: bool
) -> str:
    assert kind.item is not None
    items = f"try_variant_get({variant}, '$', 'array<variant>')"
    item, place, broken = (f"{letter}{next(_names)}" for letter in "xib")
    inner_path = f"concat({path}, '[', CAST({place} AS STRING), ']')"
    inside = _inside(contract, field, kind.item, item, inner_path)
    each = f"CASE WHEN {item} IS NULL OR is_variant_null({item}) THEN NULL ELSE {inside} END"
    first = (
        f"try_element_at(filter(transform({items}, ({item}, {place}) -> {each}), "
        f"{broken} -> {broken} IS NOT NULL), 1)"
    )
    cases = [
        f"WHEN {items} IS NULL THEN "
        + _violation("'type'", _reason(path, variant, kind.words(field.unit)))
    ]
    if top:
        cases += [
            f"WHEN {condition} THEN {_violation(literal(rule), _reason(path, variant, words))}"
            for rule, condition, words in _length_rules(field, f"size({items})")
        ]
    return f"CASE {' '.join(cases)} ELSE {first} END"
