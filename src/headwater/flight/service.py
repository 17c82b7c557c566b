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
import heapq
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from headwater.actions import ANONYMOUS
from headwater.broker.broker import Broker
from headwater.broker.quotas import OverQuota
from headwater.errors import Code, HeadwaterError, Refusal
from headwater.flight import requests
from headwater.flight.appending import BatchAppender
from headwater.flight.calls import Calls
from headwater.flight.entrance import Admit, Caller, Entrance
from headwater.flight.exports import Exports
from headwater.flight.kept import KeptBatches
from headwater.flight.pacing import Pacing
from headwater.flight.patterns import TopicPattern
from headwater.flight.reading import RangeReader, allowed
from headwater.flight.requests import WRITE_SCHEMA
from headwater.flight.rows import Checker
from headwater.flight.server import FlightServer, server_tls
from headwater.flight.stages import Stages, stage_of
from headwater.flight.watch import Watch, WatchLimits
from headwater.local_tokens import ShownToken
from headwater.rights import LOCAL, Principal, Rights
from headwater.slowing import Slowdowns
from headwater.tls import TlsFiles
from headwater.traffic import Traffic

logger = logging.getLogger(__name__)

CLEANING_SECONDS = 600.0
# So long an address is tried to be taken again for a new certificate.
RENEWAL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightSettings:
    host: str = "127.0.0.1"
    port: int = 8815
    token: str = ""
    tls: TlsFiles | None = None
    message_bytes: int = 16 * 1024 * 1024
    topic_bytes: int = 1024
    #: Calls at the same time, and how long a client may keep one waiting.
    calls: int = 100
    idle_seconds: float = 60.0
    #: What a client may send in one piece, stage, and make visible with one commit.
    record_batch_bytes: int = 64 * 1024 * 1024
    staged_bytes: int = 16 << 30
    commit_bytes: int = 512 * 1024 * 1024
    watch: WatchLimits = field(default_factory=WatchLimits)


