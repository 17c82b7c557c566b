"""Small state that changes in place, in SQLite: the positions of durable subscriptions.

Positions change with every proof of delivery, so they are gathered in memory and written a few
times a second. What a crash takes with it is delivered again.
"""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cursors (
    name     TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) WITHOUT ROWID;
"""


class State:
    """Opened in one thread, used by another, never by two at once."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        # Survives a crash of the broker; of the machine, all but the last moments.
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(_SCHEMA)

    def cursors(self) -> dict[str, int]:
        return dict(self._database.execute("SELECT name, position FROM cursors"))

    def save_cursors(self, cursors: Mapping[str, int]) -> None:
        with self._database:
            self._database.execute("BEGIN")
            self._database.executemany("REPLACE INTO cursors VALUES (?, ?)", cursors.items())

    def close(self) -> None:
        self._database.close()
