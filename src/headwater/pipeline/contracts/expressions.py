"""The verdict over records, as Spark expressions: what `checks.py` defines, for millions.

Each step adds columns to the frame, so that nothing is computed twice:

    contract            whose topics these are
    _fault              what keeps the value from being parsed (size, UTF-8, nesting)
    _json               the value as a VARIANT: [value, END], so that what follows a value is seen
    _map                its fields, if it is an object
    _found<n>           contract n: `v<i>`, each declared field
    _read<n>            contract n: `k<i>`, the kind of each field, and `t<i>`, its typed value
    _code               the number of the first check that fails, within its contract
    _verdict, rule, reason, event_time, _extra, _key, _row<n>

Checks are numbers first because Java compiles only small methods well: sentences are made in a step
of its own, and only for records that broke a rule. Nothing here can raise: every cast is a `try_`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.pipeline.contracts import checks
from headwater.pipeline.contracts.fields import (
    Cell,
    Check,
    key_text,
    literal,
    nested_violation,
    scalar_checks,
    source_text,
    typed_value,
)
from headwater.pipeline.contracts.model import MOST_DEPTH, Contract, Field, Unknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD = ("offset", "topic", "value", "timestamp", "protocol", "publisher", "headers")
END = "headwater:end:5d1c"

_TEXT = "CAST(value AS STRING)"
_FAULTS = ("contract", "size", "utf8", "json", "object")
_UNKNOWN, _FUTURE = -1, -2


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A contract, its place among the others, and its checks in order."""

    number: int
    contract: Contract
    checks: tuple[Check, ...]

    @property
    def this(self) -> str:
        return f"contract = {literal(self.contract.name)}"

    @property
    def found(self) -> str:
        return f"_found{self.number}"

    @property
    def read(self) -> str:
        return f"_read{self.number}"

    @property
    def row(self) -> str:
        return row_column(self.number)


def row_column(number: int) -> str:
    """The column with the typed rows of a contract."""
    return f"_row{number}"


def classified(frame: "DataFrame", contracts: Sequence[Contract]) -> "DataFrame":
    """Records with their verdict, and `_key`, which only repeats share."""
    every = [_numbered(number, each) for number, each in enumerate(contracts)]
    names = [name for name in RECORD if name in frame.columns]
    steps = (_parsed, _read_fields, _judged)
    made = frame.select(*names).selectExpr("*", f"{_choice(contracts)} AS contract")
    for step in steps:
        made = step(made, every)
    return made


def _numbered(number: int, contract: Contract) -> _Numbered:
    found: list[Check] = []
    for place, field in enumerate(contract.fields):
        found += _checks(contract, field, _cell(number, place, field))
    return _Numbered(number, contract, tuple(found))


def _cell(number: int, place: int, field: Field) -> Cell:
    found, read = f"_found{number}", f"_read{number}"
    return Cell(f"{found}.v{place}", f"{read}.k{place}", f"{read}.t{place}", f"{found}.s{place}")


def _checks(contract: Contract, field: Field, cell: Cell) -> list[Check]:
    path = literal(field.name)
    if field.kind.name in ("array", "struct"):
        broken = nested_violation(contract, field, cell.variant, path)
        return [Check(f"({broken}).rule", f"{broken} IS NOT NULL", f"({broken}).reason")]
    return scalar_checks(field, cell, path)


# Steps


def _choice(contracts: Sequence[Contract]) -> str:
    cases = " ".join(f"WHEN {_topic_test(each)} THEN {literal(each.name)}" for each in contracts)
    return f"CASE {cases} END"


def _topic_test(contract: Contract) -> str:
    names = contract.topics.names
    if names:
        return f"topic IN ({', '.join(map(literal, names))})"
    whole = literal(f"(?d)\\A{contract.topics.regex}\\z")
    return f"topic RLIKE {whole}"


def _per_contract(every: Sequence[_Numbered], of: dict[int, str], otherwise: str) -> str:
    values = set(of.values())
    if len(values) == 1:
        return values.pop()
    cases = " ".join(f"WHEN {each.this} THEN {of[each.number]}" for each in every)
    return f"CASE {cases} ELSE {otherwise} END"


