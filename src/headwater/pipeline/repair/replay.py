"""Replay: publish a range of the log, or rows of a table, into topics once more.

Each row is published exactly once, however often the replay is killed. Rows are published in
batches, and the positions of a batch are noted before it is sent:

    <storage>/state/replays/<name>.json     the order, the batch that is sent now, its positions

The broker takes a batch of this name and number once. A replay that is resumed sends the noted
batch again: the same range, so the same rows, and if the broker has them already it does nothing.

The end is fixed at the start, so a replay never reads what it has written itself.
"""

import fcntl
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from headwater import units
from headwater.errors import HeadwaterError
from headwater.flight.requests import WRITE_SCHEMA
from headwater.pipeline.project import intents
from headwater.pipeline.repair.replay_rows import LOG, ReplayColumns, ReplayOrder, rows_of
from headwater.pipeline.tables.stored import StoredTable, files_of
from headwater.spark.flight_client import FlightClient

#: Not the original topics: their subscribers would get everything twice.
TO = "replay/{topic}"
BATCH_ROWS = 10_000
BATCH_BYTES = 4 * 1024 * 1024
#: With a pace, a batch has the rows that are due within this time.
BEAT_SECONDS = 0.1

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PACE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(x|/s)")
_RELATIVE = re.compile(r"[0-9.]+ ?(ms|s|m|h|d)")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ReplayPace:
    """`speed`: times as fast as it was; `rate`: messages a second; neither: as fast as can be."""

    speed: float | None = None
    rate: float | None = None

    @classmethod
    def parse(cls, text: str) -> "ReplayPace":
        if text == "max":
            return cls()
        found = _PACE.fullmatch("1x" if text == "original" else text)
        if found is None or float(found[1]) <= 0:
            raise HeadwaterError(f"a pace is original, max, 10x or 500/s, not: {text}")
        number = float(found[1])
        return cls(speed=number) if found[2] == "x" else cls(rate=number)


@dataclass(frozen=True, slots=True)
class ReplayPosition:
    """The progress of a replay: the batch that is being sent, or was sent last."""

    batch: int
    low: int
    high: int
    sent: int  # rows before this batch
    done: bool = False


@dataclass(frozen=True, slots=True)
class ReplayState:
    order: ReplayOrder
    to: str
    place: ReplayPosition


@dataclass(frozen=True, slots=True)
class ReplayResult:
    name: str
    rows: int
    seconds: float


# Orders


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """A replay as a user asks for it; times and offsets are texts."""

    source: str
    topic: str | None = None
    since: str | None = None
    until: str | None = None
    where: str | None = None
    to: str = TO


def order_of(request: ReplayRequest, tables: Path, broker: FlightClient) -> ReplayOrder:
    """The order for a request, with its end fixed. Raises HeadwaterError if it is impossible."""
    since, until = bound(request.since), bound(request.until)
    if request.source == LOG:
        order = _of_log(request, since, until, broker)
    else:
        order = _of_table(request, since, until, StoredTable(tables / request.source).delta())
    rows_of(order, tables, broker)  # the condition and the pattern make sense
    return order


