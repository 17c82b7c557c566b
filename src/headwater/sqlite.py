"""SQLite on a disk that may be full.

Beside a database in WAL mode SQLite keeps two files. The first connection makes them and the last
one removes them; so where there is no room for them, the database cannot even be read. But a
broker with a full disk must be good for reading.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

# As a URL, for a file that exists: with the two files if a crash has left them, else without.
_WAYS = ("mode=ro", "immutable=1")


def lacks_room(error: sqlite3.Error) -> bool:
    """Whether SQLite could not write, or not make a file; it seldom says why."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


def connect(path: Path, schema: str, patience: float) -> sqlite3.Connection:
    """A connection to a database with these tables; they are made if it has none. `patience`: for
    how many seconds it waits for others."""
    database = sqlite3.connect(path, timeout=patience)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(schema)
    except sqlite3.Error:
        database.close()
        raise
    return database


def connect_to_read(path: Path, schema: str, patience: float) -> sqlite3.Connection:
    """The same; where it cannot be had because the disk is full, to a copy in memory."""
    try:
        return connect(path, schema, patience)
    except sqlite3.OperationalError as error:
        if not lacks_room(error):
            raise
    copy = copy_in_memory(path)
    copy.executescript(schema)
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
            if way == _WAYS[-1] or not lacks_room(error):
                raise
    return copy
