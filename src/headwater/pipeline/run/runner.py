"""Runs a project: all its queries in one Spark, continuously or until the log is read.

Rules that hold here:

- A query that fails does not stop the others. It is started again after a pause, five times; then
  its tables are reported as failed.
- A restart needs nothing from memory: tables, checkpoints and the audit table have all of it.
- One runner per project: a second one is refused.
"""

import contextlib
import fcntl
import logging
import math
import os
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JNetworkError

from headwater.errors import HeadwaterError
from headwater.pipeline.care import retention
from headwater.pipeline.care.upkeep import Upkeep
from headwater.pipeline.definitions.graph import Graph, OutputKind, describe_error, load
from headwater.pipeline.definitions.names import Names
from headwater.pipeline.project.project import Project
from headwater.pipeline.project.settings import PREFIX
from headwater.pipeline.publish import broker_of
from headwater.pipeline.run import state as states
from headwater.pipeline.run.queries import Query, plans
from headwater.pipeline.run.report import Reporter, View
from headwater.pipeline.run.state import PipelineState, TableState
from headwater.pipeline.run.views import Views
from headwater.pipeline.tables.delta_source import TableReader
from headwater.pipeline.tables.store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

TRIES = 5
FIRST_PAUSE = 1.0  # seconds before a query is started again; doubles each time
# A broker that is away comes back, and so does a machine that is too busy to start a process: a
# continuous run waits for them as long as it takes; a run with --once, some minutes.
_PASSING = ("no broker answers", "Python worker failed to connect back")
_PATIENT_TRIES = 10
_LONGEST_PAUSE = 30.0
_LOOK_SECONDS = 0.2
_GLANCE_SECONDS = 0.05
HEAD_START_SECONDS = 12.0
_STOP_SECONDS = 10.0
#: Settings of Spark for several queries on few cores.
SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "5s",
    "spark.sql.streaming.metricsEnabled": "false",
    # Otherwise a query without new records waits, and the others wait for it.
    "spark.sql.streaming.noDataProgressEventInterval": "10000",
}


def configure(spark: "SparkSession", project: Project) -> None:
    """Let definitions see the project's settings."""
    given = {**project.configuration, f"{PREFIX}storage": str(project.storage)}
    for name, value in given.items():
        if not name.startswith("spark.") or spark.conf.isModifiable(name):
            spark.conf.set(name, value)


