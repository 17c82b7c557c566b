"""The options of `format("headwater")`. Each is declared once, as a field of one of these:

    ConnectionOptions   how to reach the broker: source and sink
    SourceOptions       the topics to read, and how much at a time
    SinkOptions         the topic to write to, and the one for rows that cannot be messages

Parsing, error messages and the table in the documentation are made from the declarations. Names
and meanings are those of Spark's Kafka connector wherever it has them; a deviation is said in the
meaning. Spark hands options over as text, and the case of their names means nothing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal, TypeVar, dataclass_transform

from headwater import units
from headwater.errors import ConfigError
from headwater.units import Address, Kind

T = TypeVar("T")
S = TypeVar("S", "SourceOptions", "SinkOptions")

Side = Literal["source", "sink", "both"]
Mode = Literal["batch", "streaming"]

_MOST = 10**18 - 1
#: Spark's own options, which it hands over with the others.
_OF_SPARK = frozenset(("path", "paths", "checkpointlocation", "queryname", "outputmode"))
#: Names of Kafka's options, with the names here.
_OF_KAFKA = {
    "kafka.bootstrap.servers": "servers",
    "assign": "subscribe",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "endingoffsetsbytimestamp": "endingTimestamp",
    "fetchoffset.numretries": "fetch.numRetries",
    "fetchoffset.retryintervalms": "fetch.retryIntervalMs",
    "kafka.ssl.truststore.location": "tls.caFile",
    "kafka.ssl.keystore.location": "tls.certFile",
}


class Edge(Enum):
    """An end of the log, at the time of the look."""

    EARLIEST = "earliest"
    LATEST = "latest"


#: The offset to start or to end at.
Position = Edge | int


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of one option."""

    name: str
    kind: Kind[Any]
    default: str  # as a user would write it; empty if there is none
    meaning: str
    side: Side
    #: The mode outside of which it means nothing.
    only: Mode | None

    @property
    def use(self) -> str:
        """Its side and mode, in words."""
        side = "source, sink" if self.side == "both" else self.side
        return f"{side} ({self.only})" if self.only else side


# The kinds that only options have


def _addresses() -> Kind[tuple[Address, ...]]:
    one = units.address()

    def read(value: object) -> tuple[Address, ...]:
        found = tuple(one.read(each) for each in _listed(value))
        if not all(each.port for each in found):
            raise ValueError(value)
        return found

    words = "addresses with ports, separated by commas, such as `localhost:8815,other:8815`"
    return Kind(words, read, lambda found: ",".join(map(str, found)))


def _topics() -> Kind[tuple[str, ...]]:
    return Kind("topics, separated by commas", lambda value: tuple(_listed(value)), list)


def _listed(value: object) -> list[str]:
    found = [each.strip() for each in str(value).split(",")]
    if not all(found):
        raise ValueError(value)
    return found


def _position(*edges: Edge) -> Kind[Position]:
    def read(value: object) -> Position:
        text = str(value).strip()
        if text.startswith("{"):
            text = _from_json(text)
        for each in edges:
            if text.lower() == each.value:
                return each
        return offset.read(offset.from_text(text))

    offset = units.whole_number(0, _MOST)
    named = ", ".join(f"`{each.value}`" for each in edges)
    words = f'{named}, an offset such as `42`, or JSON such as `{{"offset": 42}}`'
    advice = "offsets are of the whole log here, not of topics and partitions"
    return Kind(words, read, str, advice=advice, choices=tuple(each.value for each in edges))


def _from_json(text: str) -> str:
    content = json.loads(text)  # a JSONDecodeError is a ValueError
    if set(content) != {"offset"}:
        raise ValueError(text)
    return str(content["offset"])


def _delay() -> Kind[float]:
    """A duration with its unit: Kafka's connector takes a number alone for milliseconds, and
    everything else here for seconds."""

    def read(value: object) -> float:
        if str(value).strip()[-1:].isdigit():
            raise ValueError(value)
        return duration.read(value)

    duration = units.duration("1ms", "365d")
    return replace(duration, words="a duration with its unit, such as `15m` or `30s`", read=read)


def _number(low: int) -> Kind[int]:
    return replace(units.whole_number(low, _MOST), words=f"a whole number of at least {low}")


def _switch() -> Kind[bool]:
    return replace(units.boolean(), words="`true` or `false`")


def _pattern() -> Kind[str]:
    return replace(units.text(1, 65535), words="a PCRE pattern, such as `sensors/.*`")


# How an option is declared


def option(name: str, kind: Kind[T], default: str, meaning: str, only: Mode | None = None) -> T:
    about = Option(name, kind, default, meaning, "both", only)
    declared: T = field(default=kind.read(kind.from_text(default)), metadata={"option": about})
    return declared


def optional(
    name: str, kind: Kind[T], meaning: str, only: Mode | None = None, default: str = ""
) -> T | None:
    """An option that has no value unless it is given. `default` says what that means."""
    about = Option(name, kind, default, meaning, "both", only)
    declared: T | None = field(default=None, metadata={"option": about}, repr=not kind.secret)
    return declared


