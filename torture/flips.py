"""Damage to files at rest: bits are flipped, sectors emptied and ends cut off, one at a time, in
segments, LOCK, state.db, flight.db, staged rows, users.json and access.json; then all of it is
opened and read.

Each time one of these has to hold:

    refused    it is not opened, or not read, and an error says what is wrong
    told       it is opened, and a warning says what is wrong; what can be read is right
    harmless   all is as it was: nothing is stored in these bytes, or it is known from elsewhere too
    again      what SQLite had not yet moved from its log into state.db is gone: positions are those
               of a moment before, as after a crash, and some messages are delivered again

Anything else is a fault: something that differs and nobody has said so, or an error that is not
meant for a user.
"""

import asyncio
import logging
import multiprocessing
import shutil
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from headwater.broker.queues import ledger
from headwater.errors import HeadwaterError
from headwater.flight.requests import Commit
from headwater.identity.apps import FILE as APPS
from headwater.identity.apps import Apps
from headwater.identity.rules import FILE as RULES
from headwater.identity.rules import Rules
from headwater.identity.users import FILE as USERS
from headwater.identity.users import Users
from tests.e2e.process import ALL_FIVE, BrokerProcess
from torture.boundaries import boundaries, lay_out
from torture.disk.crash import Choice
from torture.disk.memory import in_memory
from torture.disk.offsets import offsets_of
from torture.disk.opened import RIGHTS, Opened, Stored, opened
from torture.disk.recording import Recording, record
from torture.everyone.accounts import Batch, key_of
from torture.everyone.checks import Check
from torture.verdict import Verdict

State = Mapping[str, bytes | None]
#: How often each kind of file is chosen: by what its path contains.
FILES = {
    "log": ("/log/0", 10),
    "LOCK": ("/LOCK", 1),
    "state.db": ("state.db", 4),
    "flight.db": ("flight.db", 3),
    "stages": (".arrow", 2),
    "users.json": ("users.json", 2),
    "access.json": ("access.json", 2),
}
NOT_MEANT = "unexpected error"
STATES = 6
OPERATIONS = 3000
PER_TASK = 300
SERVED = 6
WORKERS = 2
SHOWN = 10
SECTOR = 512


@dataclass(frozen=True)
class Harm:
    """What is done to one file."""

    kind: str
    path: str
    how: str
    content: bytes


def harm(state: State, chance: Random) -> Harm:
    there = {
        kind: [path for path, content in state.items() if content and part in path]
        for kind, (part, _) in FILES.items()
    }
    kinds = [kind for kind, paths in there.items() if paths]
    (kind,) = chance.choices(kinds, [FILES[kind][1] for kind in kinds])
    path = chance.choice(there[kind])
    content = state[path]
    assert content
    at = chance.randrange(len(content))
    way = chance.choices(("flip", "cut", "sector"), (7, 2, 1))[0]
    if way == "cut":
        return Harm(kind, path, f"cut off at {at}", content[:at])
    if way == "flip":
        bit = chance.randrange(8)
        made = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        return Harm(kind, path, f"bit {bit} of byte {at} flipped", made)
    at -= at % SECTOR
    made = content[:at] + bytes(len(content[at : at + SECTOR])) + content[at + SECTOR :]
    return Harm(kind, path, f"sector at {at} emptied", made)


@dataclass(frozen=True)
class Content:
    """All that can be read of a data directory."""

    stored: list[Any]
    start: int
    users: dict[str, Any]
    rules: tuple[Any, ...]
    apps: list[Any]
    cursors: dict[str, int]
    numbers: dict[str, int]
    #: Position, and the messages before it that are to be delivered again.
    queues: dict[str, tuple[int, frozenset[int]]]
    committed: dict[str, Any]


