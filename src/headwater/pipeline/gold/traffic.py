"""Traffic: the messages of each topic, minute by minute.

    minute, topic, protocol, publisher     the key; a minute is known by its start
    count, bytes                           messages, and bytes of their payloads
    size_p50, size_p95, size_p99           bytes
    delay_p50, delay_p99                   milliseconds; null where no record says when it was made

A row grows while its minute lasts, so it is written again and replaces the one before. Percentiles
are of numbers rounded to 1 in 128, which keeps the state of a row small, however much it counts.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.pipeline.gold import condense

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEYS = ("minute", "topic", "protocol", "publisher")
PROPERTIES = {
    "headwater.keys": ",".join(KEYS),
    "headwater.trigger": "5 seconds",
    "headwater.publish": "headwater/stats/traffic",
}

_MINUTE = 60_000_000
CONDENSED = (
    "minute timestamp, topic string, protocol string, publisher string,"
    " size bigint, delay bigint, count bigint, bytes bigint"
)
_SUMMED = [("count", "sum"), ("bytes", "sum")]
_NAMES = (*KEYS, "size", "delay", "count", "bytes")


def frame() -> "DataFrame":
    """The table, as a stream from the log."""
    from headwater.pipeline.gold import source

    return rows(source.stream("traffic"))


def rows(counts: "DataFrame") -> "DataFrame":
    """The table, from a stream of counts (see `condensed`)."""
    from pyspark.sql.functions import col, expr

    # A minute is over when the next but one has begun: arrival time does not go back.
    minutes = counts.withWatermark("minute", "2 minutes").groupBy(*KEYS)
    return minutes.agg(
        expr("sum(IF(delay IS NULL, count, 0))").alias("count"),
        expr("sum(bytes)").alias("bytes"),
        expr("percentile(size, array(0.5, 0.95, 0.99), count)").alias("sizes"),
        expr("percentile(delay, array(0.5, 0.99), count)").alias("delays"),
    ).select(
        *KEYS,
        "count",
        "bytes",
        *(col("sizes")[i].alias(f"size_p{p}") for i, p in enumerate((50, 95, 99))),
        *(col("delays")[i].alias(f"delay_p{p}") for i, p in enumerate((50, 99))),
    )


def condensed(batches: Iterator[Any]) -> Iterator[Any]:
    """Counts of record batches of the log, in the columns of CONDENSED."""
    return condense.condensed(batches, of_records, _again)


def of_records(batch: Any) -> Any:
    """How many records there are of each size, and of each delay: two kinds of rows."""
    stamps = batch.column("timestamp").cast(pa.int64())
    minutes = pc.multiply(pc.divide(stamps, _MINUTE), _MINUTE)
    sizes = pc.binary_length(batch.column("value")).cast(pa.int64())
    late = condense.delays(batch)
    # Names are counted by their numbers: quicker, and what came from the network may be anywhere
    # in memory, which Arrow's groups do not like.
    names = {name: pc.dictionary_encode(batch.column(name)) for name in KEYS[1:]}
    keys = [minutes, *(each.indices for each in names.values())]
    by_size = _counted([*keys, condense.rounded(sizes), sizes], "size", names)
    if late.null_count == len(late):
        return by_size
    told = [column.filter(pc.is_valid(late)) for column in (*keys, late)]
    told[-1] = condense.rounded(told[-1])
    return pa.concat_tables([by_size, _counted(told, "delay", names)])


def _counted(columns: list[Any], what: str, names: dict[str, Any]) -> Any:
    """Rows of the same key and of the same `what`, as one row with their number.

    The columns are those of the key, then `what`, then bytes if they are to be summed."""
    measured = ["bytes"][: len(columns) - len(KEYS) - 1]
    rows = pa.table(columns, [*KEYS, what, *measured])
    found = rows.group_by([*KEYS, what]).aggregate(
        [([], "count_all"), *((name, "sum") for name in measured)]
    )
    counted = {"count": found["count_all"], what: found[what], "minute": found["minute"]}
    counted |= {name: pc.take(each.dictionary, found[name]) for name, each in names.items()}
    counted |= {name: found[f"{name}_sum"] for name in measured}
    return _complete(pa.table(counted))


def _complete(found: Any) -> Any:
    """All columns, in their order; what is not told is null, and has no bytes."""
    columns = {name: found[name] for name in found.column_names}
    columns["minute"] = found["minute"].cast(pa.timestamp("us", tz="UTC"))
    columns["publisher"] = condense.publishers(found["protocol"], found["publisher"])
    for name, default in (("size", None), ("delay", None), ("bytes", 0)):
        if name not in columns:
            columns[name] = pa.array([default] * len(found), pa.int64())
    return pa.table([columns[name] for name in _NAMES], _NAMES)


def _again(rows: Any) -> Any:
    found = rows.group_by(list(_NAMES[:6])).aggregate(_SUMMED)
    return found.rename_columns([name.removesuffix("_sum") for name in found.column_names])
