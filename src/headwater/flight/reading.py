"""What Flight reads for its clients: a range of the log, in batches that are worth sending."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from headwater.actions import HISTORY
from headwater.broker.broker import Broker
from headwater.errors import HeadwaterError
from headwater.flight.entrance import Caller
from headwater.flight.exports import Exports
from headwater.flight.requests import READ_SCHEMA, Read
from headwater.rights import LOCAL, Rights, grant_among
from headwater.traffic import Traffic

# How many rows a batch that is sent should have, and how large it should be.
CHUNK_ROWS = 65_536
CHUNK_BYTES = 4 * 1024 * 1024
# A read has about three batches in memory, for as long as its client does not take them. Where so
# many read at once that this is more than they may have together, batches are smaller.
MOST_BYTES = 384 * 1024 * 1024
BATCHES_HELD = 3
LEAST_CHUNK_BYTES = 256 * 1024

#: Says of a topic whether it is wanted.
Wanted = Callable[[str], bool]


class RangeReader:
    """Used by the threads of Flight. `check_running` raises Refusal when the broker stops."""

    def __init__(
        self,
        broker: Broker,
        exports: Exports,
        traffic: Traffic,
        check_running: Callable[[], None],
    ) -> None:
        self._engine = broker.engine
        self._exports = exports
        self._traffic = traffic
        self._counting = threading.Lock()
        self._reads = 0  # that go on
        self._check_running = check_running

    def read(self, request: Read, caller: Caller) -> tuple[Any, Iterator[Any]]:
        """The schema, and record batches of that schema, of topics whose history may be read."""
        rights = caller.rights
        wanted = allowed(request.wanted(), rights)
        for topic in request.topics or ():
            if not rights.history.may(topic):
                raise rights.refusal(HISTORY, topic)
        self._check_kept(request.start, request.end)
        if request.end > self._engine.watermark:
            raise HeadwaterError(f"the log ends at {self._engine.watermark}, before {request.end}")
        names = READ_SCHEMA.names if request.headers else READ_SCHEMA.names[:-1]
        schema = pa.schema([READ_SCHEMA.field(name) for name in names])
        batches = self._flat(request, wanted, caller, schema)
        self._exports.begin(caller, request, time.monotonic())
        return schema, self._counted(_chunks(batches, self._chunk_bytes), request, caller)

    def _chunk_bytes(self) -> int:
        share = MOST_BYTES // (BATCHES_HELD * max(self._reads, 1))
        return max(min(share, CHUNK_BYTES), LEAST_CHUNK_BYTES)

    def _counted(self, chunks: Iterator[Any], request: Read, caller: Caller) -> Iterator[Any]:
        with self._counting:
            self._reads += 1
        try:
            for chunk in chunks:
                self._check_running()
                rows, size = len(chunk), chunk.nbytes
                with self._counting:
                    self._traffic.messages_out += rows
                    self._traffic.bytes_out += size
                self._exports.sent(caller, request, rows, size, time.monotonic())
                yield chunk
        finally:
            with self._counting:
                self._reads -= 1

    def _check_kept(self, start: int, end: int) -> None:
        kept = self._engine.start
        if start < min(kept, end):
            raise HeadwaterError(
                f"the offsets {start} to {min(kept, end) - 1} are no longer in the log, which "
                f"begins at {kept}"
            )

    def _flat(
        self, request: Read, wanted: Wanted | None, caller: Caller, schema: Any
    ) -> Iterator[Any]:
        at = request.start
        while at < request.end and not caller.is_cancelled():
            self._check_running()  # it may be long until there is anything to send
            batches, following = self._engine.read_flat(
                at, wanted, self._chunk_bytes(), request.end
            )
            # For somebody who is removed meanwhile, all that is new to this read is left out.
            caller.rights.check_known()
            # Retention does not wait for readers, and what it takes meanwhile is passed over.
            self._check_kept(at, request.end)
            at = following
            batches.reverse()
            while batches:  # nothing is kept that was passed on
                yield _part(batches.pop(), schema)


def allowed(wanted: Wanted | None, rights: Rights) -> Wanted | None:
    """Of the wanted topics, those whose history may be read. None: all there are.

    Raises Refusal for a topic that might be read until now: to leave out its rows from here on
    would look as if there were no more of them.
    """
    history, before = rights.history, rights.history.grants
    if rights.principal.kind == LOCAL:
        return wanted

    def may_read(topic: str) -> bool:
        if history.may(topic):
            return True
        if history.grants is not before and grant_among(before, topic) is not None:
            raise rights.refusal(HISTORY, topic)
        return False

    return may_read if wanted is None else lambda topic: wanted(topic) and may_read(topic)


def _part(batch: Any, schema: Any) -> Any:
    columns = [batch.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _chunks(batches: Iterator[Any], chunk_bytes: Callable[[], int]) -> Iterator[Any]:
    """Small batches put together: each one that is sent costs the same, however small it is."""
    waiting: list[Any] = []
    rows = size = 0
    while (batch := next(batches, None)) is not None:
        rows += len(batch)
        size += batch.nbytes
        waiting.append(batch)
        del batch
        if rows >= CHUNK_ROWS or size >= chunk_bytes():
            yield _joined(waiting)
            rows = size = 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[Any]) -> Any:
    """The batches as one. None of them is kept: to send it may take long."""
    joined = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    batches.clear()
    return joined
