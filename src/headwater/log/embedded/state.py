"""Small state that changes in place, in SQLite: where durable subscriptions and queues are.

It belongs to one log, whose identity it knows: positions mean nothing in another one.
"""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from headwater import sqlite
from headwater.errors import LogError

_SCHEMA = sqlite.Schema(
    """
CREATE TABLE IF NOT EXISTS cursors (
    name     TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS numbers (
    name     TEXT PRIMARY KEY,
    value    INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues (
    name     TEXT PRIMARY KEY,
    content  BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS log (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    identity INTEGER NOT NULL
);
""",
    {
        "cursors": ("name", "position"),
        "numbers": ("name", "value"),
        "queues": ("name", "content"),
        "log": ("id", "identity"),
    },
)


class StateDatabase:
    """Opened in one thread, used by another, never by two at once.

    Where it cannot be opened because the disk is full, it works on a copy in memory, and `save`
    tries to open it again.
    """

    def __init__(self, path: Path, identity: int, end: int) -> None:
        self._path, self._identity, self._end = path, identity, end
        #: What an operator should know: what was remembered did not fit the log.
        self.warning: str | None = None
        #: Why it could not be opened for writing.
        self.fault: str | None = None
        try:
            self._database = self._open_somehow()
        except sqlite3.DatabaseError as error:
            raise LogError(
                f"{path} cannot be used: {error}. It holds the positions of subscriptions and "
                "queues, and apps: bring it back from a copy, or move it away to begin without"
            ) from error

    def _open_somehow(self) -> sqlite3.Connection:
        try:
            return self._open()
        except sqlite3.DatabaseError as error:
            if not sqlite.lacks_room(error):
                raise
            self.fault = str(error)
        copy = sqlite.copy_in_memory(self._path)
        self._prepare(copy)
        return copy

    def _open(self) -> sqlite3.Connection:
        self._path.touch(mode=0o600)  # it may hold secrets of clients
        database = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        with sqlite.closed_on_error(database):
            database.execute("PRAGMA journal_mode = WAL")
            # Survives a crash of the broker; of the machine, all but the last moments.
            database.execute("PRAGMA synchronous = NORMAL")
            self._prepare(database)
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        fresh = not _one(database, "SELECT count(*) FROM sqlite_master WHERE name = 'cursors'")
        _SCHEMA.apply(database)
        _SCHEMA.check(database)
        if fresh:
            what = "state.db is missing or empty, and the log is not: "
            lost = "positions of durable subscriptions and queues are lost, and apps with them"
            self.warning = what + lost if self._end else None
        else:
            self._fit(database)
        database.execute("REPLACE INTO log VALUES (1, ?)", (self._identity,))

    def _fit(self, database: sqlite3.Connection) -> None:
        """Set back what does not fit the log."""
        if _one(database, "SELECT identity FROM log") not in (None, self._identity):
            for table in ("cursors", "queues", "numbers"):
                database.execute(f"DELETE FROM {table}")
            what = "state.db was made for another log: "
            lost = "its positions of durable subscriptions and queues do not count"
            self.warning = what + lost
            return
        end = self._end
        if beyond := _one(database, f"SELECT count(*) FROM cursors WHERE position > {end}"):
            database.execute("UPDATE cursors SET position = ? WHERE position > ?", (end, end))
            what = f"positions beyond the end of the log were set back to it: {beyond}. "
            self.warning = what + "Messages that were not synced before a crash are lost"

    def cursors(self) -> dict[str, int]:
        return dict(self._database.execute("SELECT name, position FROM cursors"))

    def numbers(self) -> dict[str, int]:
        return dict(self._database.execute("SELECT name, value FROM numbers"))

    def queues(self) -> dict[str, bytes]:
        return dict(self._database.execute("SELECT name, content FROM queues"))

    def save(
        self,
        cursors: Mapping[str, int],
        numbers: Mapping[str, int],
        queues: Mapping[str, bytes | None],
        sync: bool = False,
    ) -> None:
        """A queue without content is deleted. `sync`: survives a crash of the machine as well."""
        if self.fault is not None:
            self._database = self._open()
            self.fault = None
        self._database.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        with self._database:
            self._database.execute("BEGIN")
            self._database.executemany("REPLACE INTO cursors VALUES (?, ?)", cursors.items())
            self._database.executemany("REPLACE INTO numbers VALUES (?, ?)", numbers.items())
            kept = ((name, content) for name, content in queues.items() if content is not None)
            self._database.executemany("REPLACE INTO queues VALUES (?, ?)", kept)
            deleted = ((name,) for name, content in queues.items() if content is None)
            self._database.executemany("DELETE FROM queues WHERE name = ?", deleted)
        if sync:
            sqlite.settle(self._database)

    def close(self) -> None:
        self._database.close()


def _one(database: sqlite3.Connection, query: str) -> int | None:
    row = database.execute(query).fetchone()
    return None if row is None else int(row[0])
