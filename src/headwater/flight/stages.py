"""What is written in two steps: staged by any number of tasks, then made visible at once.

    stages/<query>/<batch>/<partition>.<attempt>.arrow     rows as they came, synced before answered

A file is an Arrow IPC stream, then the bytes "HWST" and the CRC-32C of the stream (u32).

The way of a commit, and what a crash at each point means:

    1. the intent is noted: (query, batch), and where the log ends     nothing is visible
    2. the rows are appended, all in one group                         some of them may be stored
    3. they are durable; the batch is noted as the query's last        done
    4. its files are removed

Rows in the log name their batch as their publisher. So whoever finds an intent (this broker after a
crash, before it serves anyone, or a client that commits again) counts the rows that are there and
appends the rest. A batch that is not newer than the query's last is not appended again.
"""

import hashlib
import mmap
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import IO, Any
from urllib.parse import quote

import pyarrow as pa
from crc32c import crc32c

from headwater import sqlite
from headwater.clock import believed
from headwater.errors import Code, HeadwaterError, LogUnavailable, Refusal
from headwater.files import make_directories, sync_directory
from headwater.flight.requests import Append, Commit, Stage

# Stages of a query that is gone for good; Spark keeps retrying for much less.
ABANDONED_SECONDS = 24 * 3600.0
_PATIENCE_SECONDS = 30.0
# After so many bytes, whoever writes looks whether there is room for more.
LOOK_BYTES = 64 << 20
# Of larger files, memory is given back while they are read. That takes an open file for each.
LARGE_BYTES = 16 << 20
SUM_BYTES = 16 << 20
# A name in a directory, on all file systems.
_MOST_NAME = 255
_PARTITION = re.compile(r"[0-9]{1,19}")
_MAGIC, _TRAILER = b"HWST", Struct("<4sI")
_READ_BYTES = 1 << 20
_ATTEMPT = re.compile(r"[A-Za-z0-9_-]{0,100}")

_SCHEMA = sqlite.Schema(
    """
CREATE TABLE IF NOT EXISTS commits (
    query  TEXT PRIMARY KEY,
    batch  INTEGER NOT NULL,
    first  INTEGER NOT NULL,
    count  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS intents (
    query  TEXT PRIMARY KEY,
    batch  INTEGER NOT NULL,
    since  INTEGER NOT NULL,
    files  TEXT NOT NULL
) WITHOUT ROWID;
""",
    {
        "commits": ("query", "batch", "first", "count"),
        "intents": ("query", "batch", "since", "files"),
    },
)

_IS_USED = "SELECT EXISTS (SELECT 1 FROM commits) OR EXISTS (SELECT 1 FROM intents)"


