"""A draft of a contract, inferred from the newest messages of a topic. Needs no Spark.

Ranges and keys are guesses and stand in comments, because messages alone do not say them: a person
has to read the draft. The sampled records fit it: a field with values of several types is left to
`unknown: evolve`.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain, count
from typing import Any

from headwater.errors import HeadwaterError
from headwater.pipeline.contracts import document
from headwater.pipeline.contracts.model import OWN_COLUMNS
from headwater.pipeline.contracts.reading import column_of
from headwater.pipeline.contracts.values import date_of, time_of
from headwater.spark.flight_client import FlightClient, RecordSelection

#: Fields that are looked at in one record, and how deep.
MOST_FIELDS = 200
_WINDOW = 100_000
_MOST_BYTES = 1024 * 1024
MIXED = "mixed"
#: Kinds that JSON writes as a text.
_TEXTS = {"string", "timestamp", "date"}
_KEYS = ("id", "uuid", "key", "_id")
_TIMES = ("event_time", "timestamp", "time", "ts", "at", "created_at", "date")
#: Numbers that are times of the years 2001 to 2286.
_SECONDS = range(10**9, 10**10)
_MILLISECONDS = range(10**12, 10**13)


@dataclass
class FieldSample:
    """The values found in one field."""

    count: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    low: Any = None
    high: Any = None
    inside: dict[str, "FieldSample"] = field(default_factory=dict)
    items: "FieldSample | None" = None

    def add(self, value: Any) -> None:
        self.count += 1
        kind = kind_of(value)
        self.kinds[kind] += 1
        if isinstance(value, dict):
            _add_members(self.inside, value)
        elif isinstance(value, list):
            self.items = self.items or FieldSample()
            for each in value[:MOST_FIELDS]:
                self.items.add(each)
        elif kind in ("long", "double"):
            self.low = value if self.low is None else min(self.low, value)
            self.high = value if self.high is None else max(self.high, value)

    @property
    def kind(self) -> str:
        found = set(self.kinds) - {"null"}
        if len(found) == 1:
            return next(iter(found))
        if found <= _TEXTS:  # or there was never a value
            return "string"
        return "double" if found == {"long", "double"} else MIXED

    @property
    def unit(self) -> str | None:
        """The unit of numbers that look like times."""
        if self.kind != "long" or self.low is None:
            return None
        for unit, likely in (("s", _SECONDS), ("ms", _MILLISECONDS)):
            if self.low in likely and self.high in likely:
                return unit
        return None


def _add_members(members: dict[str, FieldSample], value: dict[str, Any]) -> None:
    for name, each in value.items():
        if name in members or len(members) < MOST_FIELDS:
            members.setdefault(name, FieldSample()).add(each)


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long"
    if isinstance(value, float | Decimal):
        return "double"
    if isinstance(value, str):
        return "timestamp" if time_of(value) else "date" if date_of(value) else "string"
    return "array" if isinstance(value, list) else "struct"


@dataclass(frozen=True, slots=True)
class Sample:
    """The messages sampled from a topic."""

    topic: str
    records: int
    objects: int
    fields: dict[str, FieldSample]


def sample(
    broker: FlightClient, topic: str, most: int, progress: Callable[[int, int], None] | None = None
) -> Sample:
    """Look at the newest `most` messages of a topic."""
    values = _newest(broker, topic, most, progress or (lambda done, of: None))
    return summed(topic, values)


def summed(topic: str, values: Iterable[bytes]) -> Sample:
    members: dict[str, FieldSample] = {}
    records = objects = 0
    for value in values:
        records += 1
        found = _object(value)
        if found is not None:
            objects += 1
            _add_members(members, found)
    if not records:
        raise HeadwaterError(f"there is nothing in the topic {topic} yet")
    if not objects:
        raise HeadwaterError(f"none of {records} messages of {topic} is a JSON object")
    return Sample(topic, records, objects, members)


def _object(value: bytes) -> dict[str, Any] | None:
    if len(value) > _MOST_BYTES:
        return None
    try:
        found = document.parse(value.decode())
    except (document.NotJson, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _newest(
    broker: FlightClient, topic: str, most: int, progress: Callable[[int, int], None]
) -> Iterator[bytes]:
    """The newest messages, from the end of the log backward, window by window."""
    log = broker.log()
    selection, end, left = RecordSelection(topics=(topic,)), log.end, most
    while end > log.start and left > 0:
        start = max(log.start, end - _WINDOW)
        kept: list[bytes] = []
        for batch in broker.read(selection, start, end):
            kept = (kept + batch.column("value").to_pylist())[-left:]
        yield from kept
        left -= len(kept)
        end = start
        progress(log.end - end, log.end - log.start)


# Writing

#: Names that a contract can have. (Longer ones it could, but not with a prefix.)
_NAMED = re.compile(r"[^'\"`\\\[\]\x00-\x1f]{1,100}")
_YAML_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def draft(found: Sample) -> str:
    """The contract as YAML, with comments."""
    if not _declared(found.fields):
        raise HeadwaterError(f"no field of {found.topic} has a name and a type to write down")
    other = found.records - found.objects
    lines = [
        f"# Drafted from {found.records} messages of {_quoted(found.topic)}.",
        *([f"# {other} of them are no JSON objects and would go to quarantine."] if other else []),
        f"name: {_contract_name(found.topic)}",
        "version: 1",
        f"topics: [{_quoted(found.topic)}]",
        "format: json",
        *_guesses(found),
        "unknown: evolve  # or freeze, discard_row, discard_value",
        "fields:",
        *_all_lines(found.fields, found.objects, "  ", OWN_COLUMNS),
    ]
    return "\n".join(lines) + "\n"


def _contract_name(topic: str) -> str:
    name = re.sub(r"\W+", "_", topic, flags=re.ASCII).strip("_").lower()[:60]
    return name if name[:1].isalpha() else f"t_{name}"


def _guesses(found: Sample) -> Iterator[str]:
    fields = _declared(found.fields)

    def always(name: str) -> bool:
        seen = fields.get(name)
        return seen is not None and seen.count == found.objects and not seen.kinds["null"]

    scalar = ("string", "long", "boolean", "timestamp", "date")
    key = next((n for n in _KEYS if always(n) and fields[n].kind in scalar), None)
    yield f"key: [{key}]  # a guess" if key else "# key: [id]  # no field looks like one"
    time = _time_guess(fields)
    yield f"event_time: {_quoted(time)}  # a guess" if time else "# event_time: none looks like it"
    if time:
        yield "lateness: 10m"
        yield "future: 5m"


def _time_guess(fields: dict[str, FieldSample]) -> str | None:
    times = [n for n, seen in fields.items() if seen.kind == "timestamp" or seen.unit]
    return next((n for n in _TIMES if n in times), times[0] if times else None)


def _declared(members: dict[str, FieldSample]) -> dict[str, FieldSample]:
    """The fields that a contract can name, and that have one type."""
    return {name: seen for name, seen in members.items() if _NAMED.fullmatch(name) and _type(seen)}


def _all_lines(
    members: dict[str, FieldSample], records: int, indent: str, taken: Collection[str] = ()
) -> Iterator[str]:
    """`records`: how many could have had these fields; `taken`: columns that are there already."""
    declared, columns = _declared(members), set(taken)
    for name, seen in members.items():
        if name not in declared:
            kinds = ", ".join(sorted(set(seen.kinds) - {"null"}))
            yield f"{indent}# {_quoted(name)} is left out; its values are: {kinds}"
            continue
        column = _free_column(name, columns)
        columns.add(column.lower())
        yield f"{indent}{_quoted(name)}:"
        if column != column_of(name):
            yield f"{indent}  column: {column}"
        yield from _field_lines(seen, records, f"{indent}  ")


def _free_column(name: str, taken: Collection[str]) -> str:
    base = column_of(name)
    mine = f"my_{base.lower().strip('_')}"
    tries = chain((base, mine), (f"{mine}_{number}" for number in count(2)))
    return next(each for each in tries if each.lower() not in taken)


def _field_lines(seen: FieldSample, records: int, indent: str) -> Iterator[str]:
    kind = _type(seen)
    yield f"{indent}type: {kind}"
    if seen.unit:
        yield f"{indent}unit: {seen.unit}"
    if seen.count == records and not seen.kinds["null"]:
        yield f"{indent}required: true"
    elif seen.count < records:
        yield f"{indent}# in {seen.count} of {records}"
    if kind in ("long", "double"):
        yield f"{indent}# min: {seen.low}"
        yield f"{indent}# max: {seen.high}"
    inner = _innermost(seen)
    if inner.kind == "struct":
        yield f"{indent}fields:"
        yield from _all_lines(inner.inside, inner.kinds["struct"], f"{indent}  ")


def _type(seen: FieldSample) -> str | None:
    """The type as it is written; None if there is none that takes all values."""
    if seen.kind == "array":
        # A unit is of the field itself, so times as numbers are numbers in an array.
        item = seen.items and (seen.items.kind if seen.items.unit else _type(seen.items))
        return f"array<{item}>" if item else None if seen.items else "array<string>"
    if seen.kind == MIXED or (seen.kind == "struct" and not _declared(seen.inside)):
        return None
    return "timestamp" if seen.unit else seen.kind


def _innermost(seen: FieldSample) -> FieldSample:
    """The items of arrays, below all levels."""
    return _innermost(seen.items) if seen.kind == "array" and seen.items else seen


def _quoted(text: str) -> str:
    """A text in YAML, without quotes where none are needed."""
    if re.fullmatch(r"[A-Za-z_][\w/.-]*", text) and text.lower() not in _YAML_WORDS:
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(letter: str) -> str:
    if letter in '\\"':
        return f"\\{letter}"
    return letter if letter.isprintable() else f"\\U{ord(letter):08x}"
