"""The apps that were made with `headwater app add`, in the broker's state.db.

Whoever makes an app has its secret shown once. The broker must be able to read it, because clients
do not send it but sign with it; so the file is for its owner only.

The broker and commands may use this at the same time: each call has a connection of its own, and
waits for the others.
"""

import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater import sqlite
from headwater.actions import APP_ROLE
from headwater.errors import HeadwaterError
from headwater.files import make_private
from headwater.identity.users import parse_role
from headwater.units import is_client_id

FILE = "state.db"

_SCHEMA = sqlite.Schema(
    """
CREATE TABLE IF NOT EXISTS apps (
    client_id     TEXT PRIMARY KEY,
    client_secret TEXT NOT NULL,
    created       INTEGER  -- microseconds since 1970
);
CREATE TABLE IF NOT EXISTS app_roles (
    client_id  TEXT PRIMARY KEY,
    protocol   TEXT NOT NULL,
    role       TEXT NOT NULL
);
""",
    {
        "apps": ("client_id", "client_secret", "created"),
        "app_roles": ("client_id", "protocol", "role"),
    },
)
_PATIENCE_SECONDS = 10.0
Connect = Callable[[Path, sqlite.Schema, float], sqlite3.Connection]
# SQLite keeps what was written last in files of its own.
_SUFFIXES = ("", "-wal", "-shm")


@dataclass(frozen=True, slots=True)
class App:
    client_id: str
    client_secret: str = field(repr=False)
    created: int
    protocol: str = ""
    role: str = APP_ROLE

    def summary(self) -> dict[str, Any]:
        """All but the secret."""
        return {
            "client_id": self.client_id,
            "created": self.created,
            "protocol": self.protocol,
            "role": self.role,
        }


class Apps:
    """`path` is that of state.db. It is created by the first `add`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def list(self) -> list[App]:
        if not self._path.exists():
            return []
        with self._open(sqlite.connect_to_read) as database:
            # Those of an earlier version have no role.
            rows = database.execute(
                "SELECT client_id, client_secret, created, coalesce(protocol, ''), "
                "coalesce(role, ?) FROM apps LEFT JOIN app_roles USING (client_id) "
                "ORDER BY client_id",
                (APP_ROLE,),
            )
            return [App(*row) for row in rows]

    def add(self, name: str, protocol: str = "", role: str = APP_ROLE) -> str:
        """Make an app, and return its secret."""
        if not is_client_id(name):
            raise HeadwaterError(
                f'"{name}" cannot be the name of an app: 1 to 64 letters, digits, "_", "." and "-"'
            )
        secret = secrets.token_hex(16)
        self._keep_private()
        with self._open() as database:
            try:
                created = time.time_ns() // 1000
                database.execute("INSERT INTO apps VALUES (?, ?, ?)", (name, secret, created))
                about = (name, protocol, parse_role(role))
                database.execute("REPLACE INTO app_roles VALUES (?, ?, ?)", about)
            except sqlite3.IntegrityError:
                raise HeadwaterError(
                    f'there is an app "{name}" already; '
                    f"'headwater app remove {name}' removes it, to make it anew"
                ) from None
        return secret

    def remove(self, name: str) -> None:
        if not self._path.exists() or not self._delete(name):
            names = ", ".join(app.client_id for app in self.list())
            known = f"there are {names}" if names else "there are none"
            raise HeadwaterError(f'there is no app "{name}" to remove; {known}')

    def _delete(self, name: str) -> bool:
        with self._open() as database:
            database.execute("DELETE FROM app_roles WHERE client_id = ?", (name,))
            return database.execute("DELETE FROM apps WHERE client_id = ?", (name,)).rowcount > 0

    @contextmanager
    def _open(self, connect: Connect = sqlite.connect) -> Iterator[sqlite3.Connection]:
        """A connection, and a transaction around what is done with it."""
        try:
            with closing(connect(self._path, _SCHEMA, _PATIENCE_SECONDS)) as database:
                _SCHEMA.check(database)
                with database:
                    yield database
                if database.total_changes:
                    sqlite.settle(database)
        except sqlite3.Error as error:
            raise HeadwaterError(f"cannot use {self._path}: {error}") from None

    def _keep_private(self) -> None:
        """Before there is a secret in it: the file is for nobody but its owner."""
        make_private(self._path.parent)
        with suppress(FileExistsError):
            # Only if it is not there: to close a file ends all locks that SQLite has on it in this
            # process, through other connections too.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        for suffix in _SUFFIXES:
            with suppress(FileNotFoundError):
                os.chmod(f"{self._path}{suffix}", 0o600)
