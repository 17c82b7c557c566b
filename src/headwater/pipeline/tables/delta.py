"""Delta tables: files are written by tasks of Spark and committed by the driver, each batch once.

    <table>/_delta_log/          the versions of the table: which files each consists of
    <table>/date=…/*.parquet     its rows
    <table>/_staging/<attempt>/  files that are not committed; nobody reads them

A batch is added exactly once:

1. A batch that is not newer than the last one of its query is in the table already.
2. Tasks write Parquet files to a staging directory of this attempt.
3. The driver moves the files to their place in the table, where no reader looks for them yet.
4. One commit names all files, together with the query, the batch, and what the batch consists of.

A driver that is killed before 4 leaves files that nobody reads; upkeep removes them. One that is
killed after 4 repeats the batch, which ends at 1: the result is the one that the commit has noted.
Every tool that reads Delta reads these tables.
"""

import shutil
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from headwater.errors import HeadwaterError
from headwater.pipeline.project.paths import OFFSETS, STAGING
from headwater.pipeline.tables.parquet import Addition, StagedFile, staged_files
from headwater.pipeline.tables.schemas import delta_schema, same_type
from headwater.pipeline.tables.stored import StoredTable, TableFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

T = TypeVar("T")
_CONFIGURATION: Mapping[str, str | None] = {
    # So long a reader may use an old version, or a stream may be stopped.
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.checkpointInterval": "50",
}
#: Options of Spark's Parquet writer. Columns that rarely repeat a value need no dictionary.
_WRITING = {
    "compression": "zstd",
    "parquet.compression.codec.zstd.level": "1",
    **{f"parquet.enable.dictionary#{name}": "false" for name in ("value", *OFFSETS)},
}
_SETTINGS = {
    # The old way to write times has no bounds in the footers, and not every reader has it.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    # Otherwise each task sorts its rows by partition first, which takes as long as writing them.
    "spark.sql.maxConcurrentOutputFileWriters": "64",
    "spark.sql.optimizer.plannedWrite.enabled": "false",
}
_COMMIT_TRIES = 10
#: What the commit of a batch notes of its result. Each is a transaction beside that of the query:
#: Delta keeps the last value of each when files are compacted and old versions are forgotten.
_NOTED = ("rows", "first", "last")
#: The value of what is not known. It replaces that of the batch before; offsets are not negative.
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The rows and files that a batch has added to a table. `repeated`: an earlier attempt
    has added them, and nothing was committed now."""

    rows: int = 0
    bytes: int = 0
    files: int = 0
    repeated: bool = False
    #: The smallest and the largest of `offset` or `_offset`, where there is such a column.
    first: int | None = None
    last: int | None = None

    @classmethod
    def of_staged(cls, staged: Sequence[StagedFile]) -> "CommitResult":
        """The result of committing these files."""
        names = [(each, name) for each in staged for name in OFFSETS if name in each.low]
        return cls(
            rows=sum(each.rows for each in staged),
            bytes=sum(each.bytes for each in staged),
            files=len(staged),
            first=min((int(each.low[name]) for each, name in names), default=None),  # type: ignore[arg-type]
            last=max((int(each.high[name]) for each, name in names), default=None),  # type: ignore[arg-type]
        )

    @classmethod
    def of_committed(cls, files: Sequence[TableFile]) -> "CommitResult":
        """The result of a batch whose files were in the table already, by these files."""

        def known(bound: str) -> list[int]:
            values = (each.stats[bound].get(name) for each in files for name in OFFSETS)
            return [value for value in values if value is not None]

        return cls(
            rows=sum(each.rows for each in files),
            bytes=sum(each.bytes for each in files),
            files=len(files),
            repeated=True,
            first=min(known("min"), default=None),
            last=max(known("max"), default=None),
        )

    @classmethod
    def of_rows(cls, rows: Any) -> "CommitResult":
        """The result of committing a pyarrow.Table."""
        name = next((each for each in OFFSETS if each in rows.column_names), None)
        bounds = {"min": None, "max": None}
        if name is not None:
            bounds = pc.min_max(rows.column(name)).as_py()
        return cls(len(rows), rows.nbytes, first=bounds["min"], last=bounds["max"])


class Table(StoredTable):
    """A Delta table that is written to. It need not exist yet: the first batch makes it."""

    def append(
        self, frame: "DataFrame", query: str, batch: int, partition_by: Sequence[str] = ()
    ) -> CommitResult:
        """Add the rows of a batch, once. Columns that the table lacks are added to it."""
        if self._has(query, batch):
            return self.committed(query, batch)
        with self._staged(frame, partition_by) as staged:
            return self._added(staged, frame.schema, query, batch, partition_by)

    def append_files(
        self, addition: Addition, query: str, batch: int, partition_by: Sequence[str] = ()
    ) -> CommitResult:
        """Add a batch whose rows are in files already, once. The files move into the table."""
        if self._has(query, batch):
            return self.committed(query, batch)
        return self._added(addition.files, addition.schema, query, batch, partition_by)

    def _added(
        self,
        staged: Sequence[StagedFile],
        schema: "StructType",
        query: str,
        batch: int,
        partition_by: Sequence[str],
    ) -> CommitResult:
        if not staged and self.exists:
            return CommitResult()
        with lock_of(self.path):
            self._prepare(schema, partition_by)
            result = CommitResult.of_staged(staged)
            if staged:  # a batch without rows still makes the table, for those who read it
                adds = self._move(staged, _label(query, batch))
                self._commit(adds, "append", _once(query, batch, result))
        return result

    def append_arrow(self, rows: Any, query: str, batch: int) -> CommitResult:
        """Add a batch of a few rows (a pyarrow.Table), once."""
        with lock_of(self.path):
            if self._has(query, batch):
                return CommitResult(repeated=True)
            with_retries(
                lambda: write_deltalake(
                    str(self.path),
                    rows,
                    mode="append",
                    schema_mode="merge",
                    configuration=None if self.exists else _CONFIGURATION,
                    commit_properties=_once(query, batch),
                )
            )
        return replace(CommitResult.of_rows(rows), files=1)

    def upsert(
        self, frame: "DataFrame", keys: Sequence[str], query: str, batch: int
    ) -> CommitResult:
        """Replace the rows that have the keys of new ones, and add the others. For tables of modest
        size: the rows of the batch come to the driver."""
        if self._has(query, batch):
            return self.committed(query, batch)
        rows = _last_of_each(frame.toArrow(), keys)
        if not len(rows) and self.exists:
            return CommitResult()
        same = " AND ".join(f"(t.`{key}` IS NOT DISTINCT FROM s.`{key}`)" for key in keys)
        with lock_of(self.path):
            self._prepare(frame.schema, ())
            if not len(rows):
                return CommitResult()
            result = CommitResult.of_rows(rows)

            def merge() -> dict[str, Any]:
                merger = self.delta().merge(
                    rows, same, "s", "t", commit_properties=_once(query, batch, result)
                )
                return merger.when_matched_update_all().when_not_matched_insert_all().execute()

            files = with_retries(merge)["num_target_files_added"]
        return replace(result, files=files)

    def overwrite(self, frame: "DataFrame", partition_by: Sequence[str] = ()) -> CommitResult:
        """Replace all rows, and the columns if they are others now, in one step."""
        with self._staged(frame, partition_by) as staged, lock_of(self.path):
            if self.exists and self.partition_columns != list(partition_by):
                self.drop()
            if not self.exists:
                self._create(frame.schema, partition_by)
            adds = self._move(staged, _label("overwrite", self.version))
            self._commit(adds, "overwrite", None, delta_schema(frame.schema))
        return CommitResult.of_staged(staged)

    def drop(self) -> None:
        """Remove the table and its files."""
        self._known = None
        shutil.rmtree(self.path, ignore_errors=True)

    def committed(self, query: str, batch: int) -> CommitResult:
        """The result of a batch that is in the table, for the row that the audit may lack after a
        kill. No rows if it is not the query's last batch: the next one begins after that row."""
        if batch != self.last_batch(query):
            return CommitResult(repeated=True)
        rows, first, last = (self.last_batch(f"{query}/{name}") for name in _NOTED)
        if rows is not None:
            first, last = (None if each == _UNKNOWN else each for each in (first, last))
            return CommitResult(rows, repeated=True, first=first, last=last)
        # The commit was made by a version that noted no result.
        label = _label(query, batch)
        files = [each for each in self.files() if each.path.name.startswith(label)]
        return CommitResult.of_committed(files)

    # Inside

    def _has(self, query: str, batch: int) -> bool:
        last = self.last_batch(query)
        return last is not None and batch <= last

    @contextmanager
    def _staged(
        self, frame: "DataFrame", partition_by: Sequence[str]
    ) -> "Iterator[list[StagedFile]]":
        """Write a frame to staged files. Those that were not moved into the table are deleted."""
        place = self.path / STAGING / uuid.uuid4().hex
        try:
            for name, value in _SETTINGS.items():
                frame.sparkSession.conf.set(name, value)
            writer = frame.write.options(**_WRITING)
            if partition_by:
                writer = writer.partitionBy(*partition_by)
            writer.parquet(str(place))
            yield list(staged_files(place))
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _move(self, staged: Sequence[StagedFile], label: str) -> list[Any]:
        """Move files to their place in the table; readers see them after the commit."""
        adds, attempt = [], uuid.uuid4().hex[:8]
        for number, each in enumerate(staged):
            name = f"{label}{attempt}-{number}.zstd.parquet"
            place = self.path / each.folder
            place.mkdir(parents=True, exist_ok=True)
            each.path.rename(place / name)
            adds.append(each.action(name))
        return adds

    def _prepare(self, schema: "StructType", partition_by: Sequence[str]) -> None:
        """Make the table, or add the columns that it lacks."""
        if not self.exists:
            self._create(schema, partition_by)
            return
        known = {each.name: each for each in self.spark_schema}
        for each in schema:
            if each.name in known and not same_type(known[each.name], each):
                raise HeadwaterError(
                    f"the column {each.name} of the table {self.name} is "
                    f"{known[each.name].dataType.simpleString()}, but new rows have "
                    f"{each.dataType.simpleString()}: rebuild the table with "
                    f"`headwater pipeline run --full-refresh {self.name}`"
                )
        new = [each.name for each in schema if each.name not in known]
        if new:
            fields = [each for each in delta_schema(schema).fields if each.name in new]
            with_retries(lambda: self.delta().alter.add_columns(fields))

    def _create(self, schema: "StructType", partition_by: Sequence[str]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            str(self.path),
            delta_schema(schema),
            partition_by=list(partition_by),
            configuration=_CONFIGURATION,
        )

    def _commit(
        self,
        adds: list[Any],
        mode: str,
        once: CommitProperties | None,
        schema: Schema | None = None,
    ) -> None:
        def commit() -> None:
            delta = self.delta()
            columns = list(delta.metadata().partition_columns)
            delta.create_write_transaction(
                adds, mode, schema or delta.schema(), columns, commit_properties=once
            )

        with_retries(commit)


