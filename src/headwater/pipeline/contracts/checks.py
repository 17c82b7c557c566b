"""The verdict over one record, in plain Python.

Every rule is defined here, with the sentence about its violation. `fits.py` finds records that
certainly fit more quickly, in whole batches; a property test compares the two.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from headwater.pipeline.contracts import document, patterns
from headwater.pipeline.contracts.kinds import FieldKind
from headwater.pipeline.contracts.model import Contract, Field, Unknown, contract_of
from headwater.pipeline.contracts.values import date_of, time_of, time_since

Place = Literal["silver", "quarantine", "late"]

#: So much of a value is in a reason.
SHOWN = 80
_FRACTION = re.compile(r"-?[0-9]{1,38}(\.[0-9]{1,38})?")


@dataclass(frozen=True, slots=True)
class Record:
    """A message of the log, to be judged."""

    topic: str
    value: bytes
    timestamp: datetime
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    place: Place
    contract: str | None
    rule: str | None = None
    reason: str | None = None
    event_time: datetime | None = None
    #: The typed row by column, its key, and the undeclared fields; empty for a broken record.
    row: dict[str, Any] = field(default_factory=dict)
    key: tuple[Any, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Violation(Exception):
    rule: str
    reason: str


_MISSING = object()


def verdict(contracts: Sequence[Contract], record: Record) -> Verdict:
    """The verdict over a record, by the contract for its topic."""
    contract = contract_of(contracts, record.topic)
    if contract is None:
        reason = f"no contract is for the topic {record.topic}"
        return Verdict("quarantine", None, "contract", reason)
    return verdict_of(contract, record)


def verdict_of(contract: Contract, record: Record) -> Verdict:
    try:
        found = _object(contract, record.value)
        row = _row(contract, found)
        event_time = _event_time(contract, row, record.timestamp)
    except Violation as error:
        return Verdict("quarantine", contract.name, error.rule, error.reason)
    late = record.timestamp - event_time > timedelta(seconds=contract.lateness)
    place: Place = "late" if late else "silver"
    declared = contract.names
    extra = {name: value for name, value in found.items() if name not in declared}
    key = _key(contract, row)
    return Verdict(place, contract.name, event_time=event_time, row=row, key=key, extra=extra)


def key_of(contract: Contract, value: bytes) -> tuple[Any, ...] | None:
    """The key of a record; None if it has none or does not fit the contract."""
    try:
        return _key(contract, typed(contract, value))
    except Violation:
        return None


def _key(contract: Contract, row: dict[str, Any]) -> tuple[Any, ...] | None:
    found = tuple(row[contract.field(name).column] for name in contract.key)
    return None if not found or None in found else found


def _event_time(contract: Contract, row: dict[str, Any], arrival: datetime) -> datetime:
    if contract.event_time is None:
        return arrival
    found: datetime | None = row[contract.field(contract.event_time).column]
    if found is None:
        return arrival
    if found - arrival > timedelta(seconds=contract.future):
        raise Violation("future", future_reason(contract))
    return found


def future_reason(contract: Contract) -> str:
    return f"{contract.event_time} is more than {contract.future:g} s after the arrival"


def typed(contract: Contract, value: bytes) -> dict[str, Any]:
    """The row of a value. Raises Violation."""
    return _row(contract, _object(contract, value))


def _row(contract: Contract, found: dict[str, Any]) -> dict[str, Any]:
    """The typed row of an object. Raises Violation."""
    row = {each.column: _checked(contract, each, found, each.name) for each in contract.fields}
    _check_unknown(contract, contract.fields, found, "")
    return row


def _object(contract: Contract, value: bytes) -> dict[str, Any]:
    if len(value) > contract.max_bytes:
        raise Violation("size", size_reason(contract, str(len(value))))
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise Violation("utf8", UTF8_REASON) from None
    try:
        found = document.parse(text)
    except document.NotJson:
        raise Violation("json", JSON_REASON if value else EMPTY_REASON) from None
    if not isinstance(found, dict):
        raise Violation("object", OBJECT_REASON)
    return found


UTF8_REASON = "the value is not UTF-8"
EMPTY_REASON = "the value is empty"
JSON_REASON = "the value is not JSON, has a key twice, or is nested too deeply"
OBJECT_REASON = "the value is JSON, but no object"


def size_reason(contract: Contract, size: str) -> str:
    return f"the value has {size} bytes; it has to have at most {contract.max_bytes}"


def _check_unknown(
    contract: Contract, fields: Sequence[Field], found: dict[str, Any], path: str
) -> None:
    if contract.unknown not in (Unknown.FREEZE, Unknown.DISCARD_ROW):
        return
    more = sorted(found.keys() - {each.name for each in fields})
    if more:
        rule = "unknown" if contract.unknown is Unknown.FREEZE else "discard_row"
        raise Violation(rule, f"{path}{more[0]} is not in the contract")


def _checked(contract: Contract, field: Field, found: dict[str, Any], path: str) -> Any:
    value = found.get(field.name, _MISSING)
    if value is _MISSING or value is None:
        if field.required:
            what = "missing" if value is _MISSING else "null"
            raise Violation("required", f"{path} is {what}")
        return None
    if field.kind.name == "array":
        return _array(contract, field, field.kind, value, path)
    if field.kind.name == "struct":
        return _struct(contract, field, value, path)
    made = scalar(field.kind, field, value)
    if made is None:
        raise _broken("type", path, value, field.kind.words(field.unit))
    for rule, words in _broken_rules(field, made):
        raise _broken(rule, path, value, words)
    return made


def _array(contract: Contract, field: Field, kind: FieldKind, value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise _broken("type", path, value, kind.words(field.unit))
    if kind is field.kind:
        for rule, words in _broken_length(field, value):
            raise _broken(rule, path, value, words)
    assert kind.item is not None
    return [
        _item(contract, field, kind.item, each, f"{path}[{number}]")
        for number, each in enumerate(value)
    ]


def _item(contract: Contract, field: Field, kind: FieldKind, value: Any, path: str) -> Any:
    if value is None:
        return None
    if kind.name == "array":
        return _array(contract, field, kind, value, path)
    if kind.name == "struct":
        return _struct(contract, field, value, path)
    made = scalar(kind, field, value)
    if made is None:
        raise _broken("type", path, value, kind.words(field.unit))
    return made


def _struct(contract: Contract, field: Field, value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _broken("type", path, value, FieldKind("struct").words())
    row = {
        each.column: _checked(contract, each, value, f"{path}.{each.name}") for each in field.fields
    }
    _check_unknown(contract, field.fields, value, f"{path}.")
    return row


def scalar(kind: FieldKind, field: Field, value: Any) -> Any:
    """The typed value; None if it is of another type."""
    if kind.name == "string":
        return value if isinstance(value, str) else None
    if kind.name == "boolean":
        return value if isinstance(value, bool) else None
    if kind.name == "timestamp":
        return _time(field, value)
    if kind.name == "date":
        return date_of(value) if isinstance(value, str) else None
    if kind.name == "decimal":
        return _decimal(kind, value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if kind.name == "long":
        return value if isinstance(value, int) else None
    number = float(value)
    return number if math.isfinite(number) else None


def _time(field: Field, value: Any) -> datetime | None:
    if field.unit is None:
        return time_of(value) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return time_since(Decimal(value), field.unit)


def _decimal(kind: FieldKind, value: Any) -> Decimal | None:
    if isinstance(value, str):
        number = Decimal(value) if _FRACTION.fullmatch(value) else None
    elif isinstance(value, int | Decimal) and not isinstance(value, bool):
        number = Decimal(value)
    else:
        number = None
    if number is None or abs(number) >= Decimal(10) ** (kind.precision - kind.scale):
        return None
    exact = number.normalize().as_tuple().exponent
    return number if isinstance(exact, int) and -exact <= kind.scale else None


def _broken_rules(field: Field, value: Any) -> Iterator[tuple[str, str]]:
    """The rules that a typed value breaks, with what they want."""
    if isinstance(value, str):
        yield from _broken_length(field, value)
    low, high = field.minimum, field.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        yield "range", field.range_words()
    if field.pattern is not None and not patterns.matches(field.pattern, value):
        yield "pattern", pattern_words(field)
    if field.one_of is not None and value not in field.one_of:
        yield "one_of", field.choice_words()


def pattern_words(field: Field) -> str:
    return f"like {field.pattern}"


def _broken_length(field: Field, value: str | list[Any]) -> Iterator[tuple[str, str]]:
    least, most = field.min_length, field.max_length
    if (least is not None and len(value) < least) or (most is not None and len(value) > most):
        yield "length", field.length_words()


def _broken(rule: str, path: str, value: Any, words: str) -> Violation:
    shown = document.text(value)[:SHOWN]
    return Violation(rule, f"{path} is {shown}; it has to be {words}")
