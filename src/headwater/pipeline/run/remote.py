"""Runs a project on a Spark Connect server, through Spark's own pipelines.

The definitions are sent to the server, which fills tables of its catalog and sends events back.

Rules that hold here:

- A run reads everything there is and ends. A continuous pipeline is one run after another.
- After a run that has failed, the next begins with a new session: the server may have been started
  anew meanwhile, and knows nothing of the old one then. It goes on from the checkpoints.
- A server that does not answer is an error within seconds; Spark's client would try for minutes.
"""

import contextlib
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.pipeline.definitions.graph import OutputKind, define, unqualified
from headwater.pipeline.project.project import Project
from headwater.pipeline.run import state as states
from headwater.pipeline.run.queries import first_line
from headwater.pipeline.run.report import Reporter, View
from headwater.pipeline.run.runner import FIRST_PAUSE, TRIES, configure, only_runner
from headwater.pipeline.run.state import Phase, PipelineState, TableState, now
from headwater.spark.flight_client import FlightClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: Between two runs. Each costs a few seconds of planning, whatever there is to read.
PAUSE_SECONDS = 5.0
_CONNECT_SECONDS = 5.0
_RETRIES = 4  # of Spark's client, in about 5 s
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.2
#: Rows are counted by the server. That may take so much of the time.
_COUNTING_SHARE = 0.1

_EVENT = re.compile(r"Flow '?(?P<flow>[^\s']+)'? (?:is|has) (?P<what>[A-Z]+)")
_UNRESOLVED = re.compile(r"Failed to resolve flow: '(?P<flow>[^']+)'")
_ERROR = re.compile(r"^Error: (?P<error>.*)", re.MULTILINE | re.DOTALL)
_PHASES: dict[str, Phase] = {
    "QUEUED": "waiting",
    "PLANNING": "running",
    "STARTING": "running",
    "RUNNING": "running",
    "COMPLETED": "done",
    "FAILED": "failed",
    "SKIPPED": "waiting",
    "STOPPED": "waiting",
}


@dataclass(frozen=True, slots=True)
class FlowEvent:
    """An event that the server sends about a flow."""

    flow: str
    phase: Phase
    error: str | None = None


def event_of(message: str) -> FlowEvent | None:
    """From the sentence that the server sends; None if it is about something else."""
    phase: Phase | None = "failed"
    if (found := _UNRESOLVED.match(message)) is None and (found := _EVENT.match(message)):
        phase = _PHASES.get(found["what"])
    if found is None or phase is None:
        return None
    error = _ERROR.search(message)
    told = short_error(error["error"]) if error and phase == "failed" else None
    return FlowEvent(found["flow"].replace("`", ""), phase, told)


def short_error(text: str) -> str:
    """The error message of the server, as one sentence."""
    if re.search(r"DATA_SOURCE_NOT_FOUND\].*\bheadwater", text):
        return (
            "the Spark of the server has no format headwater: install headwater[spark] in its "
            "Python and in that of its executors"
        )
    return first_line(text)


def reason(error: Exception) -> str:
    return str(error) if isinstance(error, HeadwaterError) else short_error(str(error))


class ConnectServer:
    """A session on the server, and the graph of a project in it."""

    def __init__(self, spark: "SparkSession", project: Project) -> None:
        self.spark, self._project = spark, project
        self.kinds: dict[str, OutputKind] = {}
        self._graph = self._create()
        self._define()

    def renew(self) -> None:
        """Make the graph anew: one is good for one run."""
        self.drop()
        self._graph = self._create()
        self._define()

    def _create(self) -> str:
        from headwater.pipeline.definitions import connect

        project = self._project
        settings = self._settings(project)
        return connect.create_graph(self.spark, project.catalog, project.database, settings)

    def _settings(self, project: Project) -> dict[str, str]:
        """The settings that may be set on a running server."""
        configure(self.spark, project)
        return {
            name: value
            for name, value in project.configuration.items()
            if not name.startswith("spark.") or self.spark.conf.isModifiable(name)
        }

    def _define(self) -> None:
        from headwater.pipeline.definitions import connect

        root, files = self._project.root, self._project.definitions()
        if not files:
            raise HeadwaterError(f"there are no definitions in {root}: {self._project.includes}")
        registry = connect.ServerRegistry(self.spark, self._graph, self.kinds)
        with connect.defining(self.spark, self._graph):
            define(root, files, registry, self.spark)

    def check(self) -> None:
        """Let the server analyse the graph, without touching data."""
        for _ in self.events(None, dry=True):
            pass

    def events(self, refresh: Sequence[str] | None, dry: bool = False) -> Iterator[FlowEvent]:
        """One run. `refresh`: tables that are rebuilt; all of them if it is empty."""
        from pyspark.errors import PySparkException

        from headwater.pipeline.definitions import connect

        storage = self._project.storage.as_uri()
        failed = None
        try:
            for message in connect.run_events(self.spark, self._graph, refresh, dry, storage):
                event = event_of(message)
                if event is not None:
                    failed = event if event.phase == "failed" else failed
                    yield event
        except PySparkException:
            if failed is None or failed.error is None:
                raise
            # The error of the flow is more precise than that of the run.
            raise HeadwaterError(f"{unqualified(failed.flow)}: {failed.error}") from None

    def rows(self, table: str) -> int:
        return self.spark.table(table).count()

    def drop(self) -> None:
        """Forget the graph. A run of it ends."""
        from headwater.pipeline.definitions import connect

        connect.drop_graph(self.spark, self._graph)


