"""The demo: a broker, simulated clients and a pipeline, until someone stops it."""

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from headwater.demo.broker import CONFIG_FILE, Child, Ports, start_broker, write_config
from headwater.demo.clients import Access, Simulation
from headwater.errors import HeadwaterError

PROJECT = "pipeline"
_CONTRACTS = Path(__file__).with_name("contracts")
#: The tables that are waited for, before it is said how to look at them.
FIRST_TABLES = ("bronze", "silver_sensors", "traffic")
#: What is shown of the readings of sensors; more does not fit on a line.
_COLUMNS = '["room", "celsius", "measured_at"]'
_LOOK_SECONDS = 1.0
#: So much is read of the log at the start, which is nearly empty: two cores are enough.
_MASTER = "local[2]"

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Show:
    """One demo in a directory, which has everything it makes."""

    directory: Path
    ports: Ports
    rate: float = 50.0
    pipeline: bool = True
    say: Say = print
    #: What was published, by protocol, and what was taken from the queue.
    sent: Counter[str] = field(default_factory=Counter)

    async def run(self, seconds: float | None = None) -> None:
        """Until it is cancelled, or for so long. Nothing runs any more when it returns."""
        self.directory.mkdir(parents=True, exist_ok=True)
        access = write_config(self.directory, self.ports)
        simulation = Simulation(access, self.rate, sent=self.sent)
        async with AsyncExitStack() as stack:
            broker = await start_broker(self.directory)
            stack.push_async_callback(broker.stop)
            self._tell_addresses(access)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._play(simulation, broker, stack)

    async def _play(self, simulation: Simulation, broker: Child, stack: AsyncExitStack) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(simulation.run())
            group.create_task(_until_end(broker, "the broker"))
            if self.pipeline:
                child = await self._start_pipeline(stack)
                group.create_task(_until_end(child, "the pipeline"))
                group.create_task(self._tell_tables(child))

    async def _start_pipeline(self, stack: AsyncExitStack) -> Child:
        if not (self.directory / PROJECT).exists():
            await self._make_project(stack)
        child = Child(self.directory, "pipeline.log")
        stack.push_async_callback(child.stop)
        await child.start("pipeline", "run", "--project", PROJECT, "--master", _MASTER)
        self.say("Spark is starting; the first tables are there in half a minute or so.")
        return child

    async def _make_project(self, stack: AsyncExitStack) -> None:
        init = Child(self.directory, "init.log")
        stack.push_async_callback(init.stop)
        await init.start("pipeline", "init", PROJECT)
        if await init.wait() != 0:
            raise HeadwaterError(f"no project could be made: {init.last_words()}")
        place = self.directory / PROJECT
        shutil.rmtree(place / "contracts")  # the example is about orders too
        shutil.copytree(_CONTRACTS, place / "contracts")
        # Each query delays the others; these are for those who write their own.
        (place / "transformations" / "examples.py").unlink()

    def _tell_addresses(self, access: Access) -> None:
        if self.ports.moved:
            names = ", ".join(self.ports.moved)
            self.say(f"Other ports than usual, because those are taken: {names}.")
        for name, port in self.ports.by_name.items():
            address = f"http://localhost:{port}" if name == "console" else f"localhost:{port}"
            self.say(f"  {name:8} {address}")
        program = program_name()
        self.say(
            f"All files are in {self.directory}. To watch, in another terminal:\n"
            f"  {program} sub bpsp://localhost:{access.ports['bpsp']}/sensors/+"
        )

    async def _tell_tables(self, child: Child) -> None:
        tables = self.directory / PROJECT / "storage" / "tables"
        while not all(any(tables.glob(f"{name}/_delta_log/*.json")) for name in FIRST_TABLES):
            await asyncio.sleep(_LOOK_SECONDS)
        program, sensors = program_name(), tables / "silver_sensors"
        project = self.directory / PROJECT
        self.say(
            "There are tables. To look at them, in another terminal:\n"
            f"  {sys.executable} -c 'from deltalake import DeltaTable; "
            f'print(DeltaTable("{sensors}").to_pandas(columns={_COLUMNS}).tail())\'\n'
            f"  {program} pipeline status --project {project}\n"
            f"  HEADWATER_CONFIG={self.directory / CONFIG_FILE} "
            f"{program} pipeline audit --project {project}\n"
            "Ctrl-C stops everything."
        )


def program_name() -> str:
    """How `headwater` can be called from anywhere."""
    beside = Path(sys.executable).with_name("headwater")
    return "headwater" if shutil.which("headwater") else str(beside)


async def _until_end(child: Child, what: str) -> None:
    await child.wait()
    raise HeadwaterError(f"{what} has ended: {child.last_words()} (see {child.log})")
