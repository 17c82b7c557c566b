"""SQLite on a disk that may be full, or damaged.

Beside a database in WAL mode SQLite keeps two files. The first connection makes them and the last
one removes them; so where there is no room for them, the database cannot even be read. But a
broker with a full disk must be good for reading.

SQLite has no checksums of its own: a bit that is flipped in a row is another value. So the table
`sums` has the sum of the checksums of all rows of each table, which triggers keep; what does not
fit was not written by us.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from crc32c import crc32c

# As a URL, for a file that exists: with the two files if a crash has left them, else without.
_WAYS = ("mode=ro", "immutable=1")


_SUMS = """
CREATE TABLE IF NOT EXISTS sums (
    name  TEXT PRIMARY KEY,
    sum   INTEGER NOT NULL
) WITHOUT ROWID;
"""
_TRIGGER = """CREATE TRIGGER IF NOT EXISTS {name} AFTER {event} ON {table} BEGIN
UPDATE sums SET sum = sum {change} WHERE name = '{table}';
END"""
_CHANGES = {"insert": "+ {new}", "delete": "- {old}", "update": "- {old} + {new}"}


@dataclass(frozen=True, slots=True)
class Schema:
    """Tables, made by statements that do nothing where they exist, and the columns of each."""

    statements: str
    tables: Mapping[str, tuple[str, ...]]

    def apply(self, database: sqlite3.Connection) -> None:
        """For each connection, before it is used."""
        database.create_function("row_sum", -1, _row_sum, deterministic=True)
        database.execute("PRAGMA recursive_triggers = ON")  # or REPLACE would delete unseen
        triggers = ";\n".join(self._triggers().values())
        database.executescript(f"{self.statements}{_SUMS}{triggers};")
        known = {name for (name,) in database.execute("SELECT name FROM sums")}
        if new := self.tables.keys() - known:  # or of an earlier version
            with _transaction(database, "IMMEDIATE"):  # nobody writes between the two
                for table in new:
                    added = self._sum(database, table)
                    database.execute("INSERT OR IGNORE INTO sums VALUES (?, ?)", added)

    def check(self, database: sqlite3.Connection) -> None:
        """Raises DatabaseError if something is not as it was written. Reads all of it."""
        with _transaction(database):  # what others write meanwhile would not fit the sums
            self._check(database)

    def _check(self, database: sqlite3.Connection) -> None:
        (found,) = database.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(f"it is damaged ({found})")
        there = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
        for name, statement in self._triggers().items():
            if there.get(name) != statement.replace("IF NOT EXISTS ", ""):
                raise sqlite3.DatabaseError(f"it is damaged (in its trigger {name})")
        sums = dict(database.execute("SELECT name, sum FROM sums"))
        for table in self.tables:
            if sums.get(table) != self._sum(database, table)[1]:
                raise sqlite3.DatabaseError(f"it is damaged (in its table {table})")

    def _sum(self, database: sqlite3.Connection, table: str) -> tuple[str, int]:
        columns = ", ".join(self.tables[table])
        query = f"SELECT coalesce(sum(row_sum({columns})), 0) FROM {table}"
        return table, database.execute(query).fetchone()[0]

    def _triggers(self) -> dict[str, str]:
        made = {}
        for table, columns in self.tables.items():
            new, old = (
                f"row_sum({', '.join(f'{row}.{column}' for column in columns)})"
                for row in ("NEW", "OLD")
            )
            for event, change in _CHANGES.items():
                name, text = f"{table}_{event}", change.format(new=new, old=old)
                made[name] = _TRIGGER.format(name=name, event=event, table=table, change=text)
        return made


@contextmanager
def _transaction(database: sqlite3.Connection, kind: str = "") -> Iterator[None]:
    database.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        database.rollback()
        raise
    database.commit()


def _row_sum(*values: object) -> int:
    crc = 0
    for value in values:
        data = value if isinstance(value, bytes) else str(value).encode()
        crc = crc32c(b"%b%d " % (type(value).__name__.encode(), len(data)), crc)
        crc = crc32c(data, crc)
    return crc


def lacks_room(error: sqlite3.Error) -> bool:
    """Whether SQLite could not write, or not make a file; it seldom says why."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def connect(path: Path, schema: Schema, patience: float) -> sqlite3.Connection:
    """A connection to a database with these tables; they are made if it has none. `patience`: for
    how many seconds it waits for others."""
    database = sqlite3.connect(path, timeout=patience)
    with closed_on_error(database):
        database.execute("PRAGMA journal_mode = WAL")
        schema.apply(database)
    return database


@contextmanager
def closed_on_error(database: sqlite3.Connection) -> Iterator[None]:
    """Around what is done first with a connection."""
    try:
        yield
    except UnicodeDecodeError:  # of an error that tells what it has found in there
        database.close()
        raise sqlite3.DatabaseError("it is damaged (in its schema)") from None
    except sqlite3.Error:
        database.close()
        raise


def connect_to_read(path: Path, schema: Schema, patience: float) -> sqlite3.Connection:
    """The same; where it cannot be had because the disk is full, to a copy in memory."""
    try:
        return connect(path, schema, patience)
    except sqlite3.OperationalError as error:
        if not lacks_room(error):
            raise
    copy = copy_in_memory(path)
    schema.apply(copy)
    return copy


def copy_in_memory(path: Path) -> sqlite3.Connection:
    """What the database holds, as far as it can be read; nothing if there is none."""
    copy = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
    for way in _WAYS if path.exists() else ():
        try:
            with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True)) as source:
                source.backup(copy)
                break
        except sqlite3.OperationalError as error:
            unfinished = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_READONLY
            if way == _WAYS[-1] or not (unfinished or lacks_room(error)):
                raise  # with the first way, what a crash left unfinished cannot be taken back
    return copy


def settle(database: sqlite3.Connection) -> None:
    """Have what was written in the database itself, and not in the file beside it: of that one,
    SQLite takes what is damaged for what was never written. Others, or a full disk, may be in the
    way; then it stays where it is."""
    with suppress(sqlite3.OperationalError):
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