class FlightService:
    """Made in the event loop's thread; `start` and `stop` are called there.

    `report` takes what a pipeline says of itself; any thread may call it. `exported` takes who has
    read what, in the event loop; `slowdowns` are those of all who write.
    """

    def __init__(
        self,
        *,
        broker: Broker,
        data: Path,
        settings: FlightSettings,
        report: Callable[[str, dict[str, Any]], None],
        exported: Callable[[Principal, dict[str, Any]], None],
        traffic: Traffic,
        slowdowns: Slowdowns,
        admit: Admit,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._engine = broker.engine
        self._report = report
        self._exported = exported
        self._exports = Exports(self._hand_over)
        self.reader = RangeReader(broker, self._exports, traffic, self.check_running)
        self._pacing = Pacing(broker.accounts, slowdowns, self._rest)
        self.entrance = Entrance(settings.token, admit)
        self._traffic = traffic
        self._counting = threading.Lock()
        self._kept = KeptBatches(broker)
        self._stages = Stages(data, settings.staged_bytes, self._kept.begun)
        self._settings = settings
        self._stopping = threading.Event()
        self._appender = BatchAppender(
            broker, self._stages, settings.commit_bytes, self._count_in, self._stopping.is_set
        )
        self.watch = Watch(settings.watch)
        self.calls = Calls(settings.calls, settings.idle_seconds, self.watch)
        self._server: FlightServer | None = None
        self._tls: Mapping[str, Any] = {}
        self._renewing = threading.Lock()
        self._shown: ShownToken | None = None
        self._retired: FlightServer | None = None  # its end is no failure
        self._thread: threading.Thread | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # One at a time: each has its rows in memory, and all go through one writer.
        self._committing = threading.Lock()
        # The same: each counts all topics.
        self._listing = threading.Lock()

    async def recover(self) -> None:
        """Finish what a crash has interrupted. Nobody is served before that."""
        await self._kept.check(self._stages)
        for intent in await asyncio.to_thread(self._stages.intents):
            logger.warning(
                "finishing batch %d of query %s, which a crash interrupted",
                intent.batch,
                intent.query,
            )
            try:
                await asyncio.to_thread(self._appender.append, intent, True)
            except (OSError, HeadwaterError, pa.ArrowException) as error:
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
        try:
            port = self._serve(settings.port, server_tls(settings.tls))
        except (pa.ArrowException, OSError):
            raise HeadwaterError(
                f"cannot listen for flight on {settings.host}:{settings.port}; "
                'choose another address with [listen] flight = "host:port"'
            ) from None
        self._tasks = [
            self._loop.create_task(self._clean()),
            self._loop.create_task(self._look_after()),
        ]
        self.watch.start(lambda: self.calls.port, self._fail)
        self._shown = ShownToken(settings.host, port, settings.token)
        return settings.host, port

    def _serve(self, port: int, tls: Mapping[str, Any]) -> int:
        settings = self._settings
        scheme = "grpc+tls" if settings.tls else "grpc"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        server = FlightServer(self, f"{scheme}://{host}:{port}", tls)
        self._server, self._tls = server, tls
        self._thread = threading.Thread(
            target=self._watch, args=(server,), name="flight", daemon=True
        )
        self._thread.start()
        bound: int = server.port
        self.calls.port = bound
        return bound

    def _watch(self, server: FlightServer) -> None:
        """In a thread of its own, until `stop`. (It serves from the beginning. Flight's own `serve`
        does no more than wait, too, but takes SIGTERM and SIGINT away from the loop.)"""
        why = "it returned"
        try:
            server.wait()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if not self._stopping.is_set() and server is not self._retired:
            self._fail(why)

    def _fail(self, why: str) -> None:
        logger.critical("Flight has ended: %s", why)
        with suppress(RuntimeError):  # the loop has ended, too
            sentence = f"Arrow Flight has failed: {why}"
            self._loop.call_soon_threadsafe(self._engine.give_up, sentence)

    def renew_certificate(self) -> None:
        """gRPC cannot exchange a certificate. So another server takes the address, in less than a
        tenth of a second; calls that run go on with the old one, which then ends."""
        threading.Thread(target=self._renew, daemon=True).start()

    def _renew(self) -> None:
        with self._renewing:
            old = self._server
            if old is None or self._stopping.is_set():
                return
            new_tls, port = server_tls(self._settings.tls), old.port
            self._retired = old
            threading.Thread(target=old.shutdown, daemon=True).start()
            # What cannot be used after all is no reason to serve nobody.
            for tls in (new_tls, self._tls):
                until = time.monotonic() + RENEWAL_SECONDS
                while time.monotonic() < until and not self._stopping.is_set():
                    try:
                        self._serve(port, tls)
                        return
                    except (pa.ArrowException, OSError):  # the old one still listens
                        time.sleep(0.01)
            if not self._stopping.is_set():
                self._fail("it could not listen again with a new certificate")

    def refuse(self) -> None:
        """Take no more requests, and end the streams that run."""
        self._stopping.set()
        self._exports.end()

    async def stop(self, seconds: float) -> bool:
        """Returns whether it has ended in that time: a reader that does not read holds it up."""
        self.refuse()
        self.watch.stop()
        if self._shown is not None:
            self._shown.withdraw()
        for task in self._tasks:
            task.cancel()
        if self._server is None:
            return True
        ended = asyncio.Event()
        threading.Thread(target=self._shut_down, args=(ended,), daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await ended.wait()
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

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(min(self._settings.idle_seconds / 4, 5.0))
            try:
                await asyncio.to_thread(self.calls.hang_up_on_the_idle)
                await asyncio.to_thread(self._appender.close_unused)
                self._exports.look(time.monotonic())
            except Exception:
                logger.exception("what calls have left could not be ended")

    # What the server's threads call

    def check_running(self) -> None:
        if self._stopping.is_set():
            raise Refusal(Code.UNAVAILABLE, "the broker is shutting down")

    def _rest(self, seconds: float) -> None:
        self._stopping.wait(seconds)
        self.check_running()

    def _hand_over(self, who: Principal, read: dict[str, Any]) -> None:
        """Any thread has something for the audit trail."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._exported, who, read)

    def log(self, request: requests.Nothing, rights: Rights) -> dict[str, Any]:
        engine = self._engine
        return {"start": engine.start, "end": engine.watermark, "timestamp": engine.timestamp}

    def offset_at(self, request: requests.OffsetAt, rights: Rights) -> dict[str, Any]:
        return {"offset": self._in_loop(self._engine.offset_at(request.timestamp))}

    def topics(self, request: requests.ListTopics, rights: Rights) -> dict[str, Any]:
        pattern = TopicPattern(request.pattern).matches if request.pattern else None
        matches = allowed(pattern, rights)
        limit = min(request.limit, requests.MOST_LISTED)
        with self._listing:
            self.check_running()
            found = self._engine.topics()
            # Not sorted: to sort a million names keeps everyone else from running.
            names = heapq.nsmallest(
                limit + 1,
                (name for name in found if name > request.after and (not matches or matches(name))),
            )
        return {
            "topics": [
                {
                    "topic": name,
                    "count": found[name].count,
                    "first_timestamp": found[name].first,
                    "last_timestamp": found[name].last,
                }
                for name in names[:limit]
            ],
            "more": len(names) > limit,
        }

    def split(self, request: requests.Split, rights: Rights) -> dict[str, Any]:
        ranges = self._engine.split(request.start, request.end, max(request.bytes, 1))
        return {"ranges": ranges}

    def stage(
        self, request: requests.Stage, caller: Caller, batches: Iterator[Any]
    ) -> dict[str, Any]:
        paced = self._pacing.paced(self._checked(batches, caller.rights), caller)
        rows, size = self._stages.write(_owned(request, caller.rights), paced, WRITE_SCHEMA)
        return {"rows": rows, "bytes": size}

    def append(
        self, request: requests.Append, caller: Caller, batches: Iterator[Any]
    ) -> dict[str, Any]:
        stage, commit = stage_of(request)
        self.stage(stage, caller, batches)
        try:
            return self.commit(commit, caller.rights)
        except Refusal as error:
            # Rows that nobody may commit should not take room either.
            if isinstance(error, OverQuota) or error.code is Code.NOT_PERMITTED:
                owned = _owned(commit, caller.rights)
                self._stages.drop(owned.query, owned.batch)
            raise

    def commit(self, request: requests.Commit, rights: Rights) -> dict[str, Any]:
        request = _owned(request, rights)
        with self._committing:
            self.check_running()
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
            first, count = self._appender.append(intent, resumed, rights)
            return {"first": first, "count": count, "repeated": False}

    def abort(self, request: requests.Abort, rights: Rights) -> dict[str, Any]:
        request = _owned(request, rights)
        if not any(
            (each.query, each.batch) == (request.query, request.batch)
            for each in self._stages.intents()
        ):
            self._stages.drop(request.query, request.batch)
        return {}

    def committed(self, request: requests.CommittedBatch, rights: Rights) -> dict[str, Any]:
        done = self._stages.committed(_owned(request, rights).query)
        return {"batch": None if done is None else done.batch}

    def report(self, request: requests.SubmitReport, rights: Rights) -> dict[str, Any]:
        self._report(request.pipeline, request.state)
        return {}

    def _count_in(self, messages: int, size: int) -> None:
        with self._counting:
            self._traffic.messages_in += messages
            self._traffic.bytes_in += size

    def _checked(self, batches: Iterator[Any], rights: Rights) -> Iterator[Any]:
        settings = self._settings
        checker = Checker(
            settings.message_bytes, settings.topic_bytes, settings.record_batch_bytes, rights
        )
        return chain.from_iterable(map(checker.check, batches))

    def _in_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


Q = TypeVar("Q", requests.Stage, requests.Commit, requests.Abort, requests.CommittedBatch)


def _owned(request: Q, rights: Rights) -> Q:
    """Queries have a name space for each user: nobody can take over another's."""
    if rights.principal.kind in (LOCAL, ANONYMOUS):
        return request
    return replace(request, query=f"{rights.principal}/{request.query}")
