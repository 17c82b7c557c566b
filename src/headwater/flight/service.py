"""The Flight server: the log for those who read and write in columns.

It runs in threads of its own, which read files and build Arrow batches without the event loop. Only
what is appended goes through the loop, where offsets are given out.

    do_get       read a range
    do_put       append, or stage
    do_action    log        {}                      → start, end (the watermark), timestamp
                 offset_at  {timestamp}             → offset
                 topics     {pattern, after, limit} → topics with counts and times, more
                 split      {start, end, bytes}     → ranges of about so many bytes each
                 commit     {query, batch, parts}   → first, count, repeated
                 abort      {query, batch}
                 committed  {query}                 → batch or null
                 report     {pipeline, state}       for the console
"""

import asyncio
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater import arrow_compute as pc
from headwater.broker.broker import Broker
from headwater.broker.delays import FROM
from headwater.errors import Code, HeadwaterError, LogUnavailable, Refusal
from headwater.filters import RegexFilter
from headwater.flight import requests
from headwater.flight.requests import READ_SCHEMA, WRITE_SCHEMA
from headwater.flight.rows import PROTOCOL, Checker, runs_of
from headwater.flight.server import FlightServer
from headwater.flight.stages import Intent, Stages, stage_of
from headwater.message import Group, Run
from headwater.traffic import Traffic

logger = logging.getLogger(__name__)

# How much is read from the log at once, and how many rows a batch that is sent should have.
READ_BYTES = 4 * 1024 * 1024
CHUNK_ROWS = 65_536
CHUNK_BYTES = 8 * 1024 * 1024
CLEANING_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightSettings:
    host: str = "127.0.0.1"
    port: int = 8815
    token: str | None = None
    certificate: Path | None = None  # with these it speaks TLS
    key: Path | None = None
    message_bytes: int = 16 * 1024 * 1024
    topic_bytes: int = 1024


