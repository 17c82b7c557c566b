"""Writing to the log: in batch, and from a stream. Each micro-batch is visible once, as a whole.

    write     in each task: rows are staged in the broker, under (query, batch, partition, attempt)
    commit    in the driver: the broker makes the staged rows of all tasks visible
    abort     in the driver: the broker drops the staged rows

A batch that is repeated after a crash has the same (query, batch), and the broker makes it visible
only once. A task that is repeated stages under another attempt; the one that counts is the one
Spark hands to `commit`.

Rows that cannot be messages fail the batch, or become dead letters. The broker decides which rows
it takes; rows like one that it has refused are kept apart from then on (see `Sieve`).
"""

import logging
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from headwater.errors import ConfigError, HeadwaterError, Refusal
from headwater.spark.flight_client import FlightClient
from headwater.spark.options import SinkOptions

logger = logging.getLogger(__name__)

#: The most that is staged at once: it stays in memory until the broker has it.
PIECE_BYTES = 32 * 1024 * 1024
# A task stages its pieces as partitions p·2²⁰, p·2²⁰+1, …: so they stay in order.
_PIECES = 1 << 20

HEADERS = pa.map_(pa.string(), pa.string())

REASON = "dead-reason"
TOPIC = "dead-topic"
SIZE = "dead-size"
_TOPIC_CHARACTERS = 1000

_ROW = re.compile(r"row (\d+): (.*)", re.DOTALL)
_TOO_LARGE = re.compile(r"value is over the limit of (\d+) bytes")

#: The rows of a batch that cannot be messages, and why.
Bad = list[tuple[int, str]]


@dataclass
class StagedPartition(WriterCommitMessage):
    """The rows that a task has staged: the attempt of each piece."""

    query: str
    batch: int
    parts: dict[str, str] = field(default_factory=dict)


class StagingWriter:
    """Stages rows in tasks and commits them in the driver, for batch and stream."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError('the log only grows: write with mode("append")')
        self._options = options
        self._broker = FlightClient.of(options)
        self._has_headers = _check_columns(schema, options)

    def _stage(self, query: str, batch: int, rows: Iterator[Any]) -> StagedPartition:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        staged, attempt = StagedPartition(query, batch), uuid.uuid4().hex
        sieve = Sieve(self._options.dead_letter_topic, partition)
        for number, piece in enumerate(_pieces(map(self._columns, rows))):
            place = partition * _PIECES + number
            self._send(query, batch, place, attempt, piece, sieve)
            staged.parts[str(place)] = attempt
        return staged

    def _send(
        self, query: str, batch: int, place: int, attempt: str, piece: list[Any], sieve: "Sieve"
    ) -> None:
        while True:
            sifted = sieve.sift(piece)
            try:
                self._broker.stage(query, batch, place, attempt, sifted)
            except Refusal as refusal:
                sieve.learn(str(refusal), sifted)
            else:
                sieve.passed += sum(map(len, piece))
                return

    def _columns(self, batch: Any) -> Any:
        """The rows as the broker takes them."""
        if self._options.topic is None:
            topic = _as(batch.column("topic"), pa.string())
        else:
            topic = pa.repeat(pa.scalar(self._options.topic), len(batch))
        columns = {"topic": topic, "value": _as(batch.column("value"), pa.binary())}
        if self._has_headers:
            columns["headers"] = _as(batch.column("headers"), HEADERS)
        elif self._options.dead_letter_topic is not None:
            columns["headers"] = pa.nulls(len(batch), HEADERS)
        return pa.RecordBatch.from_pydict(columns)

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        staged = [each for each in messages if isinstance(each, StagedPartition)]
        parts = {place: attempt for each in staged for place, attempt in each.parts.items()}
        if parts:
            query, batch = staged[0].query, staged[0].batch
            if self._broker.commit(query, batch, parts).repeated:
                logger.warning("batch %d of %s was written before, and not again", batch, query)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop staged rows now; the broker would do so in the end. An error here is only logged, so
        that it does not hide the error of the batch."""
        for each in messages:
            if isinstance(each, StagedPartition):
                try:
                    replace(self._broker, retries=0).abort(each.query, each.batch)
                except HeadwaterError as error:
                    logger.warning(
                        "batch %d of %s was not dropped: %s", each.batch, each.query, error
                    )
                return