@dataclass(frozen=True, slots=True)
class Intent:
    query: str
    batch: int
    since: int  # its rows are at this offset or behind it
    files: tuple[Path, ...]

    @property
    def publisher(self) -> str:
        return f"{self.query}/{self.batch}"


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last batch of a query that is visible."""

    batch: int
    first: int
    count: int


class Stages:
    """Used by many threads; SQLite and the file system keep them apart."""

    def __init__(
        self,
        directory: Path,
        most_bytes: int = 16 << 30,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        """`begun` is called when a batch is about to be appended, by any thread."""
        self._directory = directory / "stages"
        self._path = directory / "flight.db"
        self._most_bytes = most_bytes
        self._begun = begun

    def lost(self, used: bool) -> str | None:
        """What an operator should know before anything else is asked, which would make a new
        file. `used`: there were batches, as is known from elsewhere."""
        there = self._path.exists()
        if there and self._path.stat().st_size:
            return None
        again = "each that was committed before can be committed once more"
        if used:
            return f"flight.db is missing or empty, and batches were noted in it: {again}"
        return f"flight.db is empty: if batches were noted in it, {again}" if there else None

    def check(self) -> bool:
        """Whether there are batches. Raises HeadwaterError if what was noted is damaged."""
        try:
            with self._reading() as database:
                _SCHEMA.check(database)
                (found,) = database.execute(_IS_USED).fetchone()
                return bool(found)
        except sqlite3.DatabaseError as error:
            raise HeadwaterError(
                f"{self._path} cannot be used: {error}. It holds the last batch of each query: "
                "bring it back from a copy, or move it away; then a batch that was committed "
                "before can be committed once more"
            ) from None

    def write(self, stage: Stage, batches: Iterator[Any], schema: Any) -> tuple[int, int]:
        """Keep rows aside; returns how many rows and bytes. They are on disk when this returns."""
        if not _ATTEMPT.fullmatch(stage.attempt):
            raise Refusal(Code.MALFORMED, "an attempt is made of letters, digits, _ and -")
        path = self._file(stage.query, stage.batch, str(stage.partition), stage.attempt)
        make_directories(path.parent)
        unfinished = path.with_suffix(f".{os.urandom(8).hex()}.part")
        rows, looked_at = 0, -LOOK_BYTES
        try:
            # A file of Arrow's: it is written without holding the interpreter.
            with (
                pa.OSFile(str(unfinished), "wb") as file,
                pa.ipc.new_stream(file, schema) as writer,
            ):
                for batch in batches:
                    writer.write_batch(batch)
                    rows += len(batch)
                    if file.tell() >= looked_at + LOOK_BYTES:
                        looked_at = file.tell()
                        self._check_room(looked_at)
            size = _finish(unfinished)
            unfinished.replace(path)
            sync_directory(path.parent)
        finally:
            unfinished.unlink(missing_ok=True)
        return rows, size

    def _check_room(self, size: int) -> None:
        """Refuse a stage that has so many bytes so far, if there is no room for more."""
        most = self._most_bytes
        if size > most:
            raise Refusal(
                Code.TOO_LARGE,
                f"these rows have more than {most} bytes (flight.staged_bytes); write them in "
                "smaller batches",
                limit="flight.staged_bytes",
            )
        if _bytes_below(self._directory) > most:
            raise Refusal(
                Code.UNAVAILABLE,
                f"rows that are not committed yet have {most} bytes already "
                "(flight.staged_bytes); try again when some of them are",
                limit="flight.staged_bytes",
            )

    def rows(self, files: tuple[Path, ...]) -> "StagedRows":
        """The record batches of staged files, in a fixed order. Reading them raises Refusal if one
        of them is damaged."""
        return StagedRows(files, self._directory)

    def committed(self, query: str) -> LastCommit | None:
        with self._reading() as database:
            row = database.execute(
                "SELECT batch, first, count FROM commits WHERE query = ?", (query,)
            ).fetchone()
        return None if row is None else LastCommit(*row)

    def begin(self, commit: Commit, end: int) -> tuple[Intent, bool]:
        """Note that a batch is about to be appended; and whether that was noted before."""
        with self._writing() as database:
            row = database.execute(
                "SELECT query, batch, since, files FROM intents WHERE query = ?", (commit.query,)
            ).fetchone()
            resumed = row is not None and row[1] == commit.batch
            if resumed:
                noted = self._intent(row)
                if all(file.is_file() for file in noted.files):
                    return noted, True
                end = noted.since  # its files are gone, and its rows were staged again
            files = self._named(commit)
            names = "\n".join(str(file.relative_to(self._directory)) for file in files)
            database.execute(
                "REPLACE INTO intents VALUES (?, ?, ?, ?)",
                (commit.query, commit.batch, end, names),
            )
        self._begun()
        return Intent(commit.query, commit.batch, end, files), resumed

    def intents(self) -> list[Intent]:
        """What a crash has interrupted."""
        with self._reading() as database:
            rows = database.execute("SELECT query, batch, since, files FROM intents").fetchall()
        return [self._intent(row) for row in rows]

    def finish(self, intent: Intent, first: int, count: int) -> None:
        with self._writing() as database:
            database.execute(
                "REPLACE INTO commits VALUES (?, ?, ?, ?)",
                (intent.query, intent.batch, first, count),
            )
            database.execute("DELETE FROM intents WHERE query = ?", (intent.query,))
        self.drop(intent.query, intent.batch)

    def forget(self, intent: Intent) -> None:
        """Nothing of it is in the log, and nothing will be."""
        with self._writing() as database:
            database.execute(
                "DELETE FROM intents WHERE query = ? AND batch = ?", (intent.query, intent.batch)
            )

    def drop(self, query: str, batch: int) -> None:
        """Remove the files of a batch, and of older ones that nobody committed."""
        folder = self._folder(query)
        for each in folder.glob("*"):
            if each.name.isdigit() and int(each.name) <= batch:
                shutil.rmtree(each, ignore_errors=True)
        with suppress(OSError):  # gone already, or others still use it
            folder.rmdir()

    def drop_abandoned(self, seconds: float = ABANDONED_SECONDS) -> int:
        """Remove stages that nobody has touched for long; returns how many."""
        kept = {file.parent for intent in self.intents() for file in intent.files}
        oldest, dropped = believed() - seconds, 0
        for folder in self._directory.glob("*/*"):
            if folder in kept or folder.stat().st_mtime > oldest:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            dropped += 1
        return dropped

    def _named(self, commit: Commit) -> tuple[Path, ...]:
        parts = sorted(commit.parts.items(), key=_by_number)
        files = tuple(self._file(commit.query, commit.batch, *part) for part in parts)
        for (partition, _), file in zip(parts, files, strict=True):
            if not file.exists():
                raise Refusal(
                    Code.NOT_FOUND,
                    f"partition {partition} of batch {commit.batch} of {commit.query} "
                    "was not staged, or its stage was dropped",
                )
        return files

    def _intent(self, row: tuple[str, int, int, str]) -> Intent:
        query, batch, since, names = row
        files = tuple(self._directory / name for name in names.splitlines())
        return Intent(query, batch, since, files)

    def _folder(self, query: str) -> Path:
        if not query or len(query) > 200:
            raise Refusal(Code.MALFORMED, "a query's name has 1 to 200 characters")
        name = quote(query, safe="")
        if len(name) > _MOST_NAME:  # of letters that take several bytes
            name = f"{name[:100]}%{hashlib.sha256(query.encode()).hexdigest()}"
        return self._directory / (f"%2E{name[1:]}" if name.startswith(".") else name)

    def _file(self, query: str, batch: int, partition: str, attempt: str) -> Path:
        if not _PARTITION.fullmatch(partition) or not _ATTEMPT.fullmatch(attempt):
            raise Refusal(Code.MALFORMED, "a part is a number and the attempt that counts")
        return self._folder(query) / str(batch) / f"{partition}.{attempt}.arrow"

    def _reading(self) -> "closing[sqlite3.Connection]":
        return closing(sqlite.connect_to_read(self._path, _SCHEMA, _PATIENCE_SECONDS))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A connection, and a transaction around what is done with it."""
        try:
            with closing(sqlite.connect(self._path, _SCHEMA, _PATIENCE_SECONDS)) as database:
                # What was noted must be there after a crash of the machine, too.
                database.execute("PRAGMA synchronous = FULL")
                with database:
                    yield database
                # An intent that were lost with the file beside the database, after its rows were
                # appended, would let them be appended again.
                sqlite.settle(database)
        except sqlite3.DatabaseError as error:
            raise LogUnavailable(f"flight.db cannot be written: {error}") from None