@dataclass_transform(frozen_default=True, kw_only_default=True)
def options(cls: type[T]) -> type[T]:
    """Make a class one whose fields are options."""
    return dataclass(frozen=True, kw_only=True)(cls)


@options
class ConnectionOptions:
    """The options for reading and writing."""

    servers: tuple[Address, ...] = option(
        "servers",
        _addresses(),
        "localhost:8815",
        "Where the broker listens for Arrow Flight (`[listen] flight`). The next one is tried when "
        "one does not answer.",
    )
    token: str | None = optional(
        "token", units.secret(), "The token that the broker expects (`[flight] token`)."
    )
    tls: bool = option("tls.enabled", _switch(), "false", "Whether the broker uses TLS.")
    ca_file: Path | None = optional(
        "tls.caFile",
        units.path(),
        "The certificate of the authority that signed the broker's (PEM). The file is read where "
        "the query is started.",
        default="those the system trusts",
    )
    certificate_file: Path | None = optional(
        "tls.certFile",
        units.path(),
        "The certificate to show (PEM), if the broker asks clients for one. The file is read where "
        "the query is started.",
    )
    key_file: Path | None = optional(
        "tls.keyFile", units.path(), "The key of that certificate (PEM)."
    )
    retries: int = option(
        "fetch.numRetries",
        _number(0),
        "10",
        "The number of retries when no server answers.",
    )
    retry_interval: int = option(
        "fetch.retryIntervalMs",
        _number(0),
        "1000",
        "Milliseconds to wait before each of these retries.",
    )

    def check(self) -> None:
        """Raise ConfigError if the options do not go together."""
        names = ("tls.caFile", "tls.certFile", "tls.keyFile")
        files = (self.ca_file, self.certificate_file, self.key_file)
        given = [name for name, file in zip(names, files, strict=True) if file is not None]
        if given and not self.tls:
            raise ConfigError(
                f"the option {given[0]} means nothing without TLS: set tls.enabled to true, too"
            )
        if (self.certificate_file is None) != (self.key_file is None):
            raise ConfigError("the options tls.certFile and tls.keyFile belong together")

    def check_mode(self, mode: Mode) -> None:
        """Raise ConfigError if something was given that has no effect in this mode."""
        for each in fields(self):
            declared: Option = each.metadata["option"]
            given = getattr(self, each.name) != each.default
            if given and declared.only not in (None, mode):
                raise ConfigError(_out_of_place(declared, mode))


@options
class SourceOptions(ConnectionOptions):
    subscribe: tuple[str, ...] | None = optional(
        "subscribe",
        _topics(),
        "The topics to read. Exactly one of `subscribe` and `subscribePattern` has to be given.",
    )
    pattern: str | None = optional(
        "subscribePattern",
        _pattern(),
        "A pattern for the topics to read, which matches the whole topic.",
    )
    start: Position | None = optional(
        "startingOffsets",
        _position(Edge.EARLIEST, Edge.LATEST),
        "The offset to start at. A stream that has a checkpoint goes on from there instead.",
        default="latest; in batch: earliest",
    )
    end: Position | None = optional(
        "endingOffsets",
        _position(Edge.LATEST),
        "The offset to end before.",
        "batch",
        default="latest",
    )
    start_time: int | None = optional(
        "startingTimestamp",
        _number(0),
        "Start with the first message that came then or later (milliseconds since 1970). Goes "
        "before `startingOffsets`.",
    )
    end_time: int | None = optional(
        "endingTimestamp",
        _number(0),
        "End before the first message that came then or later (milliseconds since 1970). Goes "
        "before `endingOffsets`.",
        "batch",
    )
    most_offsets: int | None = optional(
        "maxOffsetsPerTrigger",
        _number(1),
        "The most offsets in a micro-batch. Offsets of other topics count.",
        "streaming",
    )
    most_bytes: int | None = optional(
        "maxBytesPerTrigger",
        replace(units.size("1"), words="a size, such as `64MiB`"),
        "About the most bytes of the log in a micro-batch. Bytes of other topics count.",
        "streaming",
    )
    least_offsets: int | None = optional(
        "minOffsetsPerTrigger",
        _number(1),
        "Wait until there are so many offsets, or until `maxTriggerDelay` is over.",
        "streaming",
    )
    most_delay: float = option(
        "maxTriggerDelay",
        _delay(),
        "15m",
        "The longest time that `minOffsetsPerTrigger` may hold back a micro-batch.",
        "streaming",
    )
    least_partitions: int | None = optional(
        "minPartitions",
        replace(units.whole_number(1, 100_000), words="a whole number from 1 to 100000"),
        "The fewest partitions that a range of offsets is cut into.",
        default="by size",
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        _switch(),
        "true",
        "Whether to stop when offsets that should be read are no longer in the log. If `false`, "
        "the missing range is logged and reading goes on behind it.",
    )
    headers: bool = option(
        "includeHeaders", _switch(), "false", "Whether there is a column `headers`."
    )

    def check(self) -> None:
        super().check()
        if (self.subscribe is None) == (self.pattern is None):
            raise ConfigError(
                "give exactly one of the options subscribe (topics, separated by commas) and "
                "subscribePattern (a PCRE pattern for the whole topic)"
            )
        least, most = self.least_offsets, self.most_offsets
        if least is not None and most is not None and least > most:
            raise ConfigError(
                f"the option minOffsetsPerTrigger must not be more than maxOffsetsPerTrigger: "
                f"write at most {most}, not {least}"
            )


