"""Puts a staged batch into the log: all of its rows, once (stages.py has the way of a commit).

What it takes in memory does not depend on how large the rows are: they stay in the files, which are
mapped, until the log's writer takes them, and the pages that were read are given back meanwhile.
What is in memory is an object for each run of rows with the same topic and headers, and of those
there may be so many.

The rows are appended in pieces, and others may publish between two of them: whoever waits for the
disk behind a batch waits for a piece of it. Where a failure has left some of them in the log, the
next commit, or the next start, appends the rest.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any

from headwater import arrow_compute as pc
from headwater.actions import PUBLISH
from headwater.broker.broker import Broker
from headwater.broker.delays import FROM
from headwater.broker.quotas import Share
from headwater.courtesy import Courtesy
from headwater.errors import Code, LogUnavailable, Refusal
from headwater.flight.rows import PROTOCOL, memory_of, runs_of
from headwater.flight.stages import Intent, StagedRows, Stages
from headwater.message import Group, Run
from headwater.rights import Rights

READ_BYTES = 4 * 1024 * 1024
# How much is appended at once, and how often before the first of it is on the disk. All of it
# together has to be less than the log may be behind, or other publishers have to wait.
PIECE_BYTES = 2 * 1024 * 1024
UNDER_WAY = 2
# How often the pages that were read are given back.
LET_GO_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Charge:
    """What a batch takes of somebody's account."""

    share: Share
    rights: Rights | None  # None: of nobody's
    refusable: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """What is appended at once, and what it takes of somebody's account."""

    group: Group
    share: Share


class BatchAppender:
    """Made in the event loop's thread; threads of Flight call `append`, one at a time."""

    def __init__(
        self,
        broker: Broker,
        stages: Stages,
        most_bytes: int,
        count: Callable[[int, int], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        """`count` is told how many messages and bytes have come. When the broker stops, the rest of
        a batch is left to the next start."""
        self._loop = asyncio.get_running_loop()
        self._broker = broker
        self._engine = broker.engine
        self._stages = stages
        self._most_bytes = most_bytes
        self._count = count
        self._is_stopping = is_stopping
        self._in_use: list[StagedRows] = []

    def append(
        self, intent: Intent, resumed: bool, rights: Rights | None = None
    ) -> tuple[int, int]:
        """Append the rows of a batch, without those that are there already. Returns the first
        offset, and how many there are. Without rights, they are on nobody's account, and nobody is
        asked whether they may be published."""
        begin, stored = self._stored(intent) if resumed else (None, 0)
        rows = self._stages.rows(intent.files)
        self._in_use.append(rows)
        try:
            # What is visible in part has to become so as a whole.
            runs, share = self._runs(intent, rows, stored, None if stored else rights)
            charge = Charge(share, rights, refusable=not stored)
            first = self._publish(runs, rows, charge) if runs else self._engine.watermark
        except LogUnavailable:  # some of it may be in the log
            raise
        except Refusal:
            if not stored:
                self._stages.forget(intent)
            raise
        first = first if begin is None else begin
        count = stored + sum(map(len, runs))
        self._stages.finish(intent, first, count)
        return first, count

    def close_unused(self) -> None:
        """Let go of the files of batches that nobody reads any more. Call it now and then."""
        for rows in self._in_use[:]:
            if rows.close():
                self._in_use.remove(rows)

    def _stored(self, intent: Intent) -> tuple[int | None, int]:
        """The first offset of the batch's rows that are in the log, and how many there are."""
        self._in_loop(self._settled())
        at, end = max(intent.since, self._engine.start), self._engine.watermark
        first, count = None, 0
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
                found = [
                    offset
                    for offset, named in zip(offsets, headers, strict=True)
                    if FROM not in dict(named or ())
                ]
                if found and first is None:
                    first = found[0]
                count += len(found)
        return first, count

    def _runs(
        self, intent: Intent, rows: StagedRows, skip: int, rights: Rights | None
    ) -> tuple[list[Run], Share]:
        runs: list[Run] = []
        share = Share(self._broker.accounts.quotas)
        held, courtesy = 0, Courtesy()
        for run in runs_of(rows, intent.publisher, skip):
            # When they were staged they might be published; now is what counts.
            if rights is not None and not rights.publish.may(run.topic):
                raise rights.refusal(PUBLISH, run.topic)
            runs.append(run)
            share.add(run)
            held += memory_of(run)
            if held > self._most_bytes:
                raise Refusal(
                    Code.TOO_LARGE,
                    f"batch {intent.batch} of {intent.query} takes more than {self._most_bytes} "
                    "bytes of memory while it becomes visible (flight.commit_bytes), because its "
                    "topic or headers change often; commit smaller batches, or sort them by "
                    "topic",
                    limit="flight.commit_bytes",
                )
            courtesy.show()
        return runs, share

    def _publish(self, runs: list[Run], rows: StagedRows, charge: Charge) -> int:
        """Append all runs; returns the first offset when all are durable. What takes time with very
        many runs is done here, and not in the loop."""
        pieces = [Piece(self._broker.prepare(each), self._share(each)) for each in pieces_of(runs)]
        durable = asyncio.run_coroutine_threadsafe(self._append_all(pieces, charge), self._loop)
        while not wait([durable], LET_GO_SECONDS).done:
            rows.let_go()
        first = durable.result()
        rows.let_go()
        self._count(sum(piece.group.count for piece in pieces), charge.share.size)
        return first

    def _share(self, runs: Sequence[Run]) -> Share:
        share = Share(self._broker.accounts.quotas)
        for run in runs:
            share.add(run)
        return share

    def _in_loop(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # What happens in the loop

    async def _append_all(self, pieces: Sequence[Piece], charge: Charge) -> int:
        account = None if charge.rights is None else self._broker.accounts.of(charge.rights)
        if account is not None and charge.refusable:
            account.check(charge.share)
        first, under_way = -1, deque[Outcome]()
        for piece in pieces:
            if len(under_way) == UNDER_WAY:
                await _stored(under_way.popleft())
            if under_way and under_way[-1].done():
                await _stored(under_way[-1])  # nothing may come behind a gap
            if self._is_stopping():
                raise LogUnavailable("the broker is shutting down")
            batches = self._broker.publish_all(piece.group)
            first = batches[0].offset if first < 0 else first
            under_way.append(self._durable(batches[-1].end))
            if account is not None:
                account.published(piece.share, batches[-1].end)
        for outcome in under_way:
            await _stored(outcome)
        return first

    async def _settled(self) -> None:
        await _stored(self._durable(self._engine.end))

    def _durable(self, end: int) -> "Outcome":
        done: Outcome = self._loop.create_future()
        self._engine.when_durable(
            end, lambda error: None if done.done() else done.set_result(error)
        )
        self._engine.hurry()
        return done


#: Why something could not be stored, or None if it was.
Outcome = asyncio.Future[LogUnavailable | None]


async def _stored(outcome: Outcome) -> None:
    if (error := await outcome) is not None:
        raise error


def pieces_of(runs: Sequence[Run]) -> Iterator[list[Run]]:
    piece, weight = list[Run](), 0
    for run in runs:
        if piece and weight + run.weight > PIECE_BYTES:
            yield piece
            piece, weight = [], 0
        piece.append(run)
        weight += run.weight
    if piece:
        yield piece