class Reader:
    """Opens data directories and reads everything."""

    def __init__(self, recording: Recording, place: Path) -> None:
        self._recording, self._place = recording, place
        self._loop = asyncio.new_event_loop()
        self._offsets = offsets_of(recording.operations())
        self._queries = sorted({batch.query for batch in recording.accounts.batches})

    def read(self, state: State, moment: int) -> tuple[Content, list[str]]:
        """And the warnings that came with it."""
        shutil.rmtree(self._place, ignore_errors=True)
        lay_out(dict(state), self._place)
        with warnings() as told:
            return self._loop.run_until_complete(self._read(moment)), told

    async def _read(self, moment: int) -> Content:
        data = self._place / "data"
        users, rules = Users(data / USERS).all(), Rules(data / RULES).all()
        apps = Apps(data / APPS).list()
        async with opened(data) as found:
            await self._commit_staged(found, moment)
            notes: Any = found.engine.notes
            queues = {name: _passed(notes.load_queue(name)) for name in notes.queue_names()}
            committed = {query: found.flight._stages.committed(query) for query in self._queries}
            unanswered = self._unanswered(moment)
            for batch in unanswered:
                if (last := committed[batch.query]) is not None and last.batch == batch.number:
                    committed[batch.query] = replace(last, first=-1)
            return Content(
                _in_order(found.stored(), {key for batch in unanswered for key in batch.keys}),
                found.start,
                users,
                rules,
                apps,
                dict(notes._cursors),
                dict(notes._numbers),
                queues,
                committed,
            )

    async def _commit_staged(self, found: Opened, moment: int) -> None:
        """What lies in the stages and was not committed then."""
        for batch in self._unanswered(moment):
            parts = {"0": ""} if batch.query.startswith("producer/") else {"0": "x", "1": "x"}
            commit = Commit(batch.query, batch.number, parts)
            try:
                await asyncio.to_thread(found.flight.commit, commit, RIGHTS)
            except HeadwaterError as error:
                logging.getLogger("headwater").warning("%s", error)

    def _unanswered(self, moment: int) -> list[Batch]:
        """Batches whose clients did not know by then that they are committed. What comes of one
        does not depend on others, so each may become visible before another."""
        return [
            batch
            for batch in self._recording.accounts.batches
            if batch.begun_at <= moment and (batch.committed_at or moment + 1) > moment
        ]

    def wrong(self, found: Content, moment: int) -> str:
        """What is served that is not right, or was acknowledged and is not served."""
        gone = [key for key, offset in self._offsets.items() if offset < found.start]
        return str(Check(self._recording.accounts, moment, found.stored, gone).findings)

    def without_new(self, content: Content, moment: int) -> Content:
        """Without the apps that were just being added: nobody was told that they are there."""
        new = {each.name for each in self._recording.changes if each.done > moment}
        return replace(content, apps=[app for app in content.apps if app.client_id not in new])

    def close(self) -> None:
        self._loop.close()


def _in_order(stored: Sequence[Stored], unanswered: Set[bytes]) -> list[Any]:
    """All that is stored by its offset; behind it, what may be at one or at another."""
    rows = [(each.offset, each.topic, each.payload) for each in stored]
    movable = [row for row in rows if key_of(row[2]) in unanswered]
    fixed = [row for row in rows if key_of(row[2]) not in unanswered]
    return fixed + sorted((-1, topic, payload) for _, topic, payload in movable)


def _passed(content: bytes) -> tuple[int, frozenset[int]]:
    position, items = ledger.decode(content, sys.maxsize)
    return position, frozenset(offset for offset, _ in items)


class _Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.told: list[str] = []

    def emit(self, said: logging.LogRecord) -> None:
        self.told.append(said.getMessage() + (said.exc_text or ""))


@contextmanager
def warnings() -> Iterator[list[str]]:
    handler, logger = _Told(), logging.getLogger("headwater")
    level, logger.propagate = logger.level, False
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    try:
        yield handler.told
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = True


@dataclass
class Outcomes:
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)

    def add(self, other: "Outcomes") -> None:
        for kind, counts in other.counts.items():
            self.counts.setdefault(kind, Counter()).update(counts)
        self.bad += other.bad

    def total(self) -> Counter[str]:
        return sum(self.counts.values(), Counter())

    def __str__(self) -> str:
        total = self.total()
        return ", ".join(f"{name} {total[name]:,}" for name in sorted(total))

    def table(self) -> str:
        names = ["refused", "told", "harmless", "again", "fault"]
        lines = [f"| file | {' | '.join(names)} |", f"|{' --- |' * (len(names) + 1)}"]
        for kind, counts in sorted(self.counts.items()):
            lines.append(f"| {kind} | {' | '.join(f'{counts[name]:,}' for name in names)} |")
        return "\n".join(lines)


def judge(reader: Reader, state: State, moment: int, before: Any, done: Harm) -> tuple[str, str]:
    """What became of it, and why that is wrong."""
    content, told = before
    try:
        found, said = reader.read({**state, done.path: done.content}, moment)
    except HeadwaterError as error:
        return ("fault", f"{error}") if NOT_MEANT in str(error) else ("refused", "")
    except Exception:
        return "fault", traceback.format_exc()
    if any(NOT_MEANT in each or "Traceback" in each for each in said):
        return "fault", "; ".join(said)
    if found == content:
        return "harmless", ""
    differs = [name for name in vars(content) if getattr(found, name) != getattr(content, name)]
    if set(said) - set(told):
        wrong = reader.wrong(found, moment)
        return ("fault", f"{said}, but {wrong}") if wrong else ("told", "")
    known = reader.without_new(content, moment)
    if done.path.endswith("state.db-wal") and _is_before(found, known):
        return "again", ""
    how = "; ".join(_difference(name, content, found) for name in differs)
    return "fault", f"{how}, and nobody says so"