@options
class SinkOptions(ConnectionOptions):
    topic: str | None = optional(
        "topic",
        replace(units.topic(), words="a topic"),
        "The topic of all rows. Without it, each row says its own in the column `topic`.",
    )
    dead_letter_topic: str | None = optional(
        "deadLetterTopic",
        replace(units.topic(), words="a topic"),
        "The topic for rows that cannot be messages. Without it, such rows fail the batch.",
    )
    producer: str | None = optional(
        "producer",
        units.text(1, 150),
        "A name for this write. A write with a name that was used before writes nothing.",
        "batch",
    )


def _declared(kind: type[ConnectionOptions]) -> Iterator[tuple[str, Option]]:
    """The fields of a class of options, with the declaration of each."""
    side: Side = "source" if kind is SourceOptions else "sink" if kind is SinkOptions else "both"
    shared = {each.name for each in fields(ConnectionOptions)}
    for each in fields(kind):
        about: Option = each.metadata["option"]
        yield each.name, about if each.name in shared else replace(about, side=side)


_SHARED = [option for _, option in _declared(ConnectionOptions)]

#: Every option there is, in the order of the documentation.
OPTIONS: tuple[Option, ...] = (
    *_SHARED,
    *(
        option
        for kind in (SourceOptions, SinkOptions)
        for _, option in _declared(kind)
        if option.side != "both"
    ),
)


def parse(kind: type[S], given: Mapping[str, str]) -> S:
    """Options of this kind. Raises ConfigError, which names the option and what to write."""
    texts = {name.lower(): (name, text) for name, text in given.items()}
    values: dict[str, Any] = {}
    for attribute, declared in _declared(kind):
        if (found := texts.pop(declared.name.lower(), None)) is not None:
            values[attribute] = _value(declared, found[1])
    for lower, (name, _) in texts.items():
        if lower not in _OF_SPARK and not lower.startswith("spark."):
            raise ConfigError(_unknown(name, kind))
    parsed = kind(**values)
    parsed.check()
    return parsed


def _value(declared: Option, text: str) -> Any:
    kind = declared.kind
    try:
        return kind.read(kind.from_text(text))
    except (ValueError, TypeError, RecursionError):
        wrong = f"the option {declared.name} must be {kind.words}"
        if not kind.secret:
            wrong += f", not {units.show(text)}{units.did_you_mean(text, kind.choices)}"
        raise ConfigError(f"{wrong}{'; ' if kind.advice else ''}{kind.advice}") from None


def _out_of_place(declared: Option, mode: Mode) -> str:
    advice = {
        "endingOffsets": "; a stream has no end",
        "endingTimestamp": "; a stream has no end",
        "producer": "; a stream is known by its checkpoint",
    }.get(declared.name, "")
    here = "in batch" if mode == "batch" else "in a streaming query"
    return f"the option {declared.name} means nothing {here}: leave it out{advice}"


def _unknown(name: str, kind: type[ConnectionOptions]) -> str:
    known = {option.name.lower(): option for option in OPTIONS}
    if name.lower() in known:
        there, here = ("source", "sink") if kind is SinkOptions else ("sink", "source")
        declared = known[name.lower()]
        return f"the option {declared.name} is one of the {there}, not of the {here}: leave it out"
    if meant := _OF_KAFKA.get(name.lower()):
        return f'there is no option "{name}"; here it is called "{meant}"'
    if name.lower().startswith("kafka."):
        return f'there is no option "{name}": leave out what is meant for a Kafka client'
    names = {declared.name.lower(): declared.name for _, declared in _declared(kind)}
    hint = units.did_you_mean(name.lower(), names)
    for lower, written in names.items():
        hint = hint.replace(f'"{lower}"', f'"{written}"')
    return f'there is no option "{name}"{hint}'


def table() -> str:
    """The options as a table in Markdown."""
    head = "| Option | Value | Default | For | Meaning |\n| --- | --- | --- | --- | --- |"
    return "\n".join([head, *map(_row, OPTIONS)])


def _row(declared: Option) -> str:
    default = declared.default if " " in declared.default else f"`{declared.default}`"
    cells = (
        f"`{declared.name}`",
        declared.kind.words.replace("|", "\\|"),
        default if declared.default else "",
        declared.use,
        declared.meaning,
    )
    return f"| {' | '.join(cells)} |"
