"""Reads of the log fail for a while, for subscribers and queues that lag behind what is in memory.

The disk has a bad moment (EIO), or the process no file descriptor left (EMFILE, for real: its limit
is lowered). Everyone who takes messages lags behind; some leave with messages in their hands that
are no longer in memory. A publisher goes on. Afterwards:

- every client has every message: once, and subscribers in the order of the log;
- what one consumer of a queue left, another one has;
- what a consumer left that was the last delivery is a dead letter;
- nobody was cut off.
"""

import asyncio
import contextlib
import resource
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from headwater.client import BpspClient, PrismClient, PsmbClient
from headwater.client.base import Client
from headwater.control import call
from headwater.errors import HeadwaterError
from tests.e2e.clients import bmtp, drop, holds_back, prism
from tests.e2e.faults import READ_ERRORS, Switch, injected
from tests.e2e.process import ALL_FIVE, APP, PATIENCE, BrokerProcess
from torture import backlog
from torture.backlog import KEY, TOPIC, key_of
from torture.log import stored_runs
from torture.publisher import OncePublisher
from torture.taker import Taker, subscribed
from torture.verdict import Verdict, faults_about, faults_of

DEAD_TOPIC = f"dead/{APP}/once"
#: So many messages a consumer has in its hands when it leaves.
HELD = 50
TOML = f"""{ALL_FIVE}
[[prism.queues]]
app = "{APP}"
name = "all"
bindings = ["{KEY}"]

[[prism.queues]]
app = "{APP}"
name = "left"
bindings = ["{KEY}"]

[[prism.queues]]
app = "{APP}"
name = "once"
bindings = ["{KEY}"]
max_deliveries = 1
"""

#: What the broker says when a read fails for the first time.
TOLD = "cannot read the log, will retry"
#: And when it gives up.
CUT_OFF = "cannot read on"
#: It cannot begin a new segment. Live subscribers have seen what it refuses then.
REFUSED = "publishes are refused"


class Trouble(ABC):
    """Why reads fail."""

    #: New connections are accepted all the same.
    accepts = True

    def __init__(self, directory: Path, broker: BrokerProcess) -> None:
        self._switch = Switch(directory)
        self._pid = broker.pid

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def end(self) -> None: ...


class BadDisk(Trouble):
    def begin(self) -> None:
        self._switch.on()

    def end(self) -> None:
        self._switch.off()


class NoDescriptors(Trouble):
    accepts = False
    #: Those that are open stay open. Not 0: poll(2) looks at so many of them at once, no more.
    LIMIT = 10

    def begin(self) -> None:
        self._usual = resource.prlimit(self._pid, resource.RLIMIT_NOFILE)
        self._limit(self.LIMIT)

    def end(self) -> None:
        self._limit(self._usual[0])

    def _limit(self, number: int) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_NOFILE, (number, self._usual[1]))


TROUBLES: dict[str, type[Trouble]] = {"EIO": BadDisk, "EMFILE": NoDescriptors}


async def lagging(client: Client, pattern: str, identity: int | None = None) -> Taker:
    taker = await subscribed(client, pattern, identity)
    taker.lag()
    return taker