class BatchWriter(StagingWriter, DataSourceArrowWriter):
    """Made once, where the write is started; its copies know the same query."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        options.check_mode("batch")
        super().__init__(options, schema, overwrite)
        self._query = f"spark/{options.producer or uuid.uuid4()}"

    def write(self, iterator: Iterator[Any]) -> StagedPartition:
        return self._stage(self._query, 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


class StreamWriter(StagingWriter, DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        options.check_mode("streaming")
        super().__init__(options, schema, overwrite)

    def write(self, iterator: Iterator[Any]) -> StagedPartition:
        context = TaskContext.get()
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise HeadwaterError(
                "this version of Spark does not name the query and the batch of a task"
            )
        return self._stage(f"spark/{query}", int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


def _check_columns(schema: StructType, options: SinkOptions) -> bool:
    """Whether there are headers. Columns of other names are left out, as in Kafka's sink."""
    kinds: dict[str, DataType] = {each.name: each.dataType for each in schema.fields}
    if not isinstance(kinds.get("value"), StringType | BinaryType):
        raise ConfigError(_wanted("value", kinds, "string or binary", "CAST(… AS STRING) AS value"))
    if options.topic is None and not isinstance(kinds.get("topic"), StringType):
        hint = "set the option topic, or select a column"
        raise ConfigError(_wanted("topic", kinds, "string", f"… AS topic; or {hint}"))
    if "key" in kinds:
        logger.warning("the column key is left out: messages have no key, but they have headers")
    if "headers" not in kinds:
        return False
    headers = kinds["headers"]
    if not isinstance(headers, MapType) or not all(
        isinstance(each, StringType) for each in (headers.keyType, headers.valueType)
    ):
        raise ConfigError(_wanted("headers", kinds, "map<string,string>", "map(…) AS headers"))
    return True


def _wanted(name: str, kinds: dict[str, DataType], wanted: str, example: str) -> str:
    found = f"is {kinds[name].simpleString()}" if name in kinds else "is missing"
    return f"the column {name} {found}; it must be {wanted}: select {example}"


def _as(column: Any, kind: Any) -> Any:
    return column if column.type == kind else column.cast(kind)


def _pieces(batches: Iterator[Any]) -> Iterator[list[Any]]:
    """Batches gathered to pieces of a size that can be kept."""
    piece: list[Any] = []
    size = 0
    for batch in batches:
        if len(batch):
            piece.append(batch)
            size += batch.nbytes
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