def with_retries(commit: Callable[[], T]) -> T:
    """Commit, and try again if another process has changed the table meanwhile."""
    for _ in range(_COMMIT_TRIES - 1):
        try:
            return commit()
        except CommitFailedError:
            continue
    return commit()


#: For the whole process on purpose: each query and upkeep have a `Table` of their own, and all of
#: them take turns on the one directory.
_locks: dict[Path, threading.RLock] = {}


def lock_of(path: Path) -> threading.RLock:
    """The lock of a table. Without it, two commits of one process would make each other fail."""
    return _locks.setdefault(path, threading.RLock())


def _once(query: str, batch: int, result: CommitResult | None = None) -> CommitProperties:
    """The notes of a commit: which batch it is, and its result where it may be asked for again."""
    notes = [Transaction(query, batch)]
    for name in _NOTED if result is not None else ():
        value = getattr(result, name)
        notes.append(Transaction(f"{query}/{name}", _UNKNOWN if value is None else value))
    return CommitProperties(app_transactions=notes)


def _label(query: str, batch: int) -> str:
    """The beginning of the names of a batch's files, by which they are found again."""
    return f"{sha256(query.encode()).hexdigest()[:8]}-{batch}-"


def _last_of_each(rows: Any, keys: Sequence[str]) -> Any:
    """A merge cannot decide between two rows with the same keys: the last one counts."""
    numbered = rows.append_column("__row", pa.array(range(len(rows)), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([("__row", "max")])
    return rows if len(last) == len(rows) else rows.take(last.column("__row_max").sort())