def bound(text: str | None) -> int | datetime | None:
    """An offset such as 42, a time such as 2030-01-01T10:00, or how long ago: 2h."""
    if text is None:
        return None
    if text.isdigit():
        return int(text)
    if _RELATIVE.fullmatch(text):
        return datetime.fromtimestamp(time.time() - units.parse_duration(text), UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HeadwaterError(
            f"this is no offset (42), no time (2030-01-01T10:00Z) and no duration (2h): {text}"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _of_log(
    request: ReplayRequest,
    since: int | datetime | None,
    until: int | datetime | None,
    broker: FlightClient,
) -> ReplayOrder:
    log = broker.log()

    def offset(edge: int | datetime | None, default: int) -> int:
        if isinstance(edge, datetime):
            edge = broker.offset_at(int(edge.timestamp() * 1000))
        return default if edge is None else min(max(edge, log.start), log.end)

    start, end = offset(since, log.start), offset(until, log.end)
    return ReplayOrder(LOG, start, max(start, end), topic=request.topic, where=request.where)


def _of_table(
    request: ReplayRequest,
    since: int | datetime | None,
    until: int | datetime | None,
    delta: DeltaTable,
) -> ReplayOrder:
    columns = ReplayColumns.of(pa.schema(delta.schema()))
    if columns.topic is None and "{topic}" in request.to:
        raise HeadwaterError(f"rows of {request.source} have no topic: say --to TOPIC")
    start, end = _positions(delta, columns)
    if isinstance(since, int):
        start = max(start, since)
    if isinstance(until, int):
        end = min(end, until)
    return ReplayOrder(
        request.source,
        start,
        max(start, end),
        delta.version(),
        request.topic,
        request.where,
        _microseconds(since),
        _microseconds(until),
    )


def _positions(delta: DeltaTable, columns: ReplayColumns) -> tuple[int, int]:
    files = files_of(delta, Path())
    if not files:
        return 0, 0
    if columns.offset is None:
        return 0, sum(each.rows for each in files)
    low = min(each.stats["min"][columns.offset] for each in files)
    high = max(each.stats["max"][columns.offset] for each in files)
    return int(low), int(high) + 1


def _microseconds(edge: int | datetime | None) -> int | None:
    return int(edge.timestamp() * 1e6) if isinstance(edge, datetime) else None


# Running


class Replay:
    """One replay, known by its name. It is locked while it runs."""

    def __init__(self, name: str, storage: Path, broker: FlightClient) -> None:
        if not _NAME.fullmatch(name):
            raise HeadwaterError(f"a replay's name has letters, digits, '_', '.' and '-': {name}")
        self.name = name
        self._tables, self._broker = storage / "tables", broker
        self._file = storage / "state" / "replays" / f"{name}.json"

    def begin(self, request: ReplayRequest) -> ReplayState:
        """Note a new replay."""
        with self._locked():
            if self._file.exists() and not self.state().place.done:
                raise HeadwaterError(
                    f"the replay {self.name} was not finished: go on with --resume, or choose "
                    "another --name"
                )
            order = order_of(request, self._tables, self._broker)
            # The broker remembers earlier replays of this name.
            last = self._broker.committed(self._query)
            first = 0 if last is None else last + 1
            state = ReplayState(
                order, request.to, ReplayPosition(first - 1, order.start, order.start, 0)
            )
            self._save(state)
        return state

    def state(self) -> ReplayState:
        try:
            found = json.loads(self._file.read_text())
        except FileNotFoundError:
            raise HeadwaterError(f"there is no replay {self.name} to resume") from None
        return ReplayState(
            ReplayOrder(**found["order"]), found["to"], ReplayPosition(**found["place"])
        )

    def run(self, pace: ReplayPace, progress: Progress = lambda done, total: None) -> ReplayResult:
        """Publish the rows that are left."""
        began = time.monotonic()
        with self._locked():
            state = self.state()
            order, place = state.order, state.place
            clock = _Clock(pace)
            for low, high, rows in self._batches(state, pace):
                resumed = low < place.high
                number = place.batch if resumed else place.batch + 1
                if not resumed:
                    place = ReplayPosition(number, low, high, place.sent)
                    clock.wait(rows)
                    self._save(replace(state, place=place))
                self._send(number, rows, state.to)
                place = replace(place, sent=place.sent + len(rows))
                progress(high - order.start, order.end - order.start)
            self._save(replace(state, place=replace(place, done=True)))
        return ReplayResult(self.name, place.sent, time.monotonic() - began)

    def _batches(self, state: ReplayState, pace: ReplayPace) -> Iterator[tuple[int, int, Any]]:
        """The batches that are left, as (low, high, rows); first the noted one, unchanged."""
        if state.place.done:
            return
        source = rows_of(state.order, self._tables, self._broker)
        noted, held = state.place, []
        for window in source.windows(noted.low):
            rows = window.rows
            if window.end < noted.high:
                held.append(rows)  # it goes on in the next window
                continue
            if noted.low < noted.high:
                old = pc.less(rows["position"], noted.high)
                whole = pa.concat_tables([*held, rows.filter(old)])
                if len(whole):
                    yield noted.low, noted.high, whole
                rows = rows.filter(pc.invert(old))
                noted = replace(noted, low=noted.high)
            for piece in _cut(rows, pace):
                yield piece["position"][0].as_py(), piece["position"][-1].as_py() + 1, piece

    def _send(self, number: int, rows: Any, to: str) -> None:
        columns = [_renamed(rows["topic"], to), rows["value"], rows["headers"]]
        batch = pa.table(columns, schema=WRITE_SCHEMA).combine_chunks()
        self._broker.stage(self._query, number, 0, "", batch.to_batches())
        self._broker.commit(self._query, number, {"0": ""})

    @property
    def _query(self) -> str:
        return f"replay/{self.name}"

    def _save(self, state: ReplayState) -> None:
        intents.write(self._file, asdict(state))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise HeadwaterError(f"the replay {self.name} is running already") from None
            yield


def _renamed(topics: Any, to: str) -> Any:
    """The topics that messages of these topics are published to."""
    if "{topic}" not in to:
        return pa.array([to] * len(topics), pa.string())
    names = pc.dictionary_encode(topics).combine_chunks()
    names = names.chunk(0) if isinstance(names, pa.ChunkedArray) else names
    targets = [to.replace("{topic}", name) for name in names.dictionary.to_pylist()]
    return pa.array(targets, pa.string()).take(names.indices)


def _cut(rows: Any, pace: ReplayPace) -> Iterator[Any]:
    """Rows in pieces of one batch each."""
    ends = np.cumsum(pc.binary_length(rows["value"]).to_numpy().astype(np.int64))
    times = rows["time"].fill_null(0).to_numpy()
    most = BATCH_ROWS if pace.rate is None else max(int(pace.rate * BEAT_SECONDS), 1)
    first = 0
    while first < len(rows):
        stop = min(first + min(most, BATCH_ROWS), len(rows))
        before = ends[first - 1] if first else 0
        stop = min(stop, int(np.searchsorted(ends, before + BATCH_BYTES, "right")))
        if pace.speed is not None:
            until = times[first] + BEAT_SECONDS * pace.speed * 1e6
            stop = min(stop, first + int(np.searchsorted(times[first:], until)))
        stop = max(stop, first + 1)
        yield rows.slice(first, stop - first)
        first = stop


class _Clock:
    """Says when the next batch is due."""

    def __init__(self, pace: ReplayPace) -> None:
        self._pace = pace
        self._began: float | None = None
        self._first = 0  # the time of the first row
        self._sent = 0

    def wait(self, rows: Any) -> None:
        moment = rows["time"][0].as_py() or 0
        if self._began is None:
            self._began, self._first = time.monotonic(), moment
        due = self._began
        if self._pace.speed is not None:
            due += (moment - self._first) / 1e6 / self._pace.speed
        elif self._pace.rate is not None:
            due += self._sent / self._pace.rate
        self._sent += len(rows)
        time.sleep(max(due - time.monotonic(), 0))