class StagedRows:
    """Rows in files that are mapped into memory: the system reads them when they are looked at."""

    def __init__(self, files: tuple[Path, ...], directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._mapped: list[mmap.mmap] = []

    def __iter__(self) -> Iterator[Any]:
        for path in self._files:
            content = self._content(path)
            stop = max(content.size - _TRAILER.size, 0)
            data = memoryview(content)
            if bytes(data[stop:]) != _TRAILER.pack(_MAGIC, self._sum(data[:stop])):
                raise Refusal(
                    Code.NOT_FOUND,
                    f"{path.relative_to(self._directory)} is damaged: stage it again",
                )
            with pa.ipc.open_stream(content.slice(0, stop)) as reader:
                yield from reader

    def _content(self, path: Path) -> Any:
        if path.stat().st_size < LARGE_BYTES:
            with pa.memory_map(str(path)) as source:
                return source.read_buffer()
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._mapped.append(mapped)
        return pa.py_buffer(mapped)

    def _sum(self, data: memoryview) -> int:
        crc = 0
        for at in range(0, len(data), SUM_BYTES):
            crc = crc32c(data[at : at + SUM_BYTES], crc)
            self.let_go()
        return crc

    def let_go(self) -> None:
        """Give back the memory of what was looked at. Whoever looks again finds it again."""
        for mapped in self._mapped:
            mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> bool:
        """Whether nobody uses them any more. The system then has a deleted file to forget, which
        can take a while: a thread should do this, and not the event loop."""
        while self._mapped:
            try:
                self._mapped[-1].close()
            except BufferError:  # subscribers that are a little behind still read it
                return False
            self._mapped.pop()
        return True


def _sum_of(file: IO[bytes]) -> int:
    """The checksum of all that was written so far."""
    crc = file.seek(0)
    while data := file.read(_READ_BYTES):
        crc = crc32c(data, crc)
    return crc


def stage_of(append: Append) -> tuple[Stage, Commit]:
    """An append in one step is a batch of one part."""
    query = f"producer/{append.producer}"
    return Stage(query, append.sequence, 0), Commit(query, append.sequence, {"0": ""})


def _finish(path: Path) -> int:
    """Put the checksum behind the rows, and have the file on the disk; returns its size."""
    with path.open("r+b") as file:
        file.write(_TRAILER.pack(_MAGIC, _sum_of(file)))
        file.flush()
        os.fdatasync(file.fileno())
        return file.tell()


def _bytes_below(directory: Path) -> int:
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # gone a moment ago
                total += os.stat(os.path.join(folder, name)).st_size
    return total


def _by_number(part: tuple[str, str]) -> int:
    return int(part[0]) if _PARTITION.fullmatch(part[0]) else -1
