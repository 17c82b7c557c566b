"""A crash of the machine at every write, sync and rename of a broker, and what is found after it.

A broker with clients of all kinds is recorded (disk/recording.py). For every operation on its files
the disks are made up that a crash right then can leave behind (disk/crash.py), and opened as a
broker does that starts. Each time

- it opens, and no damage is told of: there has been nothing but a crash;
- what clients know by then is there (everyone/checks.py): of messages, batches, positions, queues;
- batches of Flight and messages of BMTP whose answer may be lost are sent again, and are there
  once;
- users.json and access.json are what they were before a change, or after it; apps that were added
  are there.

Some of these disks are given to a real broker as well.
"""

import asyncio
import contextlib
import hashlib
import multiprocessing
import os
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from headwater.broker.queues import ledger
from headwater.errors import HeadwaterError
from headwater.identity.apps import FILE as APPS
from headwater.identity.apps import Apps
from headwater.identity.rules import FILE as RULES
from headwater.identity.rules import Rules
from headwater.identity.users import FILE as USERS
from headwater.identity.users import Users
from headwater.log.embedded.verify import verify
from tests.e2e.process import ALL_FIVE, BrokerProcess
from torture.disk.crash import Choice, ContentFirst, Disk, NamesFirst, Synced, Torn
from torture.disk.memory import in_memory
from torture.disk.offsets import offsets_of
from torture.disk.opened import Opened, Stored, opened
from torture.disk.recording import Recording, record
from torture.disk.trace import Operation
from torture.everyone.accounts import BMTP, DURABLE, PRISM
from torture.everyone.checks import Check, Findings
from torture.everyone.publishers import BMTP_TOPIC
from torture.everyone.subscribers import IDENTITY, PATTERN
from torture.verdict import Verdict, faults_of

#: Kinds of operations at which nothing changes: only what follows them does.
IDLE = "b"
SUBSCRIBER = f"psmb/{IDENTITY}/{PATTERN}"
QUEUES = {"prism/shop/default": (PRISM, ()), "bmtp/bmtp/1": (BMTP, ("bmtp.",))}
TORN_PER_BOUNDARY = 1
WORKERS = 2
PARTS = 40
SERVED = 5
SHOWN = 10

Ignores = Callable[[Operation, str], bool]


@dataclass
class Result:
    """What was found out, and where it went wrong."""

    boundaries: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    opened: int = 0
    bad: list[str] = field(default_factory=list)
    lost: set[bytes] = field(default_factory=set)
    twice: set[bytes] = field(default_factory=set)

    def note(self, where: str, findings: Findings) -> None:
        self.bad.append(f"{where}: {findings}")
        self.lost |= findings.lost
        self.twice |= findings.twice

    def __str__(self) -> str:
        return (
            f"{sum(self.boundaries.values()):,} operations, {sum(self.states.values()):,} disks, "
            f"{self.opened:,} of them different, {len(self.bad):,} bad"
        )

    def add(self, other: "Result") -> None:
        self.boundaries += other.boundaries
        self.states += other.states
        self.opened += other.opened
        self.bad += other.bad
        self.lost |= other.lost
        self.twice |= other.twice


