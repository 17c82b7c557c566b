"""Looking at messages, live and in the log, and publishing some.

Everything is bounded: a look at the log ends after some hundred milliseconds with what it has, and
an answer has about a mebibyte of payloads. The log is read by a thread.
"""

import asyncio
import base64
import binascii
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headwater import arrow_compute as pc
from headwater import topics
from headwater.admin.taps import Row, Taps
from headwater.admin.uploads import Uploads
from headwater.broker.broker import Broker
from headwater.broker.receipts import AwaitedReceipt
from headwater.control import Handler
from headwater.errors import Code, Refusal
from headwater.filters import Filter, LevelFilter, RegexFilter
from headwater.message import Headers, Run

PROTOCOL = "console"
MOST_MESSAGES = 100
CUT_BYTES = 64 * 1024
ANSWER_BYTES = 1024 * 1024
# No message is longer: a column of Arrow is not.
MOST_BYTES = 2**31 - 1
LOOK_SECONDS = 0.4
READ_BYTES = 1024 * 1024
# Looking backwards, how many offsets to look at first; then twice as many, and so on.
FIRST_STEP = 256
MOST_STEP = 1 << 20
WAIT_SECONDS = 5.0
MOST_HEADERS = 64
MOST_HEADER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Messages in the order of the log, and whether the look was cut short: then `reached` is how
    far it came."""

    rows: list[Row]
    reached: int
    partial: bool


class MessageHandlers:
    def __init__(self, *, broker: Broker, taps: Taps, message_bytes: int, topic_bytes: int) -> None:
        self._broker = broker
        self._engine = broker.engine
        self._taps = taps
        self._message_bytes = message_bytes
        self._topic_bytes = topic_bytes
        self._uploads = Uploads(message_bytes)

    def handlers(self) -> dict[str, Handler]:
        return {
            "messages.read": self.read,
            "messages.part": self.part,
            "messages.upload": self.upload,
            "messages.publish": self.publish,
            "messages.repeat": self.repeat,
            "tap.open": self.open_tap,
            "tap.fetch": self.fetch_tap,
            "tap.close": self.close_tap,
        }

    # The log

    async def read(
        self,
        topic: str,
        kind: str = "topic",
        start: int | None = None,
        before: int | None = None,
        at: int | None = None,
        limit: int = 50,
    ) -> dict[str, Any]:
        """Messages from an offset or a time on, or those before an offset; without any of these,
        the newest."""
        limit = min(max(limit, 1), MOST_MESSAGES)
        wanted = _filter(kind, topic).matches
        if at is not None:
            start = await self._engine.offset_at(at)
        if start is not None:
            found = await asyncio.to_thread(self._forwards, wanted, start, limit)
            return self._answer(found, max(start, self._engine.start), found.reached)
        end = self._engine.watermark
        stop = end if before is None else min(before, end)
        found = await asyncio.to_thread(self._backwards, wanted, stop, limit)
        return self._answer(found, found.reached, stop)

    def _answer(self, found: FoundMessages, first: int, end: int) -> dict[str, Any]:
        """`first` and `end` are the range that was looked at."""
        return {
            "items": [_shown(row) for row in found.rows],
            "older": first if first > self._engine.start else None,
            "newer": end if end < self._engine.watermark else None,
            "partial": found.partial,
        }

    def _forwards(self, wanted: Callable[[str], bool], start: int, limit: int) -> FoundMessages:
        at, end = max(start, self._engine.start), self._engine.watermark
        deadline = time.monotonic() + LOOK_SECONDS
        rows: list[Row] = []
        while at < end:
            batches, at = self._engine.read_flat(at, wanted, READ_BYTES, end)
            for batch in batches:
                rows += _rows(batch.slice(0, limit - len(rows)))
                if len(rows) >= limit:
                    break
            if len(rows) >= limit:
                break
            if time.monotonic() > deadline:
                return _fit_forwards(FoundMessages(rows, at, True))
        reached = rows[-1].offset + 1 if len(rows) >= limit else at
        return _fit_forwards(FoundMessages(rows, reached, False))

    def _backwards(self, wanted: Callable[[str], bool], stop: int, limit: int) -> FoundMessages:
        first = self._engine.start
        deadline = time.monotonic() + LOOK_SECONDS
        rows: list[Row] = []
        step = FIRST_STEP
        while stop > first and len(rows) < limit:
            low = max(first, stop - step)
            found, complete = self._window(wanted, low, stop, limit - len(rows), deadline)
            if not complete:
                # What is missing lies before what was found last: look at less at once.
                if step > FIRST_STEP:
                    step = FIRST_STEP
                    deadline = max(deadline, time.monotonic() + LOOK_SECONDS / 4)
                    continue
                return _fit_backwards(FoundMessages(rows, stop, True))
            rows = found + rows
            stop, step = low, min(step * 2, MOST_STEP)
            if time.monotonic() > deadline:
                return _fit_backwards(FoundMessages(rows, stop, len(rows) < limit and stop > first))
        reached = rows[0].offset if len(rows) >= limit else stop
        return _fit_backwards(FoundMessages(rows, reached, False))

    def _window(
        self, wanted: Callable[[str], bool], low: int, stop: int, limit: int, deadline: float
    ) -> tuple[list[Row], bool]:
        """The last messages of a range, and whether all of it was looked at."""
        at = low
        batches: list[Any] = []
        while at < stop:
            found, at = self._engine.read_flat(at, wanted, READ_BYTES, stop)
            batches = _last(batches + found, limit)
            if time.monotonic() > deadline and at < stop:
                return [], False
        return [row for batch in batches for row in _rows(batch)], True

    async def part(self, offset: int, start: int = 0, size: int = ANSWER_BYTES) -> dict[str, Any]:
        """A piece of one message, with all that is known of it."""
        start, size = min(max(start, 0), MOST_BYTES), min(max(size, 0), ANSWER_BYTES)
        row = await asyncio.to_thread(self._one, offset, start, size)
        return _shown(row)

    def _one(self, offset: int, start: int, size: int) -> Row:
        if offset >= self._engine.watermark:
            raise Refusal(Code.NOT_FOUND, f"the log ends before offset {offset}")
        batches, _ = self._engine.read_flat(offset, None, 1, offset + 1)
        for batch in batches:
            for row in _rows(batch, start, start + size):
                if row.offset == offset:
                    return row
        raise Refusal(Code.NOT_FOUND, f"offset {offset} is no longer in the log")

    # Publishing

    async def upload(self, payload: str, upload: int | None = None) -> dict[str, int]:
        """A piece of a payload that is too large for one request; the rest is given to `publish`.
        `payload` is base64."""
        return {"upload": self._uploads.add(upload, _bytes(payload))}

    async def publish(
        self,
        topic: str,
        payload: str,
        headers: dict[str, str] | None = None,
        publisher: str = "",
        upload: int | None = None,
    ) -> dict[str, int]:
        """`payload` is base64, and goes behind what was uploaded."""
        topics.check(topic, self._topic_bytes)
        content = _bytes(payload)
        if upload is not None:
            self._uploads.add(upload, content)
            content = self._uploads.take(upload)
        run = Run(
            topic,
            [content],
            protocol=PROTOCOL,
            publisher=publisher,
            headers=_headers(headers or {}),
        )
        return {"offset": await self._store(run)}

    async def repeat(
        self, offset: int, topic: str | None = None, publisher: str = ""
    ) -> dict[str, int]:
        """Publish a message of the log again, to its own topic or another one."""
        row = await asyncio.to_thread(self._one, offset, 0, self._message_bytes)
        target = row.topic if topic is None else topics.check(topic, self._topic_bytes)
        run = Run(
            target, [row.payload], protocol=PROTOCOL, publisher=publisher, headers=row.headers
        )
        return {"offset": await self._store(run)}

    async def _store(self, run: Run) -> int:
        """Returns the offset when the message is durable."""
        if run.size > self._message_bytes:
            why = f"a message has at most {self._message_bytes} bytes"
            raise Refusal(Code.TOO_LARGE, why, limit="message_bytes")
        receipt = AwaitedReceipt()
        batch = self._broker.publish(run, receipt, None)
        self._engine.hurry()
        async with asyncio.timeout(WAIT_SECONDS):
            error = await receipt.error
        if error is not None:
            raise error
        return batch.offset

    # What passes by

    async def open_tap(self, topic: str, kind: str = "topic", text: str = "") -> dict[str, int]:
        return {"tap": self._taps.open(_filter(kind, topic), text)}

    async def fetch_tap(self, tap: int) -> dict[str, Any]:
        catch = self._taps.fetch(tap)
        return {
            "items": [_shown(row) for row in catch.rows],
            "passed": catch.passed,
            "matched": catch.matched,
            "skipped": catch.skipped,
        }

    async def close_tap(self, tap: int) -> None:
        self._taps.close(tap)


def _filter(kind: str, text: str) -> Filter:
    if kind == "pattern":
        return RegexFilter.parse(text)
    if kind == "levels":
        return LevelFilter.parse(text)
    if kind != "topic":
        raise Refusal(Code.MALFORMED, 'kind is "topic", "levels" or "pattern"')
    return LevelFilter.exact(text)


def _bytes(payload: str) -> bytes:
    try:
        return base64.b64decode(payload, validate=True)
    except (ValueError, binascii.Error):
        raise Refusal(Code.MALFORMED, "the payload is not valid base64") from None


def _headers(given: dict[str, str]) -> Headers:
    pairs = tuple(given.items())
    if len(pairs) > MOST_HEADERS:
        raise Refusal(Code.TOO_LARGE, f"a message has at most {MOST_HEADERS} headers")
    for name, value in pairs:
        if not name or not isinstance(value, str):
            raise Refusal(Code.MALFORMED, "headers have a name, and texts as values")
        try:
            size = len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            raise Refusal(Code.MALFORMED, "headers are UTF-8") from None
        if size > MOST_HEADER_BYTES:
            raise Refusal(Code.TOO_LARGE, f"a header has at most {MOST_HEADER_BYTES} bytes")
    return pairs


def _last(batches: list[Any], limit: int) -> list[Any]:
    """The last rows of the batches."""
    kept: list[Any] = []
    for batch in reversed(batches):
        if limit <= 0:
            break
        part = batch.slice(max(0, len(batch) - limit))
        kept.insert(0, part)
        limit -= len(part)
    return kept


def _rows(batch: Any, start: int = 0, stop: int = CUT_BYTES) -> list[Row]:
    values = batch.column("value")
    columns = (
        batch.column("offset").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("topic").to_pylist(),
        batch.column("protocol").to_pylist(),
        batch.column("publisher").to_pylist(),
        [tuple(pairs) for pairs in batch.column("headers").to_pylist()],
        pc.binary_length(values).to_pylist(),
        pc.binary_slice(values, start, stop).to_pylist(),
    )
    return [Row(*values) for values in zip(*columns, strict=True)]


def _fit_forwards(found: FoundMessages) -> FoundMessages:
    """As many of the first messages as fit into an answer."""
    size = 0
    for number, row in enumerate(found.rows):
        size += len(row.payload)
        if size > ANSWER_BYTES and number:
            return FoundMessages(found.rows[:number], row.offset, found.partial)
    return found


def _fit_backwards(found: FoundMessages) -> FoundMessages:
    """As many of the last messages as fit into an answer."""
    size = 0
    for number, row in enumerate(reversed(found.rows)):
        size += len(row.payload)
        if size > ANSWER_BYTES and number:
            kept = found.rows[len(found.rows) - number :]
            return FoundMessages(kept, kept[0].offset, found.partial)
    return found


def _shown(row: Row) -> dict[str, Any]:
    return {
        "offset": row.offset,
        "timestamp": row.timestamp,
        "topic": row.topic,
        "protocol": row.protocol,
        "publisher": row.publisher,
        "headers": dict(row.headers),
        "size": row.size,
        "payload": base64.b64encode(row.payload).decode(),
    }
