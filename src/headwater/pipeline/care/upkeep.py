"""Upkeep: few large files instead of many small ones, and neither rows nor files beyond their time.

    expire      rows that are older than the table's retention are deleted (retention.py)
    compact     small files of a partition become one. Streams that read the table notice nothing.
    clean       files that were never committed, or that no version of the last 7 days has, go

Files of older versions stay for a while because readers that run still use them.

A pipeline that runs does this on a schedule, `headwater pipeline compact` at once. Both may run at
the same time, also while rows are added: each step is one commit, and a commit that comes too late
is tried again. A killed upkeep leaves files that nobody reads; the next one removes them.
"""

import contextlib
import logging
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import WriterProperties

from headwater.errors import ConfigError
from headwater.pipeline.care.background import Background
from headwater.pipeline.care.retention import expire, old_rows, retentions_of
from headwater.pipeline.project.paths import STAGING
from headwater.pipeline.project.project import Project
from headwater.pipeline.tables.delta import Table, lock_of, with_retries
from headwater.pipeline.tables.stored import StoredTable, TableFile
from headwater.units import parse_duration

if TYPE_CHECKING:
    from headwater.pipeline.definitions.graph import Graph

logger = logging.getLogger(__name__)

TARGET_BYTES = 128 * 1024 * 1024
KEPT_HOURS = 7 * 24
ABANDONED_SECONDS = 3600.0
#: While a pipeline runs: the time between two runs, and the number of small files for a run sooner.
EVERY = "10m"
MANY_FILES = 200
_LOOK_SECONDS = 30.0
_SMALL_BYTES = TARGET_BYTES // 4
#: The names of files that deltalake is writing. Its vacuum does not see those that a kill has left.
_UNFINISHED = "*.parquet#*"
_WRITING = WriterProperties(compression="ZSTD", compression_level=1)


@dataclass(frozen=True, slots=True)
class UpkeepResult:
    """The changes that upkeep has made to a table, or would make."""

    table: str
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    #: Rows that were too old.
    expired: int = 0
    #: Files, and directories of batches that were never committed, that went from the disk.
    removed: int = 0
    error: str | None = None

    @property
    def changed(self) -> bool:
        return self.files_before != self.files_after or bool(self.expired or self.removed)


def keep_all(
    tables: Iterable[Table],
    retentions: Mapping[str, str],
    due: Callable[[Table], bool] = lambda _: True,
    dry: bool = False,
) -> Iterator[UpkeepResult]:
    """Do upkeep of the tables that are due. A failure with one does not stop the others."""
    for table in tables:
        try:
            if due(table):
                yield keep(table, retentions.get(table.name), dry=dry)
        except Exception as error:  # the next time may be better
            said = str(error).splitlines() or [type(error).__name__]
            yield UpkeepResult(table.name, error=said[0])


def keep(
    table: Table, retention: str | None = None, kept_hours: int = KEPT_HOURS, dry: bool = False
) -> UpkeepResult:
    """Do upkeep of a table. `dry`: only count what there is to do."""
    before = table.files()
    done = UpkeepResult(table.name, len(before), bytes_before=_size(before))
    if dry:
        after = _foreseen(before)
        expired = old_rows(table, retention).rows if retention else 0
        done = replace(done, files_after=after, bytes_after=done.bytes_before, expired=expired)
        return replace(done, removed=clean(table, kept_hours, dry=True))
    expired = expire(table, retention) if retention else 0
    compact(table)
    removed, files = clean(table, kept_hours), table.files()
    return replace(
        done, files_after=len(files), bytes_after=_size(files), expired=expired, removed=removed
    )


def compact(table: Table) -> None:
    def run() -> Any:
        return table.delta().optimize.compact(
            target_size=TARGET_BYTES, max_concurrent_tasks=1, writer_properties=_WRITING
        )

    with lock_of(table.path):
        with_retries(run)


def clean(table: Table, kept_hours: int = KEPT_HOURS, dry: bool = False) -> int:
    """Remove files that nobody reads any more; returns how many."""
    begun = (*(table.path / STAGING).glob("*"), *table.path.rglob(_UNFINISHED))
    abandoned = [each for each in begun if _is_abandoned(each)]
    gone = _vacuumed(table, kept_hours, dry=True)
    if not dry:
        for each in abandoned:
            shutil.rmtree(each, ignore_errors=True) if each.is_dir() else each.unlink(True)
        if gone:  # otherwise this would be two versions of the table for nothing
            with lock_of(table.path):
                gone = with_retries(lambda: _vacuumed(table, kept_hours, dry=False))
    return len(abandoned) + len(gone)


def _vacuumed(table: Table, kept_hours: int, dry: bool) -> list[str]:
    return table.delta().vacuum(
        kept_hours, dry_run=dry, enforce_retention_duration=False, full=True
    )


def _is_abandoned(begun: Path) -> bool:
    """Whether nothing was written to a file, or below a directory, for a while."""
    newest = 0.0
    for each in (begun, *begun.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # it is being moved into the table
            newest = max(newest, each.stat().st_mtime)
    return time.time() - newest > ABANDONED_SECONDS


def is_scattered(table: StoredTable) -> bool:
    return sum(each.bytes < _SMALL_BYTES for each in table.files()) >= MANY_FILES


def _foreseen(files: Sequence[TableFile]) -> int:
    """About how many files there will be."""
    small: dict[str, int] = {}
    for each in files:
        if each.bytes < TARGET_BYTES:
            place = str(each.partition)
            small[place] = small.get(place, 0) + each.bytes
    large = sum(each.bytes >= TARGET_BYTES for each in files)
    return large + sum(math.ceil(size / TARGET_BYTES) for size in small.values())


def _size(files: Sequence[TableFile]) -> int:
    return sum(each.bytes for each in files)


class Upkeep(Background):
    """Upkeep in a thread, as long as a pipeline runs."""

    def __init__(self, project: Project, graph: "Graph") -> None:
        self._project, self._retentions = project, retentions_of(graph)
        self._every = every_seconds(project)
        super().__init__("upkeep")

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stopping.wait(min(_LOOK_SECONDS, self._every)):
            due = time.monotonic() - last >= self._every
            self._look_after(due)
            if due:
                last = time.monotonic()

    def _look_after(self, due: bool) -> None:
        wanted = (lambda _: True) if due else is_scattered
        for done in keep_all(tables_of(self._project), self._retentions, wanted):
            _tell(done)
            if self._stopping.is_set():
                return


def _tell(done: UpkeepResult) -> None:
    if done.error:
        logger.warning("upkeep of %s: %s", done.table, done.error)
    elif done.changed:
        logger.info("upkeep: %s", done)


def every_seconds(project: Project) -> float:
    written = project.setting("upkeep.every", EVERY)
    try:
        seconds = parse_duration(written)
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ConfigError(
            f'headwater.upkeep.every must be a duration such as "10m", not "{written}"'
        )
    return seconds


def tables_of(project: Project) -> list[Table]:
    """The tables that exist."""
    places = sorted(project.tables.iterdir()) if project.tables.is_dir() else []
    return [table for place in places if (table := Table(place)).exists]