@contextmanager
def connect(address: str, project: Project) -> Iterator[ConnectServer]:
    """The project on the server, as long as this lasts."""
    spark = _session(address, project.name)
    server = None
    try:
        server = ConnectServer(spark, project)
        yield server
    finally:
        with contextlib.suppress(Exception):  # the server may be gone
            if server is not None:
                server.drop()
        with contextlib.suppress(Exception):
            spark.stop()


def _session(address: str, name: str) -> "SparkSession":
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from headwater.pipeline.definitions import connect

    try:
        socket.create_connection(connect.endpoint(address), _CONNECT_SECONDS).close()
    except (PySparkException, ValueError):
        raise HeadwaterError(
            f"--remote must be an address such as sc://localhost:15002, not {address}"
        ) from None
    except OSError as error:
        raise HeadwaterError(
            f"no Spark Connect server answers at {address}: {error.strerror or error}"
        ) from None
    builder: Any = SparkSession.builder
    spark: SparkSession = builder.appName(name).remote(address).getOrCreate()
    connect.limit_retries(spark, _RETRIES)
    return spark


class RemoteRunner:
    """Runs of a project on a server. `stop` may be called from any thread, or by a signal."""

    def __init__(
        self,
        project: Project,
        address: str,
        broker: FlightClient,
        once: bool = False,
        view: View = lambda _: None,
    ) -> None:
        self.project, self.address, self.once, self._view = project, address, once, view
        self.state = PipelineState(project.name, "once" if once else "continuous")
        self._broker = broker
        self._stopping = threading.Event()
        self._flows: dict[str, str] = {}  # by table; names as the server has them
        self._runs = self._failures = 0
        self._count_at = 0.0

    def stop(self) -> None:
        self._stopping.set()

    def run(self, refresh: Sequence[str] | None = None) -> bool:
        """Run until everything is read, or until `stop`. Returns whether all went well."""
        with only_runner(self.project):
            with Reporter(self.project, self._broker, self.look, self._view):
                while not self._stopping.is_set():
                    try:
                        self._run_in_a_session(refresh)
                        break
                    except Exception as error:
                        self._failed(error)
            states.save(self.project.state, self.state.as_dict())
        return not self._failed_tables()

    def look(self) -> dict[str, Any]:
        """The current state."""
        with contextlib.suppress(HeadwaterError):
            log = self._broker.log()
            self.state.log = {"start": log.start, "end": log.end}
        return self.state.as_dict()

    def _run_in_a_session(self, refresh: Sequence[str] | None) -> None:
        with connect(self.address, self.project) as server:
            while not self._stopping.is_set():
                self._run_once(server, None if self._runs else refresh)
                self._runs, self._failures = self._runs + 1, 0
                self._count(server)
                if self.once or self._stopping.wait(PAUSE_SECONDS):
                    return
                server.renew()

    def _run_once(self, server: ConnectServer, refresh: Sequence[str] | None) -> None:
        """In a thread, so that a signal does not have to wait for the server's next event."""
        errors: list[Exception] = []

        def follow() -> None:
            try:
                for event in server.events(refresh):
                    self._note(event, server.kinds)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=follow, name="events", daemon=True)
        thread.start()
        while thread.is_alive() and not self._stopping.is_set():
            thread.join(_LOOK_SECONDS)
        if self._stopping.is_set():
            _bounded(server.drop, _STOP_SECONDS)
        elif errors:
            raise errors[0]

    def _note(self, event: FlowEvent, kinds: dict[str, OutputKind]) -> None:
        name = unqualified(event.flow)
        if name not in self._flows:
            self._flows[name] = event.flow
            self.state.add(TableState(name, kinds.get(name, OutputKind.TABLE).value, name))
        self.state.set([name], state=event.phase, error=event.error)

    def _count(self, server: ConnectServer) -> None:
        """Count the rows of each table."""
        started = time.monotonic()
        if started < self._count_at and not self.once:
            return
        for name, flow in self._flows.items():
            with contextlib.suppress(Exception):  # it is no table, or the next run will tell
                self.state.set([name], batch=self._runs, last_batch=now())
                if server.kinds.get(name) is not OutputKind.SINK:
                    self.state.set([name], rows=server.rows(flow))
        took = time.monotonic() - started
        self._count_at = time.monotonic() + took / _COUNTING_SHARE

    def _failed(self, error: Exception) -> None:
        """Pause, longer each time. Give up after five failures, or if no run has ever succeeded."""
        why = reason(error)
        self._failures += 1
        if not self._runs or self._failures >= TRIES:
            raise HeadwaterError(why) from None
        pause = FIRST_PAUSE * 2 ** (self._failures - 1)
        logger.warning("%s; again in %g s", why, pause)
        self._stopping.wait(pause)

    def _failed_tables(self) -> list[str]:
        tables = self.state.as_dict()["tables"]
        return [each["name"] for each in tables if each["state"] == "failed"]


def _bounded(function: Callable[[], None], seconds: float) -> None:
    """Call it, and do not wait for it for too long."""
    thread = threading.Thread(target=_quietly, args=(function,), daemon=True)
    thread.start()
    thread.join(seconds)


def _quietly(function: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        function()