def _parsed(frame: "DataFrame", every: Sequence[_Numbered]) -> "DataFrame":
    most = _per_contract(every, {e.number: str(e.contract.max_bytes) for e in every}, "0")
    fault = (
        "CASE WHEN contract IS NULL THEN 0 "
        f"WHEN octet_length(value) > {most} THEN 1 "
        f"WHEN NOT is_valid_utf8({_TEXT}) THEN 2 "
        f"WHEN octet_length(value) > {2 * MOST_DEPTH} AND "
        f"length({_TEXT}) - length(translate({_TEXT}, '[{{', '')) > {MOST_DEPTH} "
        f"AND {_too_deep(_TEXT)} THEN 3 END"
    )
    json = f"try_parse_json(concat('[', {_TEXT}, ',\"{END}\"]'))"
    frame = frame.selectExpr("*", f"{fault} AS _fault")
    frame = frame.selectExpr("*", f"CASE WHEN _fault IS NULL THEN {json} END AS _json")
    whole = f"try_variant_get(_json, '$[1]', 'string') = '{END}'"
    fields = f"CASE WHEN {whole} THEN try_variant_get(_json, '$[0]', 'map<string,variant>') END"
    return frame.selectExpr("*", f"{fields} AS _map")


def _too_deep(text: str) -> str:
    """Takes the innermost brackets away, level by level, and sees whether any are left."""
    quoted = literal(r'"(?:[^"\\]|\\.)*+"'.replace("(?:", "(?s:"))
    bare = f"regexp_replace(regexp_replace({text}, {quoted}, ''), '[^\\\\[\\\\]{{}}]+', '')"
    rounds = f"translate({bare}, '[{{]}}', '(())')"
    peeled = f"aggregate(sequence(1, {MOST_DEPTH}), {rounds}, (s, i) -> replace(s, '()', ''))"
    return f"{peeled} <> ''"


def _read_fields(frame: "DataFrame", every: Sequence[_Numbered]) -> "DataFrame":
    frame = frame.selectExpr("*", *[f"{_found(each)} AS {each.found}" for each in every])
    return frame.selectExpr("*", *[f"{_read(each)} AS {each.read}" for each in every])


def _found(each: _Numbered) -> str:
    parts = []
    for place, field in enumerate(each.contract.fields):
        variant = f"try_element_at(_map, {literal(field.name)})"
        parts.append(f"'v{place}', {variant}")
        if source_text(field):
            parts.append(f"'s{place}', try_variant_get({variant}, '$', 'string')")
    return f"CASE WHEN {each.this} AND _map IS NOT NULL THEN named_struct({', '.join(parts)}) END"


def _read(each: _Numbered) -> str:
    parts = []
    for place, field in enumerate(each.contract.fields):
        cell = _cell(each.number, place, field)
        parts.append(f"'k{place}', schema_of_variant({cell.variant})")
        parts.append(f"'t{place}', {typed_value(field, cell)}")
    return f"CASE WHEN {each.found} IS NOT NULL THEN named_struct({', '.join(parts)}) END"


def _judged(frame: "DataFrame", every: Sequence[_Numbered]) -> "DataFrame":
    codes = " ".join(f"WHEN {each.found} IS NOT NULL THEN {_code(each)}" for each in every)
    bad = f"try_variant_get(_json, '$[1]', 'string') = '{END}'"
    frame = frame.selectExpr(
        "*",
        f"CASE WHEN _map IS NULL THEN coalesce(_fault, IF({bad}, 4, 3)) END AS _unread",
        f"{_event_time(every)} AS _event",
    )
    frame = frame.selectExpr("*", f"CASE {codes} END AS _code")
    late = _per_contract(
        every, {e.number: str(round(e.contract.lateness * 1e6)) for e in every}, "0"
    )
    verdict = (
        "CASE WHEN _unread IS NOT NULL OR _code IS NOT NULL THEN 'quarantine' "
        f"WHEN unix_micros(timestamp) - unix_micros(_event) > {late} THEN 'late' ELSE 'silver' END"
    )
    frame = frame.selectExpr("*", f"{verdict} AS _verdict")
    return frame.selectExpr(
        *[f"{name}" for name in RECORD if name in frame.columns],
        "contract",
        "_verdict",
        f"CASE WHEN _verdict = 'quarantine' THEN {_broken(every)} END AS _broken",
        "CASE WHEN _verdict <> 'quarantine' THEN _event END AS event_time",
        f"{_extra(every)} AS _extra",
        f"{_key(every)} AS _key",
        *[f"{_row(each)} AS {each.row}" for each in every],
    )


def _code(each: _Numbered) -> str:
    cases = [f"WHEN {check.condition} THEN {n}" for n, check in enumerate(each.checks)]
    contract = each.contract
    if contract.unknown in (Unknown.FREEZE, Unknown.DISCARD_ROW):
        cases.append(f"WHEN {_has_more(each)} THEN {_UNKNOWN}")
    if contract.event_time is not None:
        most = round(contract.future * 1e6)
        cases.append(f"WHEN unix_micros(_event) - unix_micros(timestamp) > {most} THEN {_FUTURE}")
    return f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS INT)"