@contextmanager
def only_runner(project: Project) -> Iterator[None]:
    """Refuse to run a project twice at the same time. The lock goes with the process."""
    project.state.mkdir(parents=True, exist_ok=True)
    with (project.state / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            who = lock.read().strip()
            raise HeadwaterError(
                f"the pipeline {project.name} runs already" + (f" (process {who})" if who else "")
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def open_project(spark: "SparkSession", project: Project) -> tuple[Graph, Names, TableStore]:
    """The definitions of a project, its names and its tables."""
    configure(spark, project)
    store = TableStore(spark, project.tables, project.setting("format", "delta-rs"))
    files = project.definitions()
    if not files:
        raise HeadwaterError(f"there are no definitions in {project.root}: {project.includes}")
    graph = load(project.root, files, spark)
    return graph, Names(spark, graph, store), store


class SupervisedQuery:
    """A query, and how often it has failed."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.failures = 0
        self.again_at: float | None = None
        self.ended = False  # for good: done, or failed too often


class Runner:
    """One run of a project. `stop` may be called from any thread, or by a signal."""

    def __init__(
        self,
        project: Project,
        spark: "SparkSession",
        once: bool = False,
        view: View = lambda _: None,
    ) -> None:
        self.project, self.spark, self.once, self._view = project, spark, once, view
        self.state = PipelineState(project.name, "once" if once else "continuous")
        self._stopping = threading.Event()
        self._watched: list[SupervisedQuery] = []
        self._broker = broker_of_project(spark, project)
        self._log: tuple[float, Any] = (0.0, None)

    def stop(self) -> None:
        self._stopping.set()

    def run(self, refresh: Sequence[str] | None = None) -> bool:
        """Run until everything is read, or until `stop`. Returns whether all went well.

        `refresh`: tables that are rebuilt from the start; all of them if it is empty."""
        with only_runner(self.project):
            graph, names, store = open_project(self.spark, self.project)
            with ExitStack() as stack:
                self._prepare(graph, names, store)
                if refresh is not None:
                    self._drop(graph, refresh)
                self._count_rows(store)
                stack.enter_context(Reporter(self.project, self._broker, self.look, self._view))
                if store.ours:
                    retention.note(self.project, retention.retentions_of(graph))
                if not self.once and store.ours:
                    stack.enter_context(Upkeep(self.project, graph))
                stack.callback(self._stop_queries)
                with _alive():
                    self._supervise()
            states.save(self.project.state, self.state.as_dict())
        failed = [each for each in self.state.as_dict()["tables"] if each["state"] == "failed"]
        return not failed

    # Before

    def _prepare(self, graph: Graph, names: Names, store: TableStore) -> None:
        made = [
            Query(plan, names, store, self.project.checkpoints, self.state)
            for plan in plans(graph, by_tasks=store.ours)
        ]
        self._watched = [SupervisedQuery(query) for query in made]
        self._views = Views(graph, names, store, self.state, self.project.state, self._log_end)
        for query in made:
            for node in query.plan.nodes:
                self.state.add(TableState(node.name, node.kind.value, query.plan.name))
        for name in self._views.names:
            self.state.add(TableState(name, OutputKind.VIEW.value, name))
        self._store = store

    def _count_rows(self, store: TableStore) -> None:
        for each in self.state.as_dict()["tables"]:
            table = store.table(each["name"])
            if store.ours and each["kind"] != OutputKind.SINK.value and table.exists:
                self.state.set([each["name"]], rows=sum(file.rows for file in table.files()))

    def _drop(self, graph: Graph, wanted: Sequence[str]) -> None:
        """Remove tables with their checkpoints. Those that share a query go together: the others
        would get its rows again."""
        for name in wanted:
            if name not in graph.nodes:
                raise HeadwaterError(f"there is no table {name} in this project")
        for watched in self._watched:
            plan = watched.query.plan
            if not wanted or set(wanted) & set(plan.tables):
                for name in plan.tables:
                    shutil.rmtree(self._store.path(name), ignore_errors=True)
                shutil.rmtree(watched.query.checkpoint, ignore_errors=True)
        self._views.forget([name for name in self._views.names if not wanted or name in wanted])

    # While it runs

    def _supervise(self) -> None:
        if self.once:
            self._catch_up()
            return
        self._start(self._watched)
        refresher = threading.Thread(target=self._refresh_views, name="views", daemon=True)
        refresher.start()
        while not self._stopping.wait(_LOOK_SECONDS):
            self._look_after(self._watched)

    def _refresh_views(self) -> None:
        """In a thread of its own, because a view may take long while queries need supervision."""
        while not self._stopping.wait(_LOOK_SECONDS):
            self._views.refresh()

    def _catch_up(self) -> None:
        """Read everything there is: queries of the log first, then those of its tables."""
        left = [each for each in self._watched if self._planned(each)]
        while left and not self._stopping.is_set():
            wave = self._ready(left)
            self._start(wave)
            while not all(each.ended for each in wave) and not self._stopping.wait(_LOOK_SECONDS):
                self._look_after(wave)
            left = [each for each in left if each not in wave]
        if not self._stopping.is_set():
            self._views.refresh(at_once=True)
            self._views.refresh(at_once=True)  # those that read other views
            done = [name for name in self._views.names if self.state.get(name).state != "failed"]
            self.state.set(done, state="done")

    def _planned(self, watched: SupervisedQuery) -> bool:
        try:
            watched.query.plan_ahead()
        except Exception as error:  # a definition that is wrong does not get better
            watched.failures = TRIES - 1
            self._failed(watched, describe_error(error))
        return not watched.ended

    def _ready(self, left: list[SupervisedQuery]) -> list[SupervisedQuery]:
        """The queries that read no table which is still to be filled."""
        coming = {name for each in left for name in each.query.plan.tables}
        ready = [each for each in left if not each.query.inputs & coming]
        return ready or left

    def _start(self, wave: list[SupervisedQuery]) -> None:
        for watched in wave:
            if self._stopping.is_set():
                return
            try:
                watched.query.start(self.once)
            except Exception as error:
                self._failed(watched, describe_error(error))
            if watched is wave[0] and len(wave) > 1:
                self._give_head_start(watched.query)

    def _give_head_start(self, query: Query) -> None:
        """Let the first one come to its first rows before the others start: on few cores, all of
        them at once would be slow to begin."""
        until = time.monotonic() + HEAD_START_SECONDS
        while not query.batches and query.active and time.monotonic() < until:
            if self._stopping.wait(_GLANCE_SECONDS):
                return

    def _look_after(self, wave: list[SupervisedQuery]) -> None:
        for watched in wave:
            if watched.ended:
                continue
            if watched.again_at is not None:
                if time.monotonic() >= watched.again_at:
                    watched.again_at = None
                    self._start([watched])
            elif not watched.query.active:
                self._ended(watched)
            elif watched.query.batches:
                watched.failures = 0

    def _ended(self, watched: SupervisedQuery) -> None:
        error = watched.query.failure()
        if error is not None:
            self._failed(watched, error)
        elif self.once:
            watched.ended = True
            self.state.set(watched.query.plan.tables, state="done", error=None)
        elif not self._stopping.is_set():
            self._failed(watched, "it was stopped")

    def _failed(self, watched: SupervisedQuery, why: str) -> None:
        watched.failures += 1
        tables = watched.query.plan.tables
        batch = self.state.get(tables[0]).batch
        told = f"{why[:300]} (after batch {batch})" if batch is not None else why[:300]
        if watched.failures >= self._tries(why):
            watched.ended = True
            logger.error("%s has failed for good: %s", watched.query.plan.name, told)
            self.state.set(tables, state="failed", error=told)
            return
        pause = min(FIRST_PAUSE * 2 ** (watched.failures - 1), _LONGEST_PAUSE)
        watched.again_at = time.monotonic() + pause
        logger.warning("%s: %s; again in %g s", watched.query.plan.name, told, pause)
        self.state.set(tables, state="waiting", error=told)

    def _tries(self, why: str) -> float:
        """After how many failures in a row a query is given up."""
        if not any(each in why for each in _PASSING):
            return TRIES
        return _PATIENT_TRIES if self.once else math.inf

    def _stop_queries(self) -> None:
        threads = [
            threading.Thread(target=_quietly_stopped, args=(each.query,), daemon=True)
            for each in self._watched
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(Exception):
            self.spark.sparkContext.cancelAllJobs()  # those of views

    # The state, for reports

    def look(self) -> dict[str, Any]:
        """The current state."""
        with contextlib.suppress(HeadwaterError):
            log = self._broker.log()
            self._log = (time.monotonic(), log)
            self.state.log = {"start": log.start, "end": log.end}
        for watched in self._watched:
            if watched.query.running is not None:
                self._measure(watched.query)
        return self.state.as_dict()

    def _measure(self, query: Query) -> None:
        ends = query.end_offsets()
        offsets = [end["offset"] for end in ends if "offset" in end]
        tables, log = query.plan.tables, self.state.log
        if offsets:
            lag = None if log is None else max(0, log["end"] - min(offsets))
            self.state.set(tables, offset=min(offsets), lag=lag)
        elif ends and len(query.inputs) == 1 and self._store.ours:
            (source,) = query.inputs
            with contextlib.suppress(HeadwaterError, OSError):
                reader = TableReader(self._store.path(source), None)  # type: ignore[arg-type]
                self.state.set(tables, lag=reader.pending(ends[0]))

    def _log_end(self) -> int:
        looked, log = self._log
        if log is None or time.monotonic() - looked > 1.0:
            log = self._broker.log()
            self._log = (time.monotonic(), log)
        return int(log.end)


@contextmanager
def _alive() -> Iterator[None]:
    """Turn the end of Spark's Java process, after which nothing can go on, into one sentence."""
    try:
        yield
    except (Py4JNetworkError, ConnectionError):
        raise HeadwaterError(
            "Spark's Java process has ended; start the pipeline again, and it goes on where it was"
        ) from None


def broker_of_project(spark: "SparkSession", project: Project) -> Any:
    configure(spark, project)
    return broker_of(spark)


def _quietly_stopped(query: Query) -> None:
    with contextlib.suppress(Exception):  # Spark may be gone
        query.stop()
