"""The driver's side: collect the files that the tasks of a micro-batch have written."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.pipeline.project.paths import STAGING
from headwater.pipeline.tables.parquet import StagedFile, read_staged_file
from headwater.pipeline.taskfiles.write import write_parquet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A file that a task has written, with the keys and the arrival times of its rows."""

    file: StagedFile
    keys: bytes
    times: bytes

    def without(self, repeated: Any) -> "TaskFile | None":
        """The file without the rows that a mask names; None if no row is left."""
        keep = pc.invert(pa.array(repeated))
        rows = pq.read_table(self.file.path, partitioning=None).filter(keep)
        if not len(rows):
            return None
        write_parquet(rows, self.file.path)
        return TaskFile(read_staged_file(self.file.path, self.file.folder), b"", b"")


@dataclass(frozen=True, slots=True)
class CollectedFiles:
    """The files of a micro-batch by table, in the order of the log, and the new fields by table."""

    files: dict[str, list[TaskFile]]
    new_fields: list[tuple[str, str]]

    def discard(self) -> None:
        for files in self.files.values():
            discard([each.file for each in files])


def collect(batch: "DataFrame") -> CollectedFiles:
    """Run a micro-batch, and collect the files that its tasks have written."""
    files: dict[str, list[TaskFile]] = {}
    new_fields = []
    for row in batch.collect():
        if row["new_fields"] is not None:
            new_fields.append((row["table"], row["new_fields"]))
        if row["path"] is not None:
            file = staged_file(Path(row["path"]))
            collected = TaskFile(file, bytes(row["keys"] or b""), bytes(row["times"] or b""))
            files.setdefault(row["table"], []).append(collected)
    for each in files.values():
        each.sort(key=lambda collected: collected.file.first or 0)
    return CollectedFiles(files, new_fields)


def discard(files: Iterable[StagedFile]) -> None:
    """Remove the staging directories of files, with every file that was not committed."""
    for attempt in {_attempt(each.path) for each in files}:
        shutil.rmtree(attempt, ignore_errors=True)


def staged_file(path: Path) -> StagedFile:
    """The file at a path below a staging directory."""
    return read_staged_file(path, path.parent.relative_to(_attempt(path)))


def _attempt(path: Path) -> Path:
    """The staging directory of the attempt that has written a file."""
    return next(each for each in path.parents if each.parent.name == STAGING)