def _difference(name: str, content: Content, found: Content) -> str:
    """For whoever looks for the cause."""
    before, after = (repr(getattr(each, name)) for each in (content, found))
    same = zip(before, after, strict=False)
    at = next((at for at, (one, other) in enumerate(same) if one != other), 0)
    some = slice(max(at - 60, 0), at + 200)
    return f"{name} differs: {before[some]} became {after[some]}"


def _is_before(found: Content, content: Content) -> bool:
    """Positions are at most what they were, and nothing else is missing."""
    same = ("stored", "start", "users", "rules", "committed")
    if any(getattr(found, name) != getattr(content, name) for name in same):
        return False
    if any(app not in found.apps for app in content.apps):
        return False
    if any(content.cursors.get(name, -1) < position for name, position in found.cursors.items()):
        return False
    for name, (position, left) in found.queues.items():
        until, still = content.queues.get(name, (-1, frozenset()))
        if position > until or not {offset for offset in still if offset < position} <= left:
            return False
    return True


@dataclass(frozen=True)
class Task:
    """So much harm, for one process."""

    recording: Path
    seed: int
    count: int

    def run(self) -> Outcomes:
        recording, chance = Recording.load(self.recording), Random(self.seed)
        outcomes = Outcomes()
        with in_memory() as place:
            reader = Reader(recording, place / "found")
            for moment, state in states(recording, chance):
                before = reader.read(state, moment)
                for _ in range(self.count // STATES):
                    done = harm(state, chance)
                    outcome, why = judge(reader, state, moment, before, done)
                    outcomes.counts.setdefault(done.kind, Counter())[outcome] += 1
                    if outcome == "fault":
                        where = f"moment {moment}, {done.path}, {done.how}"
                        outcomes.bad.append(f"{where}: {why}")
            reader.close()
        return outcomes


def torture(*, count: int, chance: Random, tell: Callable[[str], None] = print) -> Verdict:
    """So many times, one after the other, in two processes."""
    outcomes = Outcomes()
    with in_memory() as place:
        recording = record(place / "recorded", chance, operations=OPERATIONS)
        file = recording.save()
        each = min(count, PER_TASK)
        tasks = [Task(file, chance.randrange(1 << 32), each) for _ in range(-(-count // each))]
        with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as pool:
            for done, part in enumerate(pool.map(Task.run, tasks), 1):
                outcomes.add(part)
                tell(f"{done / len(tasks):4.0%} {outcomes}")
        served = serve_some(recording, chance, place)
    tell(outcomes.table())
    total, accounts = outcomes.total(), recording.accounts
    return Verdict(
        harm={"files damaged": total.total(), **dict(total)},
        sent=len(accounts.sent),
        acknowledged=len(accounts.acknowledged),
        found=len(accounts.acknowledged),
        lost=0,
        twice=0,
        faults=(*outcomes.bad[:SHOWN], *served),
    )


def serve_some(recording: Recording, chance: Random, place: Path) -> list[str]:
    """What a real broker and `headwater log verify` say of damage: a sentence, and no traceback."""
    _, state = states(recording, chance)[-1]
    wrong = []
    for number in range(SERVED):
        done, target = harm(state, chance), place / f"served{number}"
        lay_out({**state, done.path: done.content}, target)
        broker = BrokerProcess(target / "data", toml=ALL_FIVE)
        with suppress(RuntimeError), broker:  # it may refuse to start
            broker.stop()
        verify = [sys.executable, "-m", "headwater", "log", "verify", "--data", str(broker.data)]
        said = subprocess.run(verify, capture_output=True, text=True, check=False)
        for text in (broker.log, said.stdout + said.stderr):
            if NOT_MEANT in text or "Traceback" in text:
                wrong.append(f"{done.path}, {done.how}: {text[-1000:]}")
    return wrong


def states(recording: Recording, chance: Random) -> list[tuple[int, State]]:
    """Some moments of a recording, each with its files; the end is one of them, and in half of them
    something is staged."""
    found = [operation.second.endswith(b".arrow") for operation, _ in boundaries(recording)]
    staged = [count for count, is_staged in enumerate(found) if is_staged]
    others = range(len(found) // 4, len(found))
    half = STATES // 2
    wanted = {len(found) - 1, *chance.sample(staged, half), *chance.sample(others, half - 1)}
    return [
        (operation.number + 1, disk.state(Choice()))
        for count, (operation, disk) in enumerate(boundaries(recording))
        if count in wanted
    ]
