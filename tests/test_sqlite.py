"""What SQLite would not notice: a value in a row that is another one, a row that is gone."""

import sqlite3
import threading
from pathlib import Path

import pytest

from headwater import sqlite

SCHEMA = sqlite.Schema(
    "CREATE TABLE IF NOT EXISTS t (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID;",
    {"t": ("name", "value")},
)


def opened(path: Path) -> sqlite3.Connection:
    return sqlite.connect(path, SCHEMA, 1.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with opened(tmp_path / "db") as database:
        database.execute("INSERT INTO t VALUES ('a', 1), ('b', 2), ('c', 3)")
        database.execute("REPLACE INTO t VALUES ('b', 4)")
        database.execute("UPDATE t SET value = 5 WHERE name = 'c'")
        database.execute("DELETE FROM t WHERE name = 'a'")
    database.close()
    return tmp_path / "db"


def test_what_was_written_fits(path: Path) -> None:
    database = opened(path)
    SCHEMA.check(database)
    assert database.execute("SELECT * FROM t").fetchall() == [("b", 4), ("c", 5)]
    database.close()


@pytest.mark.parametrize("unseen", ["UPDATE t SET value = 6", "DELETE FROM t WHERE name = 'b'"])
def test_what_was_changed_behind_our_back_does_not(path: Path, unseen: str) -> None:
    database = opened(path)
    database.execute("DROP TRIGGER t_update")
    database.execute("DROP TRIGGER t_delete")
    database.execute(unseen)
    database.commit()
    database.close()
    database = opened(path)
    with pytest.raises(sqlite3.DatabaseError, match="in its table t"):
        SCHEMA.check(database)
    database.close()


def test_every_flipped_bit_is_noticed_or_changes_nothing(path: Path) -> None:
    content = path.read_bytes()
    refused = 0
    for position in range(0, len(content), 7):
        for bit in (1, 128):
            damaged = path.with_name("damaged")
            damaged.write_bytes(
                content[:position] + bytes([content[position] ^ bit]) + content[position + 1 :]
            )
            try:
                database = opened(damaged)
            except sqlite3.DatabaseError:
                refused += 1
                continue
            try:
                SCHEMA.check(database)
                found = database.execute("SELECT * FROM t").fetchall()
                assert found == [("b", 4), ("c", 5)], position
            except sqlite3.DatabaseError:
                refused += 1
            finally:
                database.close()
    assert refused > 50


def test_tables_of_an_earlier_version_are_taken_as_they_are(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as plain:
        plain.executescript(SCHEMA.statements)
        plain.execute("INSERT INTO t VALUES ('a', 1)")
    plain.close()
    database = opened(tmp_path / "db")
    SCHEMA.check(database)
    database.close()


def test_others_may_write_while_it_is_checked(path: Path) -> None:
    """What comes between two reads of a check must not look like damage."""
    stop = threading.Event()

    def write() -> None:
        database = opened(path)
        number = 0
        while not stop.is_set():
            number += 1
            with database:
                database.execute("REPLACE INTO t VALUES (?, ?)", (f"n{number % 50}", number))
        database.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        database = opened(path)
        for _ in range(300):
            SCHEMA.check(database)
        database.close()
    finally:
        stop.set()
        writer.join()
