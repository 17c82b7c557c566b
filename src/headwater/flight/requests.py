"""What a Flight client can ask for. Everything is JSON; unknown members are refused by name.

    do_get(ticket)      {"start": 0, "end": 100, "pattern": "a/.*", "headers": true}
                        (or "topics": [...] instead of a pattern, or neither for all of them)
                        the messages of a range of offsets, one row each (see `READ_SCHEMA`)
    do_put(command)     {"do": "append", "producer": "p", "sequence": 7}
                        {"do": "stage", "query": "q", "batch": 7, "partition": 0, "attempt": "x"}
                        rows to be appended (see `WRITE_SCHEMA`); answered by metadata
    do_action           log, offset_at, topics, split, commit, abort, committed, report: see
                        service.py

A range is [start, end): `end` is behind the last offset. A pattern is PCRE for the whole topic.
"""

import json
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

import pyarrow as pa

from headwater.errors import Code, Refusal
from headwater.filters import RegexFilter

T = TypeVar("T")

#: Arrow and SQLite have whole numbers of 64 bits.
MOST_INT = 2**63 - 1

HEADERS = pa.map_(pa.string(), pa.string())

#: What a reader gets; `headers` only if it asks for them.
READ_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("protocol", pa.string(), nullable=False),
        pa.field("publisher", pa.string(), nullable=False),
        pa.field("headers", HEADERS, nullable=False),
    ]
)

#: What a writer sends. `headers` may be left out.
WRITE_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("headers", HEADERS),
    ]
)


@dataclass(frozen=True, slots=True)
class Read:
    start: int
    end: int
    topics: list[str] | None = None
    pattern: str | None = None
    headers: bool = False

    def wanted(self) -> Callable[[str], bool] | None:
        """Says which topics are asked for; None: all of them."""
        if self.topics is not None and self.pattern is not None:
            raise Refusal(Code.MALFORMED, "give either topics or a pattern, not both")
        if self.topics is not None:
            return frozenset(self.topics).__contains__
        return None if self.pattern is None else RegexFilter.parse(self.pattern).matches


@dataclass(frozen=True, slots=True)
class Append:
    """Rows that are appended at once, unless the producer has sent this sequence before."""

    producer: str
    sequence: int


@dataclass(frozen=True, slots=True)
class Stage:
    """Rows that are kept aside until their batch is committed."""

    query: str
    batch: int
    partition: int
    attempt: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """Make a batch visible. `parts` names the attempt of each partition that counts."""

    query: str
    batch: int
    parts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Abort:
    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    query: str


@dataclass(frozen=True, slots=True)
class OffsetAt:
    timestamp: int  # microseconds since 1970


@dataclass(frozen=True, slots=True)
class ListTopics:
    pattern: str | None = None
    after: str = ""
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Split:
    """Cut a range into pieces of about `bytes` each."""

    start: int
    end: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SubmitReport:
    """What a pipeline says of itself, for the console."""

    pipeline: str
    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Nothing:
    """A request without arguments."""


def parse(kind: type[T], body: bytes) -> T:
    """A request of this kind. Raises Refusal with a sentence."""
    try:
        content = json.loads(body or b"{}")
    except ValueError:
        raise Refusal(Code.MALFORMED, "a request is a JSON object") from None
    if not isinstance(content, dict):
        raise Refusal(Code.MALFORMED, "a request is a JSON object")
    declared = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    if unknown := content.keys() - declared.keys():
        raise Refusal(Code.MALFORMED, f"there is no {', '.join(sorted(unknown))} in this request")
    for name, each in declared.items():
        optional = each.default is not MISSING or each.default_factory is not MISSING
        if name not in content and not optional:
            raise Refusal(Code.MALFORMED, f"{name} is missing")
        wanted = each.type.__name__ if isinstance(each.type, type) else str(each.type)
        if name in content and not _fits(content[name], wanted):
            raise Refusal(Code.MALFORMED, f"{name} has to be {_WORDS[wanted]}")
    return kind(**content)


_WORDS = {
    "int": "a whole number from 0 to 9223372036854775807",
    "str": "a text",
    "bool": "true or false",
    "str | None": "a text",
    "list[str] | None": "a list of texts",
    "dict[str, str]": "an object of texts",
    "dict[str, typing.Any]": "an object",
}


def _fits(value: Any, declared: str) -> bool:
    if declared == "int":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_INT
    if declared == "bool":
        return isinstance(value, bool)
    if declared.startswith("list"):
        return value is None or (
            isinstance(value, list) and all(isinstance(each, str) for each in value)
        )
    if declared == "dict[str, typing.Any]":
        return isinstance(value, dict)
    if declared.startswith("dict"):
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    return isinstance(value, str) or (value is None and "None" in declared)
