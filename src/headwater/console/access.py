"""Who asks, and what they may do.

A listener that only this machine can reach (or that is said to be for anyone), without any user,
lets everyone be an operator.
Otherwise a request needs a token (`Authorization: Bearer hw_…`) or a session, which a login begins.
Sessions live in memory: they end with the process, after some hours, or with a logout. A user that
was removed is out at once, and nobody who is given the same name later has the old sessions.
"""

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass

from fastapi import Request

from headwater.console.problems import ApiError
from headwater.console.settings import ConsoleSettings
from headwater.errors import HeadwaterError
from headwater.identity.attempts import Attempts
from headwater.identity.rules import FILE as RULES_FILE
from headwater.identity.rules import Rules
from headwater.identity.users import FILE, Role, User, Users, holder_of, is_password_of
from headwater.rights import Principal, Rights, Rule, everything

COOKIE = "headwater_session"
MOST_SESSIONS = 10_000
# Hashing takes memory and time: so many at once.
HASHING = 2


@dataclass(frozen=True, slots=True)
class Identity:
    name: str
    role: str
    local: bool = False
    by_token: bool = False

    @property
    def level(self) -> Role:
        return Role.__members__.get(self.role, Role.client)


_LOCAL = everything()
EVERYONE = Identity("", Role.operator.name, local=True)


@dataclass(frozen=True, slots=True)
class LoginSession:
    name: str
    created: int  # when the user was: another one may have the name later
    until: float


class AccessControl:
    def __init__(self, settings: ConsoleSettings) -> None:
        self.users = Users(settings.data / FILE)
        self._settings = settings
        self._sessions: OrderedDict[str, LoginSession] = OrderedDict()  # by what the cookie holds
        self._attempts = Attempts()
        self._hashing = asyncio.Semaphore(HASHING)
        self._known: dict[str, User] = {}
        self._version: tuple[int, ...] | None = None
        self._rules_file = Rules(settings.data / RULES_FILE)
        self._rules: tuple[Rule, ...] = ()
        self._rules_version: tuple[int, ...] | None = None
        self._rights: dict[tuple[str, str], Rights] = {}

    @property
    def known(self) -> dict[str, User]:
        """All users; read again when the file has changed."""
        version = self.users.version
        if version != self._version:
            self._known, self._version = self.users.all(), version
        return self._known

    def identify(self, request: Request) -> Identity:
        """Who asks. Raises ApiError if that cannot be told."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            user = holder_of(self.known, token.strip())
            if user is None:
                raise ApiError(401, "unauthorized", "this token is not known")
            return Identity(user.name, user.role, by_token=True)
        user = self._of_session(request.cookies.get(COOKIE, ""))
        if user is not None:
            return Identity(user.name, user.role)
        if self.known:
            raise ApiError(401, "unauthorized", "log in, or send a token")
        if self._settings.anonymous:
            return EVERYONE
        raise ApiError(
            401, "no_users", "the console has no users yet: add one with 'headwater user add NAME'"
        )

    def rights_of(self, who: Identity) -> Rights:
        """What rules allow them. The same hold for clients of all protocols."""
        if who.local:
            return _LOCAL
        version = self._rules_file.version
        if version != self._rules_version:
            self._rules, self._rules_version = self._rules_file.all(), version
            self._rights.clear()
        rights = self._rights.get((who.name, who.role))
        if rights is None:
            rights = Rights(Principal("user", who.name, who.role), self._rules)
            self._rights[who.name, who.role] = rights
        return rights

    def is_still(self, who: Identity, request: Request) -> bool:
        """Whether a request that was let in would be let in as the same one now."""
        try:
            return self.identify(request) == who
        except (ApiError, HeadwaterError):
            return False

    async def log_in(self, name: str, password: str, address: str) -> tuple[str, User]:
        """Begin a session; returns what the cookie holds. Raises ApiError."""
        if (wait := self._attempts.wait_for(address, name)) > 0:
            raise ApiError(
                429,
                "too_many_attempts",
                f"too many attempts: wait {int(wait) + 1} s",
                {"Retry-After": str(int(wait) + 1)},
            )
        # Counted before it is checked, so that attempts at the same time count too.
        self._attempts.failed(address, name)
        async with self._hashing:
            user = self.known.get(name)
            if not await asyncio.to_thread(is_password_of, user, password) or user is None:
                raise ApiError(401, "unauthorized", "the name or the password is wrong")
        self._attempts.succeeded(address, name)
        session = secrets.token_urlsafe(32)
        self._sessions[session] = LoginSession(name, user.created, time.time() + self.seconds)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session, user

    def log_out(self, request: Request) -> None:
        self._sessions.pop(request.cookies.get(COOKIE, ""), None)

    @property
    def seconds(self) -> int:
        """How long a session lasts."""
        return int(self._settings.session_hours * 3600)

    def _of_session(self, session: str) -> User | None:
        known = self._sessions.get(session)
        if known is None:
            return None
        user = self.known.get(known.name)
        if user is None or user.created != known.created or known.until <= time.time():
            self._sessions.pop(session, None)
            return None
        return user
