"""Small state that changes in place, in SQLite: where durable subscriptions and queues are.

It belongs to one log, whose identity it knows: positions mean nothing in another one.
"""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from headwater.errors import LogError

_SCHEMA = """
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
"""


class StateDatabase:
    """Opened in one thread, used by another, never by two at once."""

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)  # it may hold secrets of clients
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            self._prepare()
        except sqlite3.DatabaseError as error:
            raise LogError(
                f"{path} cannot be used: {error}. It holds the positions of subscriptions and "
                "queues, and apps: bring it back from a copy, or move it away to begin without"
            ) from error

    def _prepare(self) -> None:
        self._database.execute("PRAGMA journal_mode = WAL")
        # Survives a crash of the broker; of the machine, all but the last moments.
        self._database.execute("PRAGMA synchronous = NORMAL")
        #: Nobody has ever noted a position in it.
        self._fresh = not self._one("SELECT count(*) FROM sqlite_master WHERE name = 'cursors'")
        self._database.executescript(_SCHEMA)

    def _one(self, query: str) -> int | None:
        row = self._database.execute(query).fetchone()
        return None if row is None else int(row[0])

    def fit(self, identity: int, end: int) -> str | None:
        """Set back what does not fit the log; returns what an operator should know about that."""
        known = self._one("SELECT identity FROM log")
        self._database.execute("REPLACE INTO log VALUES (1, ?)", (identity,))
        if self._fresh:
            what = "state.db is missing or empty, and the log is not: "
            lost = "positions of durable subscriptions and queues are lost, and apps with them"
            return what + lost if end else None
        if known not in (None, identity):
            for table in ("cursors", "queues", "numbers"):
                self._database.execute(f"DELETE FROM {table}")
            what = "state.db was made for another log: "
            return what + "its positions of durable subscriptions and queues do not count"
        beyond = self._one(f"SELECT count(*) FROM cursors WHERE position > {end}")
        self._database.execute("UPDATE cursors SET position = ? WHERE position > ?", (end, end))
        if beyond:
            what = f"positions beyond the end of the log were set back to it: {beyond}. "
            return what + "Messages that were not synced before a crash are lost"
        return None

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
        queues: Mapping[str, bytes],
        sync: bool = False,
    ) -> None:
        """`sync`: it survives a crash of the machine as well."""
        self._database.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        with self._database:
            self._database.execute("BEGIN")
            self._database.executemany("REPLACE INTO cursors VALUES (?, ?)", cursors.items())
            self._database.executemany("REPLACE INTO numbers VALUES (?, ?)", numbers.items())
            self._database.executemany("REPLACE INTO queues VALUES (?, ?)", queues.items())

    def close(self) -> None:
        self._database.close()