class Sieve:
    """Keeps rows apart that cannot be messages.

    Nulls are found here. Other faults are learnt from the broker: it names the first row that it
    refuses and the reason, and rows with the same fault are kept apart from then on."""

    def __init__(self, dead_topic: str | None, partition: int) -> None:
        self._dead_topic = dead_topic
        self._partition = partition
        self._most_bytes: int | None = None
        self._bad_topics: dict[str, str] = {}
        self.passed = 0  # how many rows went before those at hand

    def sift(self, piece: list[Any]) -> list[Any]:
        """The same rows, with dead letters in the place of bad ones."""
        sifted: list[Any] = []
        first = 0
        for batch in piece:
            bad = self._bad(batch)
            if bad and self._dead_topic is None:
                self._fail(first + bad[0][0], bad[0][1])
            sifted += self._parted(batch, bad) if bad else [batch]
            first += len(batch)
        return sifted

    def learn(self, refusal: str, sifted: list[Any]) -> None:
        """Know better the next time; raises HeadwaterError if that does not help."""
        match = _ROW.fullmatch(refusal)
        if match is None:
            raise HeadwaterError(refusal)
        row, why = int(match[1]), match[2]
        if self._dead_topic is None:
            self._fail(row, why)
        topic = _topic_at(sifted, row)
        limit = _TOO_LARGE.fullmatch(why)
        if limit is not None and self._most_bytes is None:
            self._most_bytes = int(limit[1])
        elif limit is None and topic not in (*self._bad_topics, self._dead_topic):
            self._bad_topics[topic] = why
        else:
            raise HeadwaterError(f"the broker does not take the dead letters of this batch: {why}")

    def _fail(self, row: int, why: str) -> None:
        raise HeadwaterError(
            f"row {self.passed + row} of partition {self._partition} cannot be a message: {why}. "
            "To keep such rows apart, set the option deadLetterTopic"
        )

    def _bad(self, batch: Any) -> Bad:
        found: dict[int, str] = {}
        topics, values = batch.column("topic"), batch.column("value")
        if self._most_bytes is not None:
            large = pc.greater(pc.binary_length(values), self._most_bytes)
            limit = f"value is over the limit of {self._most_bytes} bytes"
            found |= dict.fromkeys(_true(large), limit)
        if self._bad_topics:
            wrong = pc.is_in(topics, pa.array(self._bad_topics, pa.string()))
            found |= {row: self._bad_topics[topics[row].as_py()] for row in _true(wrong)}
        if "headers" in batch.schema.names:
            lacking = _with_null_values(batch.column("headers"))
            found |= dict.fromkeys(lacking, "a header has no value")
        for name, column in (("topic", topics), ("value", values)):
            if column.null_count:
                found |= dict.fromkeys(_true(column.is_null()), f"{name} is null")
        return sorted(found.items())

    def _parted(self, batch: Any, bad: Bad) -> list[Any]:
        rows = [row for row, _ in bad]
        is_bad = pc.is_in(pa.array(range(len(batch))), pa.array(rows))
        good, dead = batch.filter(pc.invert(is_bad)), batch.take(pa.array(rows))
        reasons = [why for _, why in bad]
        return [good, self._letters(dead, reasons)] if len(good) else [self._letters(dead, reasons)]

    def _letters(self, batch: Any, reasons: list[str]) -> Any:
        """Dead letters: why, and the topic and size where these would be lost."""
        values, headers = [], []
        columns = (batch.column(name).to_pylist() for name in ("topic", "value", "headers"))
        for topic, value, pairs, why in zip(*columns, reasons, strict=True):
            about = [(name, text) for name, text in pairs or () if text is not None]
            about.append((REASON, why))
            if topic is not None:
                about.append((TOPIC, topic[:_TOPIC_CHARACTERS]))
            if value is not None and self._most_bytes is not None and len(value) > self._most_bytes:
                about.append((SIZE, str(len(value))))
                value = None
            values.append(value or b"")
            headers.append(about)
        topics = pa.repeat(pa.scalar(self._dead_topic), len(batch))
        return pa.RecordBatch.from_arrays(
            [topics, pa.array(values, pa.binary()), pa.array(headers, HEADERS)],
            schema=batch.schema,
        )


def _true(mask: Any) -> list[int]:
    rows: list[int] = pc.indices_nonzero(mask.fill_null(False)).to_pylist()
    return rows


def _with_null_values(headers: Any) -> list[int]:
    if not headers.items.null_count:
        return []
    return [
        row
        for row, pairs in enumerate(headers.to_pylist())
        if any(value is None for _, value in pairs or ())
    ]


def _topic_at(batches: list[Any], row: int) -> str:
    for batch in batches:
        if row < len(batch):
            topic: str = batch.column("topic")[row].as_py()
            return topic
        row -= len(batch)
    raise HeadwaterError(f"the broker refuses row {row}, which it was not sent")