class Scene:
    """A broker, a backlog, and those who lag behind it."""

    def __init__(self, broker: BrokerProcess, chance: Random) -> None:
        self._broker, self._chance = broker, chance
        self._publisher = OncePublisher("p", TOPIC, Random(chance.random()), pause=0.2)
        self._enough = asyncio.Event()
        self._publishing: asyncio.Task[None] | None = None
        self._backlog: set[bytes] = set()
        #: Those who have to get everything, and those who share it.
        self._takers: dict[str, Taker] = {}
        self._sharing: list[Taker] = []
        self._leaving: list[PrismClient] = []

    async def prepare(self) -> None:
        broker, ports, takers = self._broker, self._broker.ports, self._takers
        takers["live"] = await lagging(BpspClient("127.0.0.1", ports["bpsp"]), TOPIC)
        publishing = self._publisher.run(ports["bmtp"], self._enough)
        self._publishing = asyncio.create_task(publishing)
        self._backlog = await asyncio.to_thread(backlog.publish, broker, self._chance)
        for queue in ("left", "once"):
            self._leaving.append(client := holds_back(prism(broker, HELD)))
            await client.open()
            await client.subscribe(queue)
            await self._until(queue, in_flight=HELD)
        takers["durable"] = await lagging(PsmbClient("127.0.0.1", ports["psmb"]), TOPIC, 7)
        takers["channel"] = await lagging(bmtp(broker), "1")
        takers["heir"] = await lagging(prism(broker, HELD), "left")
        self._sharing = [await lagging(prism(broker), "all") for _ in range(2)]

    async def leave(self) -> None:
        for taker in (*self._takers.values(), *self._sharing):
            await taker.stop()
        for client in self._leaving:
            await client.close()
        if self._publishing is not None:
            self._publishing.cancel()

    async def endure(self, trouble: Trouble) -> None:
        """Everyone reads on, and some leave, while reads fail."""
        trouble.begin()
        try:
            for taker in (*self._takers.values(), *self._sharing):
                taker.go()
            self._chance.shuffle(self._leaving)
            while self._leaving:
                await asyncio.sleep(self._chance.uniform(0, 0.1))
                await drop(self._leaving.pop())
            async with asyncio.timeout(PATIENCE):
                # How many of them have to open a file is not known: some segments are open.
                while TOLD not in self._broker.log:
                    await asyncio.sleep(0.01)
            if trouble.accepts:
                await self._ask_for_dead_letters()
            await asyncio.sleep(self._chance.uniform(0, 1.0))
        finally:
            trouble.end()

    async def _ask_for_dead_letters(self) -> None:
        """Their operator hears why there is no answer."""
        try:
            await asyncio.to_thread(call, self._broker.data, "queue.dead", name=f"{APP}/once")
        except HeadwaterError as error:
            assert "Input/output error" in str(error), error

    async def recover(self) -> None:
        """Until everyone has everything. What has not come by then is lost."""
        assert self._publishing is not None
        self._enough.set()
        await self._publishing
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for got in self._got():
                    while not self._acknowledged() <= set(got()):
                        await asyncio.sleep(0.05)
                await self._until("once", dead=HELD)

    def _acknowledged(self) -> set[bytes]:
        return self._backlog | self._publisher.answered

    def _got(self) -> list[Callable[[], list[bytes]]]:
        """What each one got, or all of them together where they share."""
        alone = [lambda each=each: each.got for each in self._takers.values()]
        return [*alone, lambda: [key for each in self._sharing for key in each.got]]

    async def _until(self, queue: str, **figures: int) -> None:
        name = f"{APP}/{queue}"
        async with asyncio.timeout(PATIENCE):
            while True:
                shown = await asyncio.to_thread(call, self._broker.data, "queue.show", name=name)
                if figures.items() <= shown.items():
                    return
                await asyncio.sleep(0.02)

    def verdict(self, harm: dict[str, int], faults: tuple[str, ...]) -> Verdict:
        """Compare what is stored, now that the broker has stopped, with what everyone got."""
        runs = list(stored_runs(self._broker.data))
        stored = [key_of(each) for run in runs if run.topic == TOPIC for each in run.payloads]
        dead = {key_of(each) for run in runs if run.topic == DEAD_TOPIC for each in run.payloads}
        acknowledged = self._acknowledged()
        undelivered = {key for got in self._got() for key in set(stored) - set(got())}
        if REFUSED in self._broker.log:
            self._takers["live"].keep(set(stored))
        repeated = [k for got in self._got() for k, times in Counter(got()).items() if times > 1]
        twice = [key for key, times in Counter(stored).items() if times > 1]
        return Verdict(
            harm=harm,
            sent=len(self._backlog) + self._publisher.sent,
            acknowledged=len(acknowledged),
            found=len(stored),
            lost=len(acknowledged - set(stored) | undelivered | set(stored[:HELD]) - dead),
            twice=len({*repeated, *twice}),
            faults=faults
            + faults_about(
                acknowledged_and_lost=acknowledged - set(stored),
                stored_and_not_delivered=undelivered,
                stored_twice=twice,
                delivered_twice=repeated,
                dead_letters_that_are_missing_or_too_many=dead ^ set(stored[:HELD]),
                subscribers_that_did_not_get_the_log_in_its_order=[
                    name for name in ("live", "durable") if self._takers[name].got != stored
                ],
            ),
        )


async def _cycle(directory: Path, chance: Random, error: str) -> Verdict:
    settings = injected(directory, READ_ERRORS)
    broker = BrokerProcess(
        directory / "data", toml=TOML, HEADWATER_LOG_SEGMENT_BYTES="256KiB", **settings
    )
    with broker:
        scene = Scene(broker, chance)
        try:
            await scene.prepare()
            await scene.endure(TROUBLES[error](directory, broker))
            await scene.recover()
            metrics = await asyncio.to_thread(call, broker.data, "metrics")
        finally:
            await scene.leave()
        code = await asyncio.to_thread(broker.stop)
    faults = faults_of(broker, code)
    if metrics["lost"] or CUT_OFF in broker.log:
        faults += (f"someone was cut off, or passed over: {broker.log[-3000:]}",)
    return scene.verdict({f"reads failed by {error}": metrics["read_errors"]}, faults)


def cycle(directory: Path, chance: Random, *, error: str) -> Verdict:
    return asyncio.run(_cycle(directory, chance, error))