def _has_more(each: _Numbered) -> str:
    """Whether there are fields that are not declared: then there are more than were found."""
    places = range(len(each.contract.fields))
    found = " + ".join(f"IF({each.found}.v{place} IS NULL, 0, 1)" for place in places)
    return f"cardinality(_map) > {found}"


def _more(each: _Numbered) -> str:
    """Which they are, by name."""
    names = ", ".join(literal(field.name) for field in each.contract.fields)
    return f"map_filter(_map, (k, x) -> NOT array_contains(array({names}), k))"


def _event_time(every: Sequence[_Numbered]) -> str:
    cases = []
    for each in every:
        for place, field in enumerate(each.contract.fields):
            if field.name == each.contract.event_time:
                cases.append(f"WHEN {each.this} THEN coalesce({each.read}.t{place}, timestamp)")
    return f"CASE {' '.join(cases)} ELSE timestamp END" if cases else "timestamp"


def _broken(every: Sequence[_Numbered]) -> str:
    """The rule and the sentence, for records that broke one."""
    cases = [
        "WHEN _unread = 0 THEN "
        + _pair("'contract'", "concat('no contract is for the topic ', topic)"),
        *[f"WHEN _unread = 1 AND {e.this} THEN " + _pair("'size'", _size(e)) for e in every],
        "WHEN _unread = 2 THEN " + _pair("'utf8'", literal(checks.UTF8_REASON)),
        "WHEN _unread = 3 AND octet_length(value) = 0 THEN "
        + _pair("'json'", literal(checks.EMPTY_REASON)),
        "WHEN _unread = 3 THEN " + _pair("'json'", literal(checks.JSON_REASON)),
        "WHEN _unread = 4 THEN " + _pair("'object'", literal(checks.OBJECT_REASON)),
    ]
    for each in every:
        inner = [
            f"WHEN {number} THEN {_pair(check.rule, check.reason)}"
            for number, check in enumerate(each.checks)
        ]
        rule = "discard_row" if each.contract.unknown is Unknown.DISCARD_ROW else "unknown"
        first = f"concat(array_min(map_keys({_more(each)})), ' is not in the contract')"
        inner.append(f"WHEN {_UNKNOWN} THEN {_pair(literal(rule), first)}")
        future = literal(checks.future_reason(each.contract))
        inner.append(f"WHEN {_FUTURE} THEN {_pair(literal('future'), future)}")
        cases.append(f"WHEN {each.this} THEN CASE _code {' '.join(inner)} END")
    return f"CASE {' '.join(cases)} END"


def _pair(rule: str, reason: str) -> str:
    return f"named_struct('rule', {rule}, 'reason', {reason})"


def _size(each: _Numbered) -> str:
    before, after = checks.size_reason(each.contract, "\0").split("\0")
    return f"concat({literal(before)}, octet_length(value), {literal(after)})"


def _extra(every: Sequence[_Numbered]) -> str:
    """Fields that were not declared, as JSON texts, where they become columns."""
    cases = []
    for each in every:
        if each.contract.unknown is Unknown.EVOLVE:
            values = f"map_filter({_more(each)}, (k, x) -> NOT is_variant_null(x))"
            cases.append(
                f"WHEN {each.found} IS NOT NULL AND _verdict = 'silver' AND {_has_more(each)} "
                f"THEN transform_values({values}, (k, x) -> to_json(x))"
            )
    kind = "CAST(NULL AS MAP<STRING, STRING>)"
    return f"CASE {' '.join(cases)} ELSE {kind} END" if cases else kind


def _key(every: Sequence[_Numbered]) -> str:
    cases = []
    for each in every:
        contract = each.contract
        if contract.key:
            names = [field.name for field in contract.fields]
            parts = [f"{each.read}.t{names.index(name)}" for name in contract.key]
            kinds = [contract.field(name).kind for name in contract.key]
            text = key_text(contract.name, list(zip(parts, kinds, strict=True)))
            cases.append(f"WHEN {each.this} AND _verdict = 'silver' THEN {text}")
    offset = "concat('@', CAST(offset AS STRING))"
    return f"coalesce(CASE {' '.join(cases)} END, {offset})" if cases else offset


def _row(each: _Numbered) -> str:
    parts = [
        f"{literal(field.column)}, {each.read}.t{place}"
        for place, field in enumerate(each.contract.fields)
    ]
    return (
        f"CASE WHEN {each.this} AND _verdict = 'silver' THEN named_struct({', '.join(parts)}) END"
    )
