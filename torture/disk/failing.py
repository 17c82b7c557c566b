"""A small day of a broker's files, with one operation that fails: the first, then the second, and
so on to the last; once, or from then on until there is room again. It runs with the library of
shim.c around it (full_disk.py), in one process, so that thousands of such days take minutes.

A day: the log is opened, messages are published, one after the other and some at once, a segment is
full, a batch comes over Flight, a user and an app are added, positions are saved, and there is room
again. Then it is closed, and opened once more:

- every message and batch that was acknowledged is there once, and none that was refused;
- a user or an app whose adding did not fail is there;
- whoever was refused heard a sentence, and after there was room again, nobody was.
"""

import asyncio
import errno
import json
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.flight.requests import Append
from headwater.identity.apps import FILE as APPS
from headwater.identity.apps import Apps
from headwater.identity.users import FILE as USERS
from headwater.identity.users import Users
from headwater.log.embedded import engine as engine_module
from headwater.log.embedded import notes as notes_module
from tests.broker.client import Client
from tests.flight.client import rows
from torture.disk.opened import CALLER, Opened, opened
from torture.disk.shim import Shim

# Here a day has to be short.
engine_module.PROBE_SECONDS = 0.005
notes_module.RETRY_SECONDS = 0.005
MESSAGES = 30
PAYLOAD_BYTES = 5000
PATIENCE_SECONDS = 20.0


@dataclass
class Day:
    """What was answered."""

    acknowledged: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    #: Rows of a batch that was committed, or not.
    batch: tuple[bytes, ...] = ()
    committed: bool = False
    added: set[str] = field(default_factory=set)
    #: The broker did not start, or ended, and said why.
    ended: str = ""
    wrong: list[str] = field(default_factory=list)


async def live(data: Path, day: Day, heal: Callable[[], None]) -> None:
    try:
        async with opened(data) as found:
            ended: list[str] = []
            found.engine.when_dead(ended.append)
            for number in range(MESSAGES):
                await _publish(found, day, b"%d " % number)
            await asyncio.gather(*(_publish(found, day, b"%d " % n) for n in range(100, 105)))
            await _append(found, day)
            found.engine.notes.save_cursor("subscriber", found.end)
            found.engine.notes.save_queue("queue", lambda: b"some")
            await _try(found.engine.notes.flush())
            _operate(data, day)
            heal()
            await _publish_at_last(found, day, ended)
            day.ended = "".join(ended)
    except (HeadwaterError, OSError) as error:
        day.ended = f"{error}"
    finally:
        heal()


async def _publish(found: Opened, day: Day, key: bytes) -> bool:
    """A message, and its answer."""
    client = Client(found.broker)
    client.publish("t", key + b"x" * PAYLOAD_BYTES)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not client.answers and not client.refused:
            await asyncio.sleep(0.0005)
    client.leave()
    (day.acknowledged if client.answers else day.refused).add(key)
    return bool(client.answers)


async def _publish_at_last(found: Opened, day: Day, ended: list[str]) -> None:
    for number in range(int(PATIENCE_SECONDS * 100)):
        if ended or await _publish(found, day, b"last.%d " % number):
            return
        await asyncio.sleep(0.01)
    day.wrong.append("there was room again, and publishes were refused")


async def _append(found: Opened, day: Day) -> None:
    day.batch = (b"b0 ", b"b1 ", b"b2 ")
    values = [("t", key + b"y" * PAYLOAD_BYTES) for key in day.batch]
    work = partial(found.flight.append, Append("p", 1), CALLER, iter([rows(*values)]))
    day.committed = await _try(asyncio.to_thread(work))


async def _try(work: object) -> bool:
    try:
        await work  # type: ignore[misc]
    except (HeadwaterError, OSError):
        return False
    return True


def _operate(data: Path, day: Day) -> None:
    for name, add in (
        ("user", partial(Users(data / USERS).add, "alice", "viewer")),
        ("app", partial(Apps(data / APPS).add, "shop")),
    ):
        try:
            add()
            day.added.add(name)
        except (HeadwaterError, OSError):
            continue


async def look(data: Path, day: Day) -> None:
    """On the day after."""
    async with opened(data) as found:
        stored = Counter(each.payload[: each.payload.index(b" ") + 1] for each in found.stored())
        there = {"user": Users(data / USERS).all(), "app": Apps(data / APPS).list()}
        if day.committed or set(day.batch) & stored.keys():  # what was begun, a start finishes
            day.acknowledged.update(day.batch)
        for what, some in (
            ("acknowledged and lost", day.acknowledged - stored.keys()),
            ("refused and stored", day.refused & stored.keys()),
            ("stored twice", {key for key, times in stored.items() if times > 1}),
            ("added and lost", {each for each in day.added if not there[each]}),
        ):
            if some:
                day.wrong.append(f"{what}: {sorted(map(str, some))[:5]}")


async def one_day(data: Path, shim: Shim, number: int | None, error: int, lasting: bool) -> Day:
    shutil.rmtree(data, ignore_errors=True)
    day = Day()
    if number is not None:
        shim.fail(error, errno.EIO, after=number, count=None if lasting else 1)
    try:
        async with asyncio.timeout(3 * PATIENCE_SECONDS):
            await live(data, day, shim.heal)
            await look(data, day)
    except Exception:
        day.wrong.append(traceback.format_exc())
    return day


async def main(place: Path, step: int, offset: int) -> None:
    """Tells of each day in a line of JSON."""
    shim = Shim(place, place / "disk", attach=True)
    data = shim.root / "data"
    before = shim.operations
    day = await one_day(data, shim, None, 0, False)
    total = shim.operations - before
    print(json.dumps({"total": total, "wrong": day.wrong}), flush=True)
    for number in range(offset, total, step):
        for error in (errno.ENOSPC, errno.EIO):
            for lasting in (False, True):
                failed = shim.failed
                day = await one_day(data, shim, number, error, lasting)
                told = {
                    "number": number,
                    "error": errno.errorcode[error],
                    "lasting": lasting,
                    "failed": shim.failed - failed,
                    "refused": len(day.refused),
                    "acknowledged": len(day.acknowledged),
                    "ended": day.ended,
                    "wrong": day.wrong,
                }
                print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