class Examiner:
    """Opens disks one after the other, in a directory of its own."""

    def __init__(self, recording: Recording, place: Path) -> None:
        self._recording, self._place = recording, place
        self._offsets = offsets_of(recording.operations())
        self._loop = asyncio.new_event_loop()

    def close(self) -> None:
        self._loop.close()

    def examine(self, state: dict[str, bytes | None], moment: int, thorough: bool) -> Findings:
        shutil.rmtree(self._place, ignore_errors=True)
        lay_out(state, self._place)
        data = self._place / "data"
        try:
            return self._loop.run_until_complete(self._examine(data, moment, thorough))
        except HeadwaterError as error:
            return Findings(other=[f"it does not open: {error}"])
        except Exception:
            return Findings(other=[traceback.format_exc()])

    async def _examine(self, data: Path, moment: int, thorough: bool) -> Findings:
        accounts = self._recording.accounts
        async with opened(data) as found:
            stored = found.stored()
            gone = [key for key, offset in self._offsets.items() if offset < found.start]
            check = Check(accounts, moment, ((s.offset, s.topic, s.payload) for s in stored), gone)
            self._check_positions(found, check)
            await self._repeat(found, stored, check)
        if thorough:
            damage = [each for report in verify(data / "log") for each in report.damage]
            check.findings.other += map(str, damage)
        self._check_operators(data, moment, check.findings)
        return check.findings

    def _check_positions(self, found: Opened, check: Check) -> None:
        notes = found.engine.notes
        check.check_position(DURABLE, notes.load_cursor(SUBSCRIBER) or 0)
        for name, (consumer, topics) in QUEUES.items():
            content = notes.load_queue(name)
            position, left = found.end, []
            if content is not None:
                position, items = ledger.decode(content, found.end)
                left = [offset for offset, _ in items]
            check.check_queue(consumer, position, left, topics)

    async def _repeat(self, found: Opened, stored: list[Stored], check: Check) -> None:
        """What clients do that have had no answer."""
        accounts, moment = check.accounts, check.moment
        end = found.end
        again = [
            each
            for each in accounts.batches
            if each.begun_at <= moment and (each.committed_at or moment + 1) > moment
        ]
        for batch in again:
            await found.commit(batch)
        once = [each.payload for each in stored if each.topic == BMTP_TOPIC]
        await found.publish_again(BMTP_TOPIC, once)
        more = Counter(each.payload.partition(b" ")[0] for each in found.stored(since=end))
        wanted = {key for batch in again for key in batch.keys}
        check.findings.twice |= {key for key in more if more[key] > 1 or key in check.offsets}
        check.findings.lost |= wanted - more.keys() - check.offsets.keys()

    def _check_operators(self, data: Path, moment: int, findings: Findings) -> None:
        changes = self._recording.changes
        users = Users(data / USERS).all()
        there = {
            "user": set(users),
            "token": {name for name, user in users.items() if user.tokens},
            "rule": {rule.who.partition(":")[2] for rule in Rules(data / RULES).all()},
            "app": {app.client_id for app in Apps(data / APPS).list()},
        }
        for each in changes:
            if each.done <= moment and each.name not in there[each.what]:
                findings.other.append(f"{each.what} {each.name} is lost")
            if each.begun > moment and each.name in there[each.what]:
                findings.other.append(f"{each.what} {each.name} is there before it was added")


def lay_out(state: dict[str, bytes | None], place: Path) -> None:
    """Write the files of a disk. Names of a directory come before those in it."""
    place.mkdir(parents=True)
    for name, content in state.items():
        if content is None:
            (place / name).mkdir()
        else:
            (place / name).write_bytes(content)


def choices(seed: int, torn: int) -> Iterator[Choice]:
    yield from (Choice(), Synced(), NamesFirst(), ContentFirst())
    for number in range(torn):
        yield Torn(Random(seed * 1000 + number))


def boundaries(
    recording: Recording, ignores: Ignores | None = None
) -> Iterator[tuple[Operation, Disk]]:
    """The disk behind each operation that changes something."""
    disk = Disk(recording.root, ignores)
    for operation in recording.operations():
        disk.apply(operation)
        if operation.kind not in IDLE and not (operation.kind == "o" and not operation.b):
            yield operation, disk