class FlightService:
    """Made in the event loop's thread; `start` and `stop` are called there.

    `report` takes what a pipeline says of itself; any thread may call it.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        data: Path,
        settings: FlightSettings,
        report: Callable[[str, dict[str, Any]], None],
        traffic: Traffic,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._engine = broker.engine
        self._report = report
        self._traffic = traffic
        self._counting = threading.Lock()
        self._stages = Stages(data)
        self._settings = settings
        self._server: FlightServer | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._cleaner: asyncio.Task[None] | None = None
        self._committing: dict[str, threading.Lock] = defaultdict(threading.Lock)

    async def recover(self) -> None:
        """Finish what a crash has interrupted. Nobody is served before that."""
        await asyncio.to_thread(self._stages.check)
        for intent in await asyncio.to_thread(self._stages.intents):
            logger.warning(
                "finishing batch %d of query %s, which a crash interrupted",
                intent.batch,
                intent.query,
            )
            try:
                await asyncio.to_thread(self._append, intent, True)
            except (OSError, Refusal, pa.ArrowException) as error:
                # No reason to serve nobody. The query can stage and commit its batch again.
                logger.error(
                    "batch %d of query %s cannot be finished: %s",
                    intent.batch,
                    intent.query,
                    error,
                )

    async def start(self) -> tuple[str, int]:
        """Serve; returns the address."""
        settings = self._settings
        scheme = "grpc+tls" if settings.certificate else "grpc"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        try:
            self._server = FlightServer(self, f"{scheme}://{host}:{settings.port}", settings)
        except (pa.ArrowException, OSError):
            raise HeadwaterError(
                f"cannot listen for flight on {settings.host}:{settings.port}; "
                'choose another address with [listen] flight = "host:port"'
            ) from None
        self._thread = threading.Thread(target=self._watch, name="flight", daemon=True)
        self._thread.start()
        self._cleaner = self._loop.create_task(self._clean())
        return settings.host, self._server.port

    def _watch(self) -> None:
        """In a thread of its own, until `stop`. (It serves from the beginning. Flight's own `serve`
        does no more than wait, too, but takes SIGTERM and SIGINT away from the loop.)"""
        assert self._server is not None
        why = "it returned"
        try:
            self._server.wait()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if not self._stopping:
            logger.critical("Flight has ended: %s", why)
            with suppress(RuntimeError):  # the loop has ended, too
                sentence = f"Arrow Flight has failed: {why}"
                self._loop.call_soon_threadsafe(self._engine.give_up, sentence)

    def refuse(self) -> None:
        """Take no more requests, and end the streams that run."""
        self._stopping = True

    async def stop(self, seconds: float) -> bool:
        """Returns whether it has ended in that time: a reader that does not read holds it up."""
        self.refuse()
        if self._cleaner is not None:
            self._cleaner.cancel()
        if self._server is None:
            return True
        ended = asyncio.Event()
        threading.Thread(target=self._shut_down, args=(ended,), daemon=True).start()
        try:
            await asyncio.wait_for(ended.wait(), seconds)
        except TimeoutError:
            logger.warning("a reader over Flight does not take its last rows; it is cut off")
            return False
        return True

    def _shut_down(self, ended: asyncio.Event) -> None:
        """In a thread of its own, for Flight waits here for its clients."""
        assert self._server is not None and self._thread is not None
        self._server.shutdown()
        self._thread.join()
        with suppress(RuntimeError):  # the loop did not wait so long
            self._loop.call_soon_threadsafe(ended.set)

    async def _clean(self) -> None:
        while True:
            try:
                dropped = await asyncio.to_thread(self._stages.drop_abandoned)
                if dropped:
                    logger.warning("dropped %d staged batches that nobody has committed", dropped)
            except Exception:
                logger.exception("staged batches could not be cleaned up")
            await asyncio.sleep(CLEANING_SECONDS)

    # What the server's threads call

    def read(self, request: requests.Read) -> tuple[Any, Iterator[Any]]:
        """The schema, and record batches of that schema."""
        self._check_kept(request.start, request.end)
        if request.end > self._engine.watermark:
            raise HeadwaterError(f"the log ends at {self._engine.watermark}, before {request.end}")
        names = READ_SCHEMA.names if request.headers else READ_SCHEMA.names[:-1]
        schema = pa.schema([READ_SCHEMA.field(name) for name in names])
        return schema, self._counted(_chunks(self._flat(request, schema)))

    def _counted(self, chunks: Iterator[Any]) -> Iterator[Any]:
        for chunk in chunks:
            self.check_running()
            with self._counting:
                self._traffic.messages_out += len(chunk)
                self._traffic.bytes_out += chunk.nbytes
            yield chunk

    def check_running(self) -> None:
        if self._stopping:
            raise Refusal(Code.UNAVAILABLE, "the broker is shutting down")

    def _check_kept(self, start: int, end: int) -> None:
        kept = self._engine.start
        if start < min(kept, end):
            raise HeadwaterError(
                f"the offsets {start} to {min(kept, end) - 1} are no longer in the log, which "
                f"begins at {kept}"
            )

    def _flat(self, request: requests.Read, schema: Any) -> Iterator[Any]:
        at, wanted = request.start, request.wanted()
        while at < request.end:
            batches, following = self._engine.read_flat(at, wanted, READ_BYTES, request.end)
            # Retention does not wait for readers, and what it takes meanwhile is passed over.
            self._check_kept(at, request.end)
            at = following
            for batch in batches:
                yield pa.RecordBatch.from_arrays(
                    [batch.column(name) for name in schema.names], schema=schema
                )

    def log(self, request: requests.Nothing) -> dict[str, Any]:
        engine = self._engine
        return {"start": engine.start, "end": engine.watermark, "timestamp": engine.timestamp}

    def offset_at(self, request: requests.OffsetAt) -> dict[str, Any]:
        return {"offset": self._in_loop(self._engine.offset_at(request.timestamp))}

    def topics(self, request: requests.ListTopics) -> dict[str, Any]:
        found = self._engine.topics()
        matches = RegexFilter.parse(request.pattern).matches if request.pattern else None
        names = sorted(
            name for name in found if name > request.after and (not matches or matches(name))
        )
        page = names[: request.limit]
        return {
            "topics": [
                {
                    "topic": name,
                    "count": found[name].count,
                    "first_timestamp": found[name].first,
                    "last_timestamp": found[name].last,
                }
                for name in page
            ],
            "more": len(names) > len(page),
        }

    def split(self, request: requests.Split) -> dict[str, Any]:
        ranges = self._engine.split(request.start, request.end, max(request.bytes, 1))
        return {"ranges": ranges}

    def stage(self, request: requests.Stage, batches: Iterator[Any]) -> dict[str, Any]:
        rows, size = self._stages.write(request, self._checked(batches), WRITE_SCHEMA)
        return {"rows": rows, "bytes": size}

    def append(self, request: requests.Append, batches: Iterator[Any]) -> dict[str, Any]:
        stage, commit = stage_of(request)
        self.stage(stage, batches)
        return self.commit(commit)

    def commit(self, request: requests.Commit) -> dict[str, Any]:
        with self._committing[request.query]:
            done = self._stages.committed(request.query)
            if done is not None and request.batch <= done.batch:
                self._stages.drop(request.query, request.batch)
                same = request.batch == done.batch
                return {
                    "first": done.first if same else None,
                    "count": done.count if same else None,
                    "repeated": True,
                }
            intent, resumed = self._stages.begin(request, self._engine.watermark)
            first, count = self._append(intent, resumed)
            return {"first": first, "count": count, "repeated": False}

    def abort(self, request: requests.Abort) -> dict[str, Any]:
        if not any(
            (each.query, each.batch) == (request.query, request.batch)
            for each in self._stages.intents()
        ):
            self._stages.drop(request.query, request.batch)
        return {}

    def committed(self, request: requests.CommittedBatch) -> dict[str, Any]:
        done = self._stages.committed(request.query)
        return {"batch": None if done is None else done.batch}

    def report(self, request: requests.SubmitReport) -> dict[str, Any]:
        self._report(request.pipeline, request.state)
        return {}

    def _append(self, intent: Intent, resumed: bool) -> tuple[int, int]:
        """Append the rows of a batch, without those that are there already."""
        stored = self._stored(intent) if resumed else []
        runs = list(runs_of(self._stages.rows(intent.files), intent.publisher, len(stored)))
        first = self._publish(runs) if runs else self._engine.watermark
        first = stored[0] if stored else first
        count = len(stored) + sum(map(len, runs))
        self._stages.finish(intent, first, count)
        return first, count

    def _stored(self, intent: Intent) -> list[int]:
        """The offsets of the batch's rows that are in the log."""
        self._in_loop(self._settled())
        at, end = max(intent.since, self._engine.start), self._engine.watermark
        found: list[int] = []
        while at < end:
            batches, at = self._engine.read_flat(at, None, READ_BYTES, end)
            for batch in batches:
                # A client of any other protocol may call itself as it likes.
                ours = pc.and_(
                    pc.equal(batch.column("publisher"), intent.publisher),
                    pc.equal(batch.column("protocol"), PROTOCOL),
                )
                offsets = batch.column("offset").filter(ours).to_pylist()
                headers = batch.column("headers").filter(ours).to_pylist()
                # What was put off and delivered later is there a second time.
                found += [
                    offset
                    for offset, named in zip(offsets, headers, strict=True)
                    if FROM not in dict(named or ())
                ]
        return found

    def _checked(self, batches: Iterator[Any]) -> Iterator[Any]:
        checker = Checker(self._settings.message_bytes, self._settings.topic_bytes)
        return map(checker.check, batches)

    def _in_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _publish(self, runs: list[Run]) -> int:
        """Append all runs in one group; returns the first offset when all are durable. What takes
        time with very many runs is done here, and not in the loop."""
        group = self._broker.prepare(runs)
        first: int = self._in_loop(self._append_all(group))
        with self._counting:
            self._traffic.messages_in += group.count
            self._traffic.bytes_in += sum(run.size for run in runs)
        return first

    # What happens in the loop

    async def _append_all(self, group: Group) -> int:
        batches = self._broker.publish_all(group)
        await self._durable(batches[-1].end)
        return batches[0].offset

    async def _settled(self) -> None:
        await self._durable(self._engine.end)

    async def _durable(self, end: int) -> None:
        done: asyncio.Future[LogUnavailable | None] = self._loop.create_future()
        self._engine.when_durable(
            end, lambda error: None if done.done() else done.set_result(error)
        )
        self._engine.hurry()
        if (error := await done) is not None:
            raise error


def _chunks(batches: Iterator[Any]) -> Iterator[Any]:
    """Small batches put together: each one that is sent costs the same, however small it is."""
    waiting: list[Any] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += len(batch)
        size += batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
