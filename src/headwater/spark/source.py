"""Reading the log: in batch, and as a stream.

An offset of a stream is `{"offset": n}`: everything before n was read. It is an offset of the log,
not of a topic; so another pattern may be used with the same checkpoint.

A range of offsets is cut into partitions of about the same weight. Their readers pass record
batches on as they come from the broker; nothing here looks at single rows.
"""

import logging
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.errors import ConfigError, HeadwaterError, Refusal
from headwater.spark.flight_client import FlightClient, LogBounds, RecordSelection
from headwater.spark.options import Edge, Mode, Position, SourceOptions

logger = logging.getLogger(__name__)

#: The most of the log in a partition, and the least that is cut off just to keep all cores busy.
PARTITION_BYTES = 64 * 1024 * 1024
LEAST_BYTES = 4 * 1024 * 1024
# The broker reports sizes for pieces of so many bytes; within one, messages count as equally large.
_PIECE_BYTES = 16 * 1024 * 1024
# A short message is as much work as one of this size. Blocks may be compressed on disk, too.
_ROW_BYTES = 128
# How far ahead to look for the end of `maxBytesPerTrigger` at first.
_LOOK_AHEAD = 1_000_000

_COLUMNS = [
    StructField("offset", LongType(), nullable=False),
    StructField("topic", StringType(), nullable=False),
    StructField("value", BinaryType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
    StructField("protocol", StringType(), nullable=False),
    StructField("publisher", StringType(), nullable=False),
]
_HEADERS = StructField("headers", MapType(StringType(), StringType()), nullable=False)


def schema(options: SourceOptions) -> StructType:
    """The columns that there are."""
    return StructType([*_COLUMNS, _HEADERS] if options.headers else _COLUMNS)


@dataclass
class OffsetRange(InputPartition):
    """Offsets from `start` to before `end`."""

    start: int
    end: int


class SourceReader:
    """Reads ranges of the log, for batch and stream."""

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        if wanted != schema(options):
            raise ConfigError("the columns are fixed: leave out .schema(…), and select from them")
        self._options = options
        self._broker = FlightClient.of(options)
        self._selection = RecordSelection(options.subscribe, options.pattern, options.headers)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The messages of a partition, as record batches in the schema. Runs in a task."""
        if not isinstance(partition, OffsetRange):
            return  # Spark's own partition, where there is nothing to read
        at = partition.start
        while at < partition.end:
            try:
                for batch in self._broker.read(self._selection, at, partition.end):
                    yield batch
                    at = batch.column("offset")[-1].as_py() + 1
                return
            except Refusal:
                start = self._broker.log().start
                if at >= start:
                    raise
                at = self._kept(at, partition.end, start)  # retention was faster

    def _resolved(self, position: Position, log: LogBounds, option: str) -> int:
        if isinstance(position, Edge):
            return log.start if position is Edge.EARLIEST else log.end
        if position > log.end:
            raise ConfigError(
                f"the option {option} must not be behind the end of the log: write at most "
                f"{log.end}, not {position}"
            )
        return position

    def _kept(self, start: int, end: int, kept: int) -> int:
        """The offset at which reading a range can start if the log begins at `kept`."""
        if start >= min(kept, end):
            return start
        missing = (
            f"the offsets {start} to {min(kept, end) - 1} are no longer in the log, which begins "
            f"at {kept}"
        )
        if self._options.fail_on_data_loss:
            raise HeadwaterError(
                f"{missing}. To go on behind them, set the option failOnDataLoss to false"
            )
        logger.warning("%s; reading goes on behind them", missing)
        return min(kept, end)

    def _check(self, mode: Mode) -> None:
        """Before any task starts. The broker looks at the pattern; nothing is read for that."""
        self._options.check_mode(mode)
        try:
            for _ in self._broker.read(self._selection, 0, 0):
                pass
        except Refusal as error:
            raise ConfigError(
                f"the option subscribePattern must be a PCRE pattern: {error}"
            ) from None

    def _partitions(self, start: int, end: int) -> list[OffsetRange]:
        if start >= end:
            return []
        pieces = self._broker.split(start, end, _PIECE_BYTES)
        weights = [max(held, (high - low) * _ROW_BYTES) for low, high, held in pieces]
        total = sum(weights)
        count = max(
            math.ceil(total / PARTITION_BYTES),
            min(_cores(), total // LEAST_BYTES),
            self._options.least_partitions or 1,
        )
        edges = _edges([high for _, high, _ in pieces], weights, start, min(count, end - start))
        return [OffsetRange(low, high) for low, high in pairwise(edges)]


def _edges(ends: Sequence[int], weights: Sequence[int], start: int, count: int) -> list[int]:
    """Cut consecutive pieces into `count` ranges of about the same weight, none of them empty.

    A piece's weight is spread evenly over its offsets."""
    total, end = sum(weights), ends[-1]
    edges, low, before, number = [start], start, 0.0, 1
    for high, weight in zip(ends, weights, strict=True):
        while number < count and (wanted := total * number / count) <= before + weight:
            edge = low + round((high - low) * (wanted - before) / weight)
            # Each range before and behind this edge has at least one offset.
            edges.append(min(max(edge, edges[-1] + 1), end - (count - number)))
            number += 1
        low, before = high, before + weight
    return [*edges, end]


def _cores() -> int:
    """The cores of this machine: a planner does not know those of the executors."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class BatchReader(SourceReader, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        self._check("batch")
        options, log = self._options, self._broker.log()
        if options.start_time is not None:
            start = self._broker.offset_at(options.start_time)
        elif options.start is Edge.LATEST:
            raise ConfigError(
                "the option startingOffsets must not be latest in batch: there would be nothing "
                "to read. Write earliest, or an offset"
            )
        else:
            start = self._resolved(options.start or Edge.EARLIEST, log, "startingOffsets")
        if options.end_time is not None:
            end = self._broker.offset_at(options.end_time)
        else:
            end = self._resolved(options.end or Edge.LATEST, log, "endingOffsets")
        return self._partitions(self._kept(start, end, log.start), end)


class StreamReader(SourceReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of its own as long as its query does, but for `read`."""

    def __init__(self, options: SourceOptions, wanted: StructType) -> None:
        super().__init__(options, wanted)
        self._log: LogBounds | None = None  # as it was last seen
        self._target: int | None = None  # where Trigger.AvailableNow ends
        self._last = -math.inf  # when the last micro-batch was let go

    def initialOffset(self) -> dict[str, int]:
        options = self._options
        if options.start_time is not None:
            return _offset(self._broker.offset_at(options.start_time))
        start = Edge.LATEST if options.start is None else options.start
        return _offset(self._resolved(start, self._look(), "startingOffsets"))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._look().end

    def getDefaultReadLimit(self) -> ReadLimit:
        """Tells Spark that there are limits; all of them are applied in `latestOffset`."""
        options = self._options
        if options.most_offsets is not None:
            return ReadMaxRows(options.most_offsets)
        if options.most_bytes is not None:
            return ReadMaxBytes(options.most_bytes)
        if options.least_offsets is not None:
            return ReadMinRows(options.least_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        log, given = self._look(), _number(start)
        end = log.end if self._target is None else min(log.end, self._target)
        if given > log.end:
            return _offset(self._other_log(given, log))
        if given < log.start and self._options.fail_on_data_loss:
            self._kept(given, end, log.start)  # raises, and names the missing offsets
        begin = max(given, log.start)
        if begin >= end:
            return _offset(max(given, end))
        if not isinstance(limit, ReadAllAvailable):
            if self._is_held_back(end - begin, limit):
                return _offset(given)
            end = self._limited(begin, end, limit)
        self._last = time.monotonic()
        return _offset(end)

    def reportLatestOffset(self) -> dict[str, int] | None:
        """The end of the log at the last look, by which Spark computes the lag of a query."""
        return None if self._log is None else _offset(self._log.end)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        log = self._log or self._look()
        first, stop = _number(start), _number(end)
        if first > stop:  # another log, see latestOffset: all of it is new
            first = log.start
        return self._partitions(self._kept(first, stop, log.start), stop)

    def stop(self) -> None:
        self._broker.close()

    def _look(self) -> LogBounds:
        if self._log is None:
            # Not when it is made: PySpark does not tell errors of that time well.
            self._check("streaming")
        self._log = self._broker.log()
        return self._log

    def _other_log(self, given: int, log: LogBounds) -> int:
        what = f"the log ends at {log.end}, but the checkpoint of this query is at {given}"
        if self._options.fail_on_data_loss:
            raise HeadwaterError(
                f"{what}: this is not the log that it has read before. Give the query another "
                "checkpointLocation, or set the option failOnDataLoss to false to read this log "
                "from its start"
            )
        logger.warning("%s: this is another log, which is read from its start", what)
        return log.end

    def _is_held_back(self, count: int, limit: ReadLimit) -> bool:
        """Whether to wait for more. Never with Trigger.AvailableNow: there is no more to come."""
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self._options.least_offsets
        if least is None or self._target is not None:
            return False
        return count < least and time.monotonic() - self._last < self._options.most_delay

    def _limited(self, begin: int, end: int, limit: ReadLimit) -> int:
        options = self._options
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else options.most_offsets
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.most_bytes
        if rows is not None:
            end = min(end, begin + rows)
        return end if size is None else self._within_bytes(begin, end, size)

    def _within_bytes(self, begin: int, end: int, size: int) -> int:
        """The end of the first `size` bytes of a range. Looks no further ahead than it has to: the
        range may be the whole log, again and again."""
        ahead = _LOOK_AHEAD
        while True:
            pieces = self._broker.split(begin, min(begin + ahead, end), size)
            if len(pieces) > 1 or begin + ahead >= end:
                return pieces[0][1]
            ahead *= 8


def _offset(number: int) -> dict[str, int]:
    return {"offset": number}


def _number(offset: dict[str, int]) -> int:
    number = offset.get("offset")
    if not isinstance(number, int):
        raise HeadwaterError(
            f"the checkpoint has the offset {offset}, which is not one of this source: give the "
            "query another checkpointLocation"
        )
    return number
