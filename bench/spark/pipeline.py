"""The pipeline as its users run it: `headwater pipeline run` on a project that `init` has made."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from deltalake import DeltaTable

from bench.crew import Crew, LoadFailed
from bench.figures import Figures, Metric
from bench.load.bulk import Published
from bench.spark.load import ORDERS, fill_orders, publish_orders
from bench.spark.stand import FILL_SECONDS, QUERY_SECONDS, Broker, Stand

Findings = list[tuple[str, str, Figures]]
State = dict[str, Any]

PIPELINE = "pipeline"
BRONZE, ALL_TABLES, COLD, LAG = "bronze alone", "all tables", "cold start", "lag"


class Run:
    """`headwater pipeline run`, and the states that it prints, with the time of each."""

    def __init__(self, project: Path, servers: str, *options: str) -> None:
        command = [sys.executable, "-m", "headwater", "pipeline", "run"]
        at = ["--project", str(project), "--servers", servers, "--master", "local[2]"]
        self.began = time.time()
        self.states: list[State] = []
        self._errors = (project / "errors.log").open("w+")
        self._process = subprocess.Popen(
            [*command, *at, *options], stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self.states.append(json.loads(line))

    def finish(self) -> State:
        """Wait for the end of a run that ends; returns its last state."""
        code = self._process.wait(QUERY_SECONDS)
        self._reader.join()
        if code:
            self._errors.seek(0)
            raise LoadFailed(f"the pipeline failed: {self._errors.read()[-300:]}")
        return self.states[-1]

    def wait(self, enough: Callable[[State], bool]) -> State:
        deadline = time.monotonic() + QUERY_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            found = next((state for state in list(self.states) if enough(state)), None)
            if found is not None:
                return found
            time.sleep(0.05)
        raise LoadFailed("the pipeline did not come so far")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(120)  # a busy machine takes long to end Spark in order
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()


def pipeline(stand: Stand) -> Findings:
    return [*_bronze(stand), *_all_tables(stand), *_lag(stand)]


def _bronze(stand: Stand) -> Findings:
    with stand.broker(stand.scale.rows) as broker, _project(stand) as project:
        for definitions in (project / "transformations").glob("*.py"):
            if definitions.name != "bronze.py":
                definitions.unlink()
        return [(BRONZE, PIPELINE, _run_once(project, broker, stand.scale.rows))]


def _all_tables(stand: Stand) -> Findings:
    rows = stand.scale.orders
    with stand.broker() as broker, _project(stand) as project:
        with Crew() as crew:
            filler = crew.start(fill_orders, broker.aim("psmb", ORDERS), rows)
            filler.wait(Published, FILL_SECONDS)
        return [(ALL_TABLES, PIPELINE, _run_once(project, broker, rows))]


def _run_once(project: Path, broker: Broker, rows: int) -> Figures:
    run = Run(project, broker.servers, "--once")
    try:
        state = run.finish()
    finally:
        run.stop()
    found = _table(state, "bronze")["rows"]
    if found < rows:
        raise LoadFailed(f"bronze has {found} rows instead of {rows}")
    rate = rows / ((state["updated"] - state["started"]) / 1e6)
    sustained = _sustained(project / "storage" / "tables" / "audit")
    return {Metric.RATE: rate, Metric.BATCH_RATE: sustained or rate}


def _sustained(audit: Path) -> float | None:
    """Records a second of the slowest table, from the end of its first micro-batch to that of its
    last one: without what happens once. None if there are not enough of them."""
    noted = DeltaTable(audit).to_pyarrow_table().sort_by("batch").to_pylist()
    rates = []
    for table in {each["table"] for each in noted}:
        batches = [each for each in noted if each["table"] == table and each["last"] is not None]
        if len(batches) > 2:
            seconds = (batches[-1]["written_at"] - batches[0]["written_at"]).total_seconds()
            rates.append((batches[-1]["last"] - batches[0]["last"]) / seconds)
    return min(rates, default=None)


def _lag(stand: Stand) -> Findings:
    """A start on an empty log, and how far tables are behind a steady stream of orders."""
    scale = stand.scale
    seconds = scale.lag_settle + scale.lag_seconds + 120
    with stand.broker() as broker, _project(stand) as project, Crew() as crew:
        aim = broker.aim("psmb", ORDERS)
        publisher = crew.start(publish_orders, aim, scale.lag_rate, seconds)
        publisher.wait(str)
        publisher.go()
        run = Run(project, broker.servers)
        try:
            first = run.wait(lambda state: _table(state, "bronze")["rows"] > 0)
            cold = first["updated"] / 1e6 - run.began
            measured = first["updated"] + int(scale.lag_settle * 1e6)
            time.sleep(scale.lag_settle + scale.lag_seconds)
            run.wait(lambda state: state["updated"] >= measured and _lags(_table(state, "bronze")))
        finally:
            run.stop()
    lags: dict[str, list[float]] = {}
    for state in run.states:
        for table in state["tables"] if state["updated"] >= measured else ():
            if _lags(table):
                lags.setdefault(table["name"], []).append(table["lag"] / scale.lag_rate)
    found: Findings = [(COLD, PIPELINE, {Metric.READY: cold})]
    for name, values in lags.items():
        ordered = sorted(values)
        figures = {Metric.LAG: ordered[len(ordered) // 2], Metric.MOST_LAG: ordered[-1]}
        found.append((f"{LAG} at {scale.lag_rate:,} records/s", name, figures))
    return found


def _lags(table: State) -> bool:
    """It has begun, and says how far it is behind."""
    return table["lag"] is not None and table["offset"] is not None


def _table(state: State, name: str) -> State:
    return next(each for each in state["tables"] if each["name"] == name)


@contextmanager
def _project(stand: Stand) -> Iterator[Path]:
    with stand.directory() as directory:
        command = [sys.executable, "-m", "headwater", "pipeline", "init", str(directory)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield directory
