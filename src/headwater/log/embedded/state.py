"""Small state that changes in place, in SQLite: where durable subscriptions and queues are."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cursors (
    name     TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS queues (
    name     TEXT PRIMARY KEY,
    content  BLOB NOT NULL
);
"""


class StateDatabase:
    """Opened in one thread, used by another, never by two at once."""

    def __init__(self, path: Path) -> None:
        path.touch(mode=0o600)  # it may hold secrets of clients
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        # Survives a crash of the broker; of the machine, all but the last moments.
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)

    def cursors(self) -> dict[str, int]:
        return dict(self._database.execute("SELECT name, position FROM cursors"))

    def queues(self) -> dict[str, bytes]:
        return dict(self._database.execute("SELECT name, content FROM queues"))

    def save(
        self, cursors: Mapping[str, int], queues: Mapping[str, bytes], sync: bool = False
    ) -> None:
        """`sync`: it survives a crash of the machine as well."""
        self._database.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        with self._database:
            self._database.execute("BEGIN")
            self._database.executemany("REPLACE INTO cursors VALUES (?, ?)", cursors.items())
            self._database.executemany("REPLACE INTO queues VALUES (?, ?)", queues.items())

    def close(self) -> None:
        self._database.close()
