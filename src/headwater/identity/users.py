"""Who may use the console and its API: names, roles, passwords and tokens.

    users.json    {"alice": {"role": "operator", "created": …, "password": "…", "tokens": […]},
                   "$crc32c": "…"}

Passwords are kept as scrypt, tokens as SHA-256: they are long and random, so nobody can guess them.
The file is for its owner only and is replaced as a whole. Its checksum tells when a bit of it was
flipped; who changes it by hand takes that line out. Commands and the console may change it at
the same time.
"""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from crc32c import crc32c

from headwater.errors import Code, HeadwaterError, Refusal
from headwater.files import sync_directory
from headwater.units import is_client_id

FILE = "users.json"
TOKEN_PREFIX = "hw_"
LEAST_PASSWORD = 8
MOST_PASSWORD = 1024

#: No user has such a name.
_SUM = "$crc32c"
# About 50 ms and 16 MiB for each attempt.
_N, _R, _P = 2**14, 8, 1


class Role(IntEnum):
    """Each one may do what those before it may."""

    viewer = 1  # sees everything except message content
    reader = 2  # sees messages
    operator = 3  # publishes, redrives, closes, and manages users


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: Role
    created: int  # microseconds since 1970
    password: str | None = field(default=None, repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)

    def as_dict(self) -> dict[str, Any]:
        return {
            "role": self.role.name,
            "created": self.created,
            "password": self.password,
            "tokens": list(self.tokens),
        }

    @classmethod
    def read(cls, name: str, content: dict[str, Any]) -> "User":
        return cls(
            name,
            Role[content["role"]],
            content["created"],
            content["password"],
            tuple(content["tokens"]),
        )


class Users:
    """`path` is that of users.json. It is created by the first `add`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> dict[str, User]:
        try:
            content = json.loads(self._path.read_bytes())
            if content.pop(_SUM, None) not in (None, _sum_of(content)):
                raise ValueError("something has changed in it")
            return {name: User.read(name, each) for name, each in content.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise HeadwaterError(
                f"{self._path} cannot be read: it is damaged, or was changed by hand; "
                "repair or remove it"
            ) from None

    @property
    def version(self) -> tuple[int, ...]:
        """Changes when the file does, also twice within one tick of the file system's clock: it is
        another file each time."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return ()
        return found.st_mtime_ns, found.st_ino, found.st_size

    def add(self, name: str, role: str, password: str | None = None) -> User:
        if not is_client_id(name):
            raise Refusal(
                Code.MALFORMED,
                f'"{name}" cannot be the name of a user: 1 to 64 letters, digits, "_", "." and "-"',
            )
        user = User(
            name,
            parse_role(role),
            time.time_ns() // 1000,
            None if password is None else _scrypt(_checked(password), secrets.token_bytes(16)),
        )
        with self._changing() as users:
            if name in users:
                raise Refusal(Code.ALREADY_EXISTS, f'there is a user "{name}" already')
            users[name] = user
        return user

    def remove(self, name: str) -> None:
        with self._changing() as users:
            del users[self._known(users, name)]

    def add_token(self, name: str) -> str:
        """Create a token for a user. Only its hash is kept, so it can be shown only once."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        with self._changing() as users:
            user = users[self._known(users, name)]
            users[name] = replace(user, tokens=(*user.tokens, _hash(token)))
        return token

    def _known(self, users: dict[str, User], name: str) -> str:
        if name not in users:
            known = f"there are {', '.join(sorted(users))}" if users else "there are none"
            raise Refusal(Code.NOT_FOUND, f'there is no user "{name}"; {known}')
        return name

    @contextmanager
    def _changing(self) -> Iterator[dict[str, User]]:
        """All users, to be changed; they are written when the block ends well."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            users = self.all()
            yield users
            self._write(users)
        finally:
            os.close(lock)

    def _write(self, users: dict[str, User]) -> None:
        temporary = f"{self._path}.new"
        named = {name: user.as_dict() for name, user in users.items()}
        content = json.dumps(named | {_SUM: _sum_of(named)}, indent=2)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:
            file.write(content + "\n")
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, self._path)
        sync_directory(self._path.parent)


def _sum_of(content: dict[str, Any]) -> str:
    return f"{crc32c(json.dumps(content, sort_keys=True).encode()):08x}"


def parse_role(text: str) -> Role:
    try:
        return Role[text]
    except KeyError:
        names = ", ".join(role.name for role in Role)
        raise Refusal(Code.MALFORMED, f'a role is one of {names}, not "{text}"') from None


def is_password_of(user: User | None, password: str) -> bool:
    """Takes as long when there is no such user, so that nobody learns who is."""
    kept = user.password if user is not None and user.password is not None else _NOBODYS
    salt = bytes.fromhex(kept.split("$")[1])
    return hmac.compare_digest(_scrypt(password, salt), kept) and kept != _NOBODYS


def holder_of(users: dict[str, User], token: str) -> User | None:
    """Whose token this is."""
    wanted = _hash(token)
    for user in users.values():
        if any(hmac.compare_digest(wanted, each) for each in user.tokens):
            return user
    return None


def _checked(password: str) -> str:
    if not LEAST_PASSWORD <= len(password) <= MOST_PASSWORD:
        raise Refusal(
            Code.MALFORMED, f"a password has {LEAST_PASSWORD} to {MOST_PASSWORD} characters"
        )
    return password


def _scrypt(password: str, salt: bytes) -> str:
    content = password.encode(errors="surrogatepass")
    made = hashlib.scrypt(content, salt=salt, n=_N, r=_R, p=_P, maxmem=64 << 20)
    return f"scrypt${salt.hex()}${made.hex()}"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


_NOBODYS = f"scrypt${bytes(16).hex()}${bytes(64).hex()}"
