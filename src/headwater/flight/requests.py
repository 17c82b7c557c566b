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

A request is bounded: in its bytes, in the length of texts and lists, and numbers fit into 64 bits.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

import pyarrow as pa

from headwater.errors import Code, Refusal
from headwater.flight.patterns import TopicPattern

#: A request as JSON.
MOST_BYTES = 4 << 20
MOST_NUMBER = 2**63 - 1
#: Texts that are no pattern: topics, and names of queries, producers and attempts.
MOST_TEXT_BYTES = 65_535
MOST_TOPICS = 10_000
MOST_PARTS = 10_000
#: What is nested deeper in a report, nobody looks at.
MOST_DEPTH = 32
#: Topics in one answer.
MOST_LISTED = 10_000

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
        return None if self.pattern is None else TopicPattern(self.pattern).matches


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
    """The topics of the log in their order, at most MOST_LISTED of them."""

    pattern: str | None = None
    after: str = ""
    limit: int = 1000


@dataclass(frozen=True, slots=True)
class Split:
    """Cut a range into pieces of about `bytes` each, or of more if there would be too many."""

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


def parse_put(body: bytes) -> Append | Stage:
    """What is to become of the rows that follow. Raises Refusal with a sentence."""
    content = _object(body)
    kind = {"append": Append, "stage": Stage}.get(str(content.pop("do", "")))
    if kind is None:
        raise Refusal(Code.MALFORMED, 'say {"do": "append"} or {"do": "stage"}')
    made: Append | Stage = _made(kind, content)
    return made


def parse(kind: type[T], body: bytes) -> T:
    """A request of this kind. Raises Refusal with a sentence."""
    return _made(kind, _object(body))


def _object(body: bytes) -> dict[str, Any]:
    if len(body) > MOST_BYTES:
        raise Refusal(Code.TOO_LARGE, f"a request has at most {MOST_BYTES} bytes")
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise Refusal(Code.MALFORMED, "a request is a JSON object")
    return content


def _made(kind: type[T], content: dict[str, Any]) -> T:
    declared = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    if unknown := content.keys() - declared.keys():
        named = ", ".join(sorted(unknown)[:3])[:100]
        raise Refusal(Code.MALFORMED, f"there is no {named} in this request")
    for name, each in declared.items():
        optional = each.default is not MISSING or each.default_factory is not MISSING
        if name not in content and not optional:
            raise Refusal(Code.MALFORMED, f"{name} is missing")
        wanted = each.type.__name__ if isinstance(each.type, type) else str(each.type)
        words, fits = _KINDS[wanted]
        if name in content and not fits(content[name]):
            raise Refusal(Code.MALFORMED, f"{name} has to be {words}")
    return kind(**content)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_NUMBER


def _is_text(value: Any) -> bool:
    """A text that UTF-8 can say, and that is not too long."""
    if not isinstance(value, str):
        return False
    try:
        return len(value.encode()) <= MOST_TEXT_BYTES
    except UnicodeEncodeError:
        return False


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_TOPICS and all(map(_is_text, value))


def _are_parts(value: Any) -> bool:
    if not isinstance(value, dict) or len(value) > MOST_PARTS:
        return False
    return all(map(_is_text, value.keys())) and all(map(_is_text, value.values()))


def _is_shallow(value: Any) -> bool:
    """An object that is not nested too deep: whoever writes or shows it follows it down."""
    level: list[Any] = [value]
    for _ in range(MOST_DEPTH):
        level = [inner for each in level for inner in _inside(each)]
    return isinstance(value, dict) and not level


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _or_none(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


#: What a value of each declared type has to be: in words, and whether one is.
_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": (f"a whole number from 0 to {MOST_NUMBER}", _is_number),
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "str": (f"a text of at most {MOST_TEXT_BYTES} bytes in UTF-8", _is_text),
    "str | None": (f"a text of at most {MOST_TEXT_BYTES} bytes in UTF-8", _or_none(_is_text)),
    "list[str] | None": (f"a list of at most {MOST_TOPICS} texts", _or_none(_is_list)),
    "dict[str, str]": (f"an object of at most {MOST_PARTS} texts", _are_parts),
    "dict[str, typing.Any]": (
        f"an object that is nested at most {MOST_DEPTH} deep",
        _is_shallow,
    ),
}
