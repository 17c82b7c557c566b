"""Two operators redrive or delete the dead letters of a queue at once, through the control socket.

One of them is refused, and hears what runs. Now and then the broker is killed in the middle, or has
to stop, and a redrive is started again. In the end each dead letter was published to its topic
again exactly once, or is still dead; unless they were deleted, all that were left of them at once.
"""

import asyncio
import base64
import contextlib
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from headwater.broker.queues.dead import REDRIVEN
from headwater.control import call
from headwater.errors import HeadwaterError
from tests.e2e.clients import drop, prism
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, BrokerProcess, eventually
from torture.log import stored_runs
from torture.verdict import Verdict, faults_about, faults_of

QUEUE, DEAD_TOPIC = f"prism/{APP}/jobs", f"dead/{APP}/jobs"
TOPICS = ("jobs/a", "jobs/b", "jobs/c")
TOML = f"""{ALL_FIVE}
[[prism.queues]]
app = "{APP}"
name = "jobs"
bindings = ["jobs.#"]
max_deliveries = 1
"""
BUSY = re.compile(
    rf"a (redrive( \(\d+ of \d+\))?|deletion) of dead letters of {QUEUE} is running; "
    "try again when it is done"
)
AWAY = re.compile(
    "the broker has stopped before it answered|the broker is stopping|no broker is running"
)
# The broker is killed at most so long after an operator has begun.
KILL_SECONDS = 0.15
PAGE = 100


@dataclass(frozen=True)
class Order:
    """What an operator asks for: a redrive, maybe of so many, or a deletion."""

    do: str
    limit: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"name": QUEUE} | ({} if self.limit is None else {"limit": self.limit})


REDRIVE, PURGE = Order("queue.redrive"), Order("queue.purge")


@dataclass
class Operators:
    """What they have asked for, and what they have heard."""

    data: Path
    redriven: int = 0
    purged: int = 0
    #: Nobody knows how far these came.
    interrupted: set[str] = field(default_factory=set)
    refused: int = 0
    wrong: list[str] = field(default_factory=list)

    def ask(self, order: Order) -> None:
        try:
            result = call(self.data, order.do, **order.arguments)
        except HeadwaterError as error:
            if BUSY.fullmatch(str(error)):
                self.refused += 1
            elif AWAY.match(str(error)):
                self.interrupted.add(order.do)
            else:
                self.wrong.append(f"{order} was answered: {error}")
        else:
            self.redriven += result.get("redriven", 0)
            self.purged += result.get("purged", 0)

    def may_have_deleted(self, gone: set[bytes], dead: set[bytes]) -> bool:
        """Whether letters are gone by what was asked for: all that were left at that time."""
        return len(gone) == self.purged or (PURGE.do in self.interrupted and not dead)

    def ask_at_once(self, *orders: Order) -> list[threading.Thread]:
        together = threading.Barrier(len(orders))

        def ask(order: Order) -> None:
            together.wait()
            self.ask(order)

        asking = [threading.Thread(target=ask, args=(order,)) for order in orders]
        for each in asking:
            each.start()
        return asking


def cycle(directory: Path, chance: Random, *, killed: bool) -> Verdict:
    """`killed`: the broker, in the middle of a redrive, once or twice."""
    kills = chance.randint(1, 2) if killed else 0
    with BrokerProcess(directory / "data", toml=TOML, HEADWATER_LOG_SEGMENT_BYTES="1MiB") as broker:
        broker.keep_ports()
        letters = _make_letters(broker, chance)
        operators = Operators(broker.data)
        for _ in range(kills):
            limit = chance.choice((None, chance.randrange(1, len(letters))))
            other = chance.choice((REDRIVE, REDRIVE, REDRIVE, PURGE))
            asking = operators.ask_at_once(Order("queue.redrive", limit), other)
            time.sleep(chance.uniform(0, KILL_SECONDS))
            broker.signal(chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
            broker.finish()
            for each in asking:
                each.join()
            broker.start()
        first, second = chance.choice(((REDRIVE, REDRIVE), (REDRIVE, PURGE), (PURGE, PURGE)))
        some = Order("queue.redrive", chance.randrange(1, len(letters)))
        for orders in ((some, some), (first, second)):
            for each in operators.ask_at_once(*orders):
                each.join()
        dead = set(_still_dead(broker))
        faults = faults_of(broker, broker.stop())
    return _verdict(broker, letters, dead, operators, kills, faults)


def _make_letters(broker: BrokerProcess, chance: Random) -> set[bytes]:
    """Messages whose only delivery was for nothing."""
    letters: set[bytes] = set()
    for _ in range(chance.randint(3, 12)):
        with contextlib.closing(broker.publisher(chance.choice(TOPICS))) as wire:
            new = [b"%d" % (len(letters) + n) for n in range(chance.randint(1, 500))]
            wire.messages(*new)
            letters.update(new)

    async def take_all() -> None:
        client = prism(broker, len(letters))
        await client.open()
        await client.subscribe("jobs")
        async with asyncio.timeout(PATIENCE):
            while _figures(broker)["in_flight"] < len(letters):
                await asyncio.sleep(0.01)
        await drop(client)

    asyncio.run(take_all())
    for _ in eventually():  # until a kill can bring nothing back
        if _figures(broker)["dead"] == len(letters) and not broker.queue_on_disk(QUEUE)[1]:
            break
    return letters


def _figures(broker: BrokerProcess) -> dict[str, Any]:
    shown: dict[str, Any] = call(broker.data, "queue.show", name=QUEUE)
    return shown


def _still_dead(broker: BrokerProcess) -> Iterator[bytes]:
    after: int | None = -1
    while after is not None:
        page = call(broker.data, "queue.dead", name=QUEUE, after=after, limit=PAGE)
        yield from (base64.b64decode(letter["payload"]) for letter in page["items"])
        after = page["next"]


def _verdict(
    broker: BrokerProcess,
    letters: set[bytes],
    dead: set[bytes],
    operators: Operators,
    kills: int,
    faults: tuple[str, ...],
) -> Verdict:
    redriven: Counter[bytes] = Counter()
    for run in stored_runs(broker.data):
        if run.topic in TOPICS and any(name == REDRIVEN for name, _ in run.headers):
            redriven.update(run.payloads)
    twice = {key for key, times in redriven.items() if times > 1} | dead & redriven.keys()
    gone = letters - redriven.keys() - dead
    lost = gone if not operators.may_have_deleted(gone, dead) else set()
    unclear = redriven.total() != operators.redriven and REDRIVE.do not in operators.interrupted
    return Verdict(
        harm={"broker killed": kills, "operators refused": operators.refused},
        sent=len(letters),
        acknowledged=len(letters),
        found=len(letters - lost),
        lost=len(lost),
        twice=len(twice),
        faults=faults
        + faults_about(
            redriven_twice_or_redriven_and_dead=twice,
            neither_redriven_nor_dead_nor_deleted=lost,
            redriven_though_they_were_no_letters=redriven.keys() - letters,
            answers_that_make_no_sense=operators.wrong,
            counts_that_operators_were_told=[operators.redriven] if unclear else [],
        ),
    )
