"""Sessions: who publishes, since when, with which gaps, and who has fallen silent.

    protocol, publisher, first_seen        the key: a session is known by its first message
    last_seen                              arrival of its last message
    messages, bytes
    largest_gap                            seconds, between two messages of the session
    gaps                                   how many were longer than `headwater.sessions.gap`
    state                                  active; silent after `headwater.sessions.silence`

A publisher that is heard again after it was silent has a new session. The clock is that of the log:
when nobody publishes anything, time stands still, and a replay of the log gives the same sessions.

Everything here is made of **spans**: a stretch of one publisher's messages. A message is a span,
spans of one publisher that are near each other are one span (`joined`), and the state of a session
is its span so far. So records are condensed by the same function before and behind the operator.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ConfigError
from headwater.pipeline.gold import condense
from headwater.pipeline.project.settings import setting
from headwater.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

KEYS = ("protocol", "publisher", "first_seen")
PROPERTIES = {"headwater.keys": ",".join(KEYS), "headwater.trigger": "5 seconds"}
#: The operator keeps its state in RocksDB only, and Spark means something else by itself.
CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
GAP_SECONDS, SILENCE_SECONDS = 10.0, 60.0
#: Behind the newest message, so that no other message of the same instant is late.
WATERMARK = "1 second"

_STAMP = pa.timestamp("us", tz="UTC")
SPANS = pa.schema(
    [
        ("protocol", pa.string()),
        ("publisher", pa.string()),
        ("first_seen", pa.int64()),  # microseconds since 1970, as the next one
        ("last_seen", pa.int64()),
        ("messages", pa.int64()),
        ("bytes", pa.int64()),
        ("largest_gap", pa.int64()),  # microseconds
        ("gaps", pa.int64()),
    ]
)
CONDENSED = (
    "protocol string, publisher string, first_seen bigint, last_seen bigint, messages bigint,"
    " bytes bigint, largest_gap bigint, gaps bigint, until timestamp"
)
_TABLE = (
    "protocol string, publisher string, first_seen timestamp, last_seen timestamp,"
    " messages bigint, bytes bigint, largest_gap double, gaps bigint, state string"
)
_STATE = (
    "first_seen bigint, last_seen bigint, messages bigint, bytes bigint, largest_gap bigint,"
    " gaps bigint"
)


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Microseconds. A longer gap is counted; a silence that is longer still ends a session."""

    gap: int
    silence: int

    @classmethod
    def of(cls, gap_seconds: float, silence_seconds: float) -> "SessionLimits":
        return cls(int(gap_seconds * 1e6), int(silence_seconds * 1e6))


def frame() -> "DataFrame":
    """The table, as a stream from the log."""
    from pyspark.sql import SparkSession

    from headwater.pipeline.gold import source

    spark = SparkSession.active()
    gap = seconds(spark, "sessions.gap", GAP_SECONDS)
    silence = seconds(spark, "sessions.silence", SILENCE_SECONDS)
    limits = SessionLimits.of(gap, silence)
    return rows(source.stream("sessions", gap=gap, silence=silence), limits)


def seconds(spark: "SparkSession", name: str, default: float) -> float:
    text = setting(spark, name)
    try:
        return parse_duration(text) if text else default
    except ValueError:
        raise ConfigError(f"headwater.{name} must be a duration such as 10s, not {text}") from None


def rows(spans: "DataFrame", limits: SessionLimits) -> "DataFrame":
    """The table, from a stream of spans (see `condensed`)."""
    from headwater.spark.jvm import is_remote

    return (
        spans.withWatermark("until", WATERMARK)
        .to(columns(CONDENSED))  # so that the operator does not ask Spark for them
        .groupBy("protocol", "publisher")
        .transformWithStateInPandas(
            statefulProcessor=_processor(limits),
            outputStructType=columns(_TABLE),
            # Spark's own runner only appends: there, each state of a session is a row.
            outputMode="Append" if is_remote() else "Update",
            timeMode="EventTime",
        )
    )


def columns(written: str) -> "StructType":
    """Columns, without asking Spark what the text means: where Spark's own runner defines tables,
    that is refused."""
    from pyspark.sql import types

    kinds = {
        "string": types.StringType(),
        "bigint": types.LongType(),
        "double": types.DoubleType(),
        "timestamp": types.TimestampType(),
    }
    pairs = [each.split() for each in written.split(",")]
    return types.StructType([types.StructField(name, kinds[kind]) for name, kind in pairs])


def condensed(batches: Iterator[Any], limits: SessionLimits) -> Iterator[Any]:
    """Spans of record batches of the log, in the columns of CONDENSED."""
    spans = condense.condensed(batches, partial(of_records, limits=limits), partial(joined, limits))
    for batch in spans:
        yield batch.append_column("until", batch.column("last_seen").cast(_STAMP))


def of_records(batch: Any, limits: SessionLimits) -> Any:
    stamps = batch.column("timestamp").cast(pa.int64())
    names = condense.publishers(batch.column("protocol"), batch.column("publisher"))
    sizes = pc.binary_length(batch.column("value")).cast(pa.int64())
    once, zero = pa.array(np.ones(len(batch), np.int64)), pa.array(np.zeros(len(batch), np.int64))
    columns = [batch.column("protocol"), names, stamps, stamps, once, sizes, zero, zero]
    return joined(limits, pa.table(columns, schema=SPANS))


def joined(limits: SessionLimits, spans: Any) -> Any:
    """Spans of one publisher that no silence separates become one."""
    ordered = spans.take(
        pc.sort_indices(spans, [(name, "ascending") for name in SPANS.names[:3]])
    ).combine_chunks()
    gap = _gaps(ordered)
    starts = np.flatnonzero((gap < 0) | (gap > limits.silence))
    inner = np.where(gap > limits.silence, 0, np.maximum(gap, 0))
    numbers = {name: ordered[name].to_numpy() for name in SPANS.names[2:]}
    ends = np.append(starts[1:], len(ordered)) - 1
    largest = np.maximum.reduceat(np.maximum(numbers["largest_gap"], inner), starts)
    gaps = np.add.reduceat(numbers["gaps"] + (inner > limits.gap), starts)
    names = [ordered[name].take(pa.array(starts)) for name in SPANS.names[:2]]
    times = [numbers["first_seen"][starts], numbers["last_seen"][ends]]
    sums = [np.add.reduceat(numbers[name], starts) for name in ("messages", "bytes")]
    return pa.table([*names, *times, *sums, largest, gaps], schema=SPANS)


def _gaps(ordered: Any) -> Any:
    """Time between a span and the one before it; -1 where that is of another publisher."""
    same = np.zeros(len(ordered), bool)
    for number, name in enumerate(SPANS.names[:2]):
        codes = pc.dictionary_encode(ordered[name]).combine_chunks().indices.to_numpy()
        equal = codes[1:] == codes[:-1]
        same[1:] = equal if number == 0 else same[1:] & equal
    since = np.zeros(len(ordered), np.int64)
    first, last = ordered["first_seen"].to_numpy(), ordered["last_seen"].to_numpy()
    since[1:] = np.maximum(first[1:] - last[:-1], 0)
    return np.where(same, since, -1)


def _processor(limits: SessionLimits) -> Any:
    """The stateful operator. Made here, so that this file can be imported without Spark."""
    from headwater.pipeline.gold.session_state import Sessions

    return Sessions(limits, _STATE)
