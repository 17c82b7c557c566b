"""Upkeep: few large files instead of many small ones, and nothing kept for longer than wanted.

    compact     small files of a partition become one. Streams that read the table notice nothing.
    expire      rows that are older than the table's property headwater.retention are deleted
    clean       files that no version of the last 7 days has, and what was never committed, go

Readers hold on to files of older versions while they run, which is why these stay for a while.
"""

import contextlib
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import WriterProperties

from headwater.errors import HeadwaterError
from headwater.pipeline.background import Background
from headwater.pipeline.delta import STAGING, Table, lock_of, retried
from headwater.pipeline.project import Project
from headwater.units import parse_duration

if TYPE_CHECKING:
    from headwater.pipeline.graph import Graph

logger = logging.getLogger(__name__)

RETENTION = "headwater.retention"
TARGET_BYTES = 128 * 1024 * 1024
KEPT_HOURS = 7 * 24
ABANDONED_SECONDS = 3600.0
#: While a pipeline runs: how often it is done, and with how many small files sooner.
EVERY_SECONDS = 600.0
MANY_FILES = 200
_LOOK_SECONDS = 30.0
_SMALL_BYTES = TARGET_BYTES // 4
_WRITING = WriterProperties(compression="ZSTD", compression_level=1)


@dataclass(frozen=True, slots=True)
class Done:
    """What upkeep did to a table."""

    table: str
    files_before: int
    files_after: int
    expired: int = 0
    #: Files and directories that were removed from the disk.
    removed: int = 0

    @property
    def changed(self) -> bool:
        return self.files_before != self.files_after or bool(self.expired or self.removed)


def keep(table: Table, retention: str | None = None, kept_hours: int = KEPT_HOURS) -> Done:
    """Do all of it to a table."""
    expired = expire(table, retention) if retention else 0
    before = len(table.files())
    compact(table)
    removed = clean(table, kept_hours)
    return Done(table.name, before, len(table.files()), expired, removed)


def compact(table: Table) -> None:
    def run() -> Any:
        return table.delta().optimize.compact(
            target_size=TARGET_BYTES, max_concurrent_tasks=1, writer_properties=_WRITING
        )

    with _alone(table):
        retried(run)


def expire(table: Table, retention: str) -> int:
    """Delete old rows; returns how many."""
    column = _age_column(table)
    oldest = datetime.now(UTC) - timedelta(seconds=_seconds(table, retention))
    limit = oldest.date().isoformat() if column.type == pa.date32() else oldest.isoformat()
    kind = "DATE" if column.type == pa.date32() else "TIMESTAMP"
    with _alone(table):
        found = retried(lambda: table.delta().delete(f"`{column.name}` < {kind} '{limit}'"))
    return int(found.get("num_deleted_rows") or 0)


def clean(table: Table, kept_hours: int = KEPT_HOURS) -> int:
    """Remove what nobody reads any more; returns how many files."""
    removed = 0
    for attempt in (table.path / STAGING).glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - attempt.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(attempt, ignore_errors=True)
                removed += 1
    with _alone(table):
        gone = retried(
            lambda: table.delta().vacuum(
                kept_hours, dry_run=False, enforce_retention_duration=False, full=True
            )
        )
    return removed + len(gone)


def is_scattered(table: Table) -> bool:
    return sum(each.bytes < _SMALL_BYTES for each in table.files()) >= MANY_FILES


def _age_column(table: Table) -> Any:
    schema = table.arrow_schema
    times = [field for field in schema if pa.types.is_timestamp(field.type)]
    named = [schema.field(name) for name in ("date", "timestamp") if name in schema.names]
    known = [field for field in named if field.type == pa.date32() or field in times]
    if not known and not times:
        raise HeadwaterError(
            f"the table {table.name} has {RETENTION}, but no column that says how old a row is"
        )
    return (known or times)[0]


def _seconds(table: Table, retention: str) -> float:
    try:
        return parse_duration(retention)
    except ValueError:
        raise HeadwaterError(
            f'{RETENTION} of the table {table.name} must be a duration such as "30d", not '
            f'"{retention}"'
        ) from None


@contextmanager
def _alone(table: Table) -> Iterator[None]:
    with lock_of(table.path):
        yield


class Upkeep(Background):
    """Upkeep in a thread, as long as a pipeline runs."""

    def __init__(self, project: Project, graph: "Graph") -> None:
        self._project, self._graph = project, graph
        super().__init__("upkeep")
        self._last = time.monotonic()

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            due = time.monotonic() - self._last >= EVERY_SECONDS
            for table in tables_of(self._project):
                if self._stopping.is_set():
                    return
                try:
                    if due or is_scattered(table):
                        keep(table, retention_of(self._graph, table.name))
                except Exception as error:  # the next time may be better
                    logger.warning("upkeep of %s: %s", table.name, str(error).splitlines()[0])
            if due:
                self._last = time.monotonic()


def retention_of(graph: "Graph", name: str) -> str | None:
    node = graph.nodes.get(name)
    return None if node is None else node.properties.get(RETENTION)


def tables_of(project: Project) -> list[Table]:
    """The tables that exist."""
    places = sorted(project.tables.iterdir()) if project.tables.is_dir() else []
    return [table for place in places if (table := Table(place)).exists]
