"""Each batch has its row in the audit table, once: also one whose process was killed before it
wrote that row, whatever upkeep does to the table until Spark repeats the batch.

This needs no Spark: a query is called as Spark calls it."""

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from headwater.pipeline.bronze import PARTITION_COLUMNS, BronzeFiles, BronzeFileSource
from headwater.pipeline.care.upkeep import clean, compact
from headwater.pipeline.definitions.declarative import Flow, SourceCodeLocation, StreamingTable
from headwater.pipeline.definitions.graph import Node, OutputKind
from headwater.pipeline.project.paths import AUDIT
from headwater.pipeline.run import queries
from headwater.pipeline.run.queries import COMPLETE, Plan, Query
from headwater.pipeline.run.state import PipelineState, TableState
from headwater.pipeline.tables.delta import Table
from headwater.pipeline.tables.store import TableStore
from tests.pipeline.taskfiles.test_taskfiles import Log, log

__all__ = ["log"]

BRONZE, QUERY = "bronze", "0b0e7d3c"


def bronze_query(root: Path) -> Query:
    """The query of bronze, as it is after a start of the pipeline."""
    here = SourceCodeLocation("definitions.py", 1)
    flow = Flow(BRONZE, BRONZE, {}, here, lambda: None)  # type: ignore[arg-type,return-value]
    output = StreamingTable(
        BRONZE, None, here, {COMPLETE: "true"}, PARTITION_COLUMNS, None, None, None
    )
    node = Node(BRONZE, OutputKind.TABLE, output, [flow])
    nothing: Any = None  # neither Spark nor the names that definitions use
    state = PipelineState("test", "once")
    state.add(TableState(BRONZE, "table", BRONZE))
    query = Query(
        Plan(BRONZE, (node,), flow, BronzeFiles(BRONZE)),
        nothing,
        TableStore(nothing, root / "tables"),
        root / "checkpoints",
        state,
    )
    query.checkpoint.mkdir(parents=True, exist_ok=True)
    (query.checkpoint / "metadata").write_text(json.dumps({"id": QUERY}))
    return query


def write(log: Log, root: Path, start: int, number: int) -> None:
    """A micro-batch with all records from an offset on, by a pipeline that was just started."""
    batch = log.batch(BronzeFileSource, start, tables=str(root / "tables"), table=BRONZE)
    bronze_query(root).write_batch(batch, number)


def write_without_audit_row(port: int, root: Path, start: int, number: int) -> None:
    """In a process of its own: it is killed when the table has the batch."""

    def kill(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    queries.audit = kill  # type: ignore[assignment]
    write(Log(port), root, start, number)


def audit_rows(root: Path) -> list[tuple[int, ...]]:
    rows = Table(root / "tables" / AUDIT).dataset().to_table().sort_by("batch").to_pylist()
    assert all((row["query"], row["table"]) == (QUERY, BRONZE) for row in rows)
    return [(row["batch"], row["first"], row["last"], row["rows"]) for row in rows]


def forget_old_versions(table: Table) -> None:
    """As Delta does when versions are older than their retention."""
    delta = DeltaTable(str(table.path))
    delta.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    delta.create_checkpoint()
    for file in (table.path / "_delta_log").glob("*.json"):
        os.utime(file, (0, 0))
    delta.cleanup_metadata()
    assert DeltaTable(str(table.path)).history()[-1]["version"] > 2


@pytest.mark.parametrize("care", ["none", "compaction", "all"])
def test_a_batch_whose_process_was_killed_gets_its_row(log: Log, tmp_path: Path, care: str) -> None:
    log.append(("shop/orders", b"0"), ("shop/orders", b"1"), ("weather", b"2"))
    write(log, tmp_path, 0, 0)
    log.append(("shop/orders", b"3"), ("sensors", b"4"))
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=write_without_audit_row, args=(log.port, tmp_path, 3, 1))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    table = Table(tmp_path / "tables" / BRONZE)
    assert table.last_batch(QUERY) == 1 and audit_rows(tmp_path) == [(0, 0, 2, 3)]
    if care != "none":
        before = len(table.files())
        compact(table)  # of the batch, one file is compacted and one stays
        assert len(table.files()) == before - 1
    if care == "all":
        forget_old_versions(table)
        assert clean(table, kept_hours=0) == 2
    for _ in range(2):
        write(log, tmp_path, 3, 1)
        assert audit_rows(tmp_path) == [(0, 0, 2, 3), (1, 3, 4, 2)]
    assert sorted(table.dataset().to_table()["offset"].to_pylist()) == [0, 1, 2, 3, 4]