@dataclass(frozen=True)
class Task:
    """Some of the boundaries of a recording, for one process."""

    recording: Path
    #: Boundaries are counted from 0; every so many of them are looked at.
    numbers: range
    torn: int = TORN_PER_BOUNDARY
    ignores: Ignores | None = None

    def run(self) -> Result:
        recording, result, seen = Recording.load(self.recording), Result(), set[bytes]()
        with in_memory() as place:
            examiner = Examiner(recording, place / "found")
            for count, (operation, disk) in enumerate(boundaries(recording, self.ignores)):
                if count not in self.numbers:
                    continue
                result.boundaries[operation.kind] += 1
                moment = operation.number + 1
                known = sum(at <= moment for at in recording.accounts.acknowledged.values())
                for choice in choices(operation.number, self.torn):
                    state = disk.state(choice)
                    result.states[choice.name] += 1
                    if (mark := _digest(state, known)) in seen:
                        continue
                    seen.add(mark)
                    result.opened += 1
                    findings = examiner.examine(state, moment, thorough=result.opened % 5 == 0)
                    if not findings.good:
                        result.note(f"{_about(operation)}, {choice.name}", findings)
            examiner.close()
        return result


def examine_all(
    recording: Path, *, every: int = 1, torn: int = TORN_PER_BOUNDARY, workers: int = WORKERS
) -> Iterator[tuple[float, Result]]:
    """The results of its parts as they come, and how much is done by then."""
    total = sum(1 for _ in boundaries(Recording.load(recording)))
    edges = [total * part // PARTS for part in range(PARTS + 1)]
    tasks = [
        Task(recording, range(first + (-first) % every, stop, every), torn)
        for first, stop in pairwise(edges)
    ]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for done, result in enumerate(pool.map(Task.run, tasks), 1):
            yield done / PARTS, result


def torture(
    *, operations: int, chance: Random, every: int = 1, tell: Callable[[str], None] = print
) -> Verdict:
    with in_memory() as place:
        recording = record(place / "recorded", chance, operations=operations)
        file, result = recording.save(), Result()
        for done, part in examine_all(file, every=every):
            result.add(part)
            tell(f"{done:4.0%} {result}")
        served = serve_some(recording, chance, place)
    accounts = recording.accounts
    return Verdict(
        harm={
            "operations": sum(result.boundaries.values()),
            "disks": sum(result.states.values()),
            "of them different": result.opened,
            "served by a broker": SERVED,
        },
        sent=len(accounts.sent),
        acknowledged=len(accounts.acknowledged),
        found=len(accounts.acknowledged) - len(result.lost),
        lost=len(result.lost),
        twice=len(result.twice),
        faults=(*result.bad[:SHOWN], *served),
    )


def serve_some(recording: Recording, chance: Random, place: Path) -> list[str]:
    """Give disks to a real broker: it starts, serves the durable subscriber what it had not
    confirmed, and stops without a word of trouble."""
    wanted = set(chance.sample(range(sum(1 for _ in boundaries(recording))), SERVED))
    wrong = []
    for count, (operation, disk) in enumerate(boundaries(recording)):
        if count in wanted:
            choice = chance.choice([Synced(), Torn(Random(count))])
            target = place / f"served{count}"
            lay_out(disk.state(choice), target)
            wrong += [f"{_about(operation)}, {choice.name}: {each}" for each in _serve(target)]
            shutil.rmtree(target)
    return wrong


def _serve(place: Path) -> list[str]:
    broker = BrokerProcess(place / "data", toml=ALL_FIVE)
    try:
        with broker:
            with contextlib.closing(broker.publisher("everyone/last")) as wire:
                wire.messages(b"last")
            reader = broker.subscriber("everyone/last", identity=9)
            reader.expect_messages(b"last")
            code = broker.stop()
    except (RuntimeError, EOFError, OSError, AssertionError) as error:
        return [f"{error}"]
    return list(faults_of(broker, code))


def _digest(state: dict[str, bytes | None], known: int) -> bytes:
    """Of a disk and what is known: nobody needs to look at the same twice."""
    made = hashlib.blake2b(b"%d" % known, digest_size=16)
    for name, content in state.items():
        made.update(name.encode())
        made.update(content or b"")
    return made.digest()


def _about(operation: Operation) -> str:
    path = os.fsdecode(operation.first[-60:]) if operation.kind in "orulmk" else ""
    return f"behind operation {operation.number} ({operation.kind} {path})"
