"""Users: people and programs that have a name, a role, and a password or tokens.

    users.json    {"alice": {"role": "operator", "created": …, "password": "…", "tokens": […]},
                   "$crc32c": "…"}

Passwords are kept as scrypt, tokens as SHA-256: they are long and random, so nobody can guess them.
Commands and the console may change the file at the same time; the broker notices.

A role says what its users may see and do in the console, and rules (`rules.py`) may be for a role.
Whoever has a role that is none of those below has what rules allow it, and no console.
"""

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

from headwater.errors import Code, Refusal
from headwater.identity.kept_file import KeptFile
from headwater.units import is_client_id

FILE = "users.json"
TOKEN_PREFIX = "hw_"
LEAST_PASSWORD = 8
MOST_PASSWORD = 1024

#: No user has such a name.
# About 50 ms and 16 MiB for each attempt.
_N, _R, _P = 2**14, 8, 1


class Role(IntEnum):
    """What a user may do in the console. Each one may do what those before it may."""

    client = 0  # nothing there: it connects by a protocol
    viewer = 1  # sees everything except message content
    reader = 2  # sees messages
    operator = 3  # publishes, redrives, closes, and manages users


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: str
    created: int  # microseconds since 1970
    password: str | None = field(default=None, repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)

    @property
    def level(self) -> Role:
        """What the role means in the console."""
        return Role.__members__.get(self.role, Role.client)

    def as_dict(self) -> dict[str, Any]:
        return {
            "role": self.role,
            "created": self.created,
            "password": self.password,
            "tokens": list(self.tokens),
        }

    @classmethod
    def read(cls, name: str, content: dict[str, Any]) -> "User":
        user = cls(
            name,
            content["role"],
            content["created"],
            content["password"],
            tuple(content["tokens"]),
        )
        if not is_client_id(name) or not is_client_id(user.role):
            raise ValueError(name)
        if not isinstance(user.created, int) or not all(isinstance(x, str) for x in user.tokens):
            raise ValueError(name)
        if user.password is not None:
            _salt_of(user.password)
        return user


class Users:
    """`path` is that of users.json. It is created by the first `add`."""

    def __init__(self, path: Path) -> None:
        self._file: KeptFile[dict[str, User]] = KeptFile(
            path,
            read=lambda content: {name: User.read(name, each) for name, each in content.items()},
            write=lambda users: {name: user.as_dict() for name, user in users.items()},
            nothing=dict,
        )

    def all(self) -> dict[str, User]:
        return self._file.load()

    @property
    def version(self) -> tuple[int, ...]:
        """Changes when the users do."""
        return self._file.version

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
            None if password is None else _kept(password),
        )
        with self._file.changing() as users:
            if name in users:
                raise Refusal(Code.ALREADY_EXISTS, f'there is a user "{name}" already')
            users[name] = user
        return user

    def change(self, name: str, *, role: str | None = None, password: str | None = None) -> User:
        """Give a user another role, another password, or both."""
        kept = None if password is None else _kept(password)
        with self._file.changing() as users:
            user = users[self._known(users, name)]
            if role is not None:
                user = replace(user, role=parse_role(role))
            if kept is not None:
                user = replace(user, password=kept)
            users[name] = user
        return user

    def remove(self, name: str) -> None:
        with self._file.changing() as users:
            del users[self._known(users, name)]

    def add_token(self, name: str) -> str:
        """Create a token for a user. Only its hash is kept, so it can be shown only once."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        with self._file.changing() as users:
            user = users[self._known(users, name)]
            users[name] = replace(user, tokens=(*user.tokens, _hash(token)))
        return token

    def remove_tokens(self, name: str) -> int:
        """No token of this user is valid any more; returns how many there were."""
        with self._file.changing() as users:
            user = users[self._known(users, name)]
            users[name] = replace(user, tokens=())
        return len(user.tokens)

    def _known(self, users: dict[str, User], name: str) -> str:
        if name not in users:
            known = f"there are {', '.join(sorted(users))}" if users else "there are none"
            raise Refusal(Code.NOT_FOUND, f'there is no user "{name}"; {known}')
        return name


def parse_role(text: str) -> str:
    if not is_client_id(text):
        names = ", ".join(role.name for role in Role)
        raise Refusal(
            Code.MALFORMED,
            f'a role is one of {names}, or one of your own (letters, digits, "_", "." and "-"), '
            f'not "{text}"',
        )
    return text


def is_password_of(user: User | None, password: str) -> bool:
    """Takes as long when there is no such user, so that nobody learns who is."""
    kept = user.password if user is not None and user.password is not None else _NOBODYS
    return hmac.compare_digest(_scrypt(password, _salt_of(kept)), kept) and kept != _NOBODYS


def is_token_of(user: User | None, token: str) -> bool:
    return user is not None and holder_of({user.name: user}, token) is not None


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


def _kept(password: str) -> str:
    return _scrypt(_checked(password), secrets.token_bytes(16))


def _salt_of(kept: str) -> bytes:
    kind, salt, made = kept.split("$")
    if kind != "scrypt" or not made:
        raise ValueError(kind)
    return bytes.fromhex(salt)


def _scrypt(password: str, salt: bytes) -> str:
    content = password.encode(errors="surrogatepass")
    made = hashlib.scrypt(content, salt=salt, n=_N, r=_R, p=_P, maxmem=64 << 20)
    return f"scrypt${salt.hex()}${made.hex()}"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


_NOBODYS = f"scrypt${bytes(16).hex()}${bytes(64).hex()}"
