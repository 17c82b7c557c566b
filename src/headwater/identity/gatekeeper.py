"""The gatekeeper: finds out who a client is, and gives it its rights.

    certificate      its common name is the name of a user
    password         scrypt, in a thread of its own; what was right once is recognised at once
    token            instead of a password
    signature        of an app, with its secret
    shared secret    of an app, without a name

Users, apps and rules may change while the broker runs. Rights that were given out change with them;
whoever is no longer known has none, and is told so.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from headwater.actions import ANONYMOUS
from headwater.commands import Claim, Password, SharedSecret, Signature
from headwater.errors import Code, HeadwaterError, Refusal
from headwater.gate import Admitted, Gate, KnownApp
from headwater.identity.attempts import Attempts
from headwater.identity.rules import Rules
from headwater.identity.users import (
    TOKEN_PREFIX,
    User,
    Users,
    holder_of,
    is_password_of,
    is_token_of,
)
from headwater.rights import NOBODY, Principal, Rights, Rule

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
# Hashing takes memory and time: so many at once, and so many that wait, from one address and all.
HASHING = 2
MOST_WAITING = 256
MOST_WAITING_AT = 32
# Of a name that a stranger gave, so much is logged.
MOST_SHOWN = 80
WRONG = "the name or the password is wrong"


@dataclass(frozen=True, slots=True)
class GateEvent:
    """What happened at the gate, for those who keep a record of it."""

    who: str
    address: str
    how: str
    error: str = ""


class Gatekeeper(Gate):
    """Used in the event loop. `apps` are changed by others, by name."""

    def __init__(
        self,
        users: Users,
        rules: Rules,
        apps: Mapping[str, KnownApp],
        record: Callable[[GateEvent], None] = lambda login: None,
    ) -> None:
        self._users_file = users
        self._rules_file = rules
        self._apps = apps
        self._record = record
        self._changed: Callable[[], None] = lambda: None
        self._gone: Callable[[Rights], None] = lambda rights: None
        self.attempts = Attempts()
        #: How many could not log in.
        self.failures = 0
        self._users: dict[str, User] = users.all()
        self._rules: tuple[Rule, ...] = rules.all()
        self._versions = users.version, rules.version
        self._rights: dict[Principal, Rights] = {}
        # Held where these change, for threads of Flight ask, too.
        self._changing = threading.Lock()
        self._hashing = ThreadPoolExecutor(HASHING, "login")
        self._waiting: Counter[str] = Counter()  # by address
        # Who waits for the same password of the same user to be hashed.
        self._pending: dict[bytes, list[Callable[[Principal | Refusal], None]]] = {}
        # What a password is recognised by that was right before. The key is this process's own.
        self._key = os.urandom(32)
        self._proven: dict[str, tuple[str | None, bytes]] = {}
        self._nobody = Rights(NOBODY)
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    # The gate

    def arriving(self, certified: str, anonymous: bool) -> Rights:
        if certified:
            user = self._users.get(certified)
            if user is None:
                who = _printable(f"user:{certified}")
                self.note(GateEvent(who, "", "certificate", "there is no such user"))
                raise Refusal(
                    Code.NOT_PERMITTED, f'the certificate is for "{certified}", who is no user here'
                )
            return self._rights_of_user(user)
        return self.rights_of(Principal(ANONYMOUS)) if anonymous else self._nobody

    def is_user(self, name: str) -> bool:
        return name in self._users

    def admit(self, claim: Claim, address: str, done: Admitted) -> None:
        host, name = address.rpartition(":")[0], _name_of(claim)
        if (wait := self.attempts.wait_for(host, name)) > 0:
            done(Refusal(Code.NOT_PERMITTED, f"too many attempts: wait {int(wait) + 1} s"))
            return
        if isinstance(claim, Password):
            self._check_password(claim, host, partial(self._decided, claim, address, done))
        else:
            self._decided(claim, address, done, app_that(claim, self._apps))

    def user_with_token(self, token: str) -> Rights | None:
        """Whose token this is. Any thread may ask."""
        user = holder_of(self._users, token)
        return None if user is None else self._rights_of_user(user)

    # Rights

    def rights_of(self, principal: Principal) -> Rights:
        """Any thread may ask."""
        with self._changing:
            rights = self._rights.get(principal)
            if rights is None:
                rights = Rights(principal, self._rules)
                if self._is_known(principal):
                    self._rights[principal] = rights
                else:  # it was removed a moment ago
                    rights.end()
            return rights

    def _rights_of_user(self, user: User) -> Rights:
        return self.rights_of(Principal("user", user.name, user.role))

    @property
    def has_users(self) -> bool:
        return bool(self._users)

    # Claims

    def _decided(
        self, claim: Claim, address: str, done: Admitted, found: Principal | Refusal
    ) -> None:
        host, name = address.rpartition(":")[0], _name_of(claim)
        how = type(claim).__name__.lower()
        if isinstance(found, Refusal):
            if found.code is Code.NOT_PERMITTED:
                self.attempts.failed(host, name)
                self._note(GateEvent(_printable(name), address, how, str(found)))
            done(found)
            return
        self.attempts.succeeded(host, name)
        self._record(GateEvent(str(found), address, how))
        done(self.rights_of(found))

    def _check_password(
        self, claim: Password, host: str, decided: Callable[[Principal | Refusal], None]
    ) -> None:
        user = self._users.get(claim.user)
        if claim.password.startswith(TOKEN_PREFIX):
            decided(self._verdict(user, is_token_of(user, claim.password)))
            return
        mark = self._mark(claim, user)
        if user is not None and self._was_right(user, mark):
            decided(self._verdict(user, True))
        elif mark in self._pending:
            self._pending[mark].append(decided)
        elif self._waiting[host] >= MOST_WAITING_AT or self._waiting.total() >= MOST_WAITING:
            decided(Refusal(Code.UNAVAILABLE, "too many clients log in at once; try again"))
        else:
            loop = asyncio.get_running_loop()
            try:
                hashing = loop.run_in_executor(self._hashing, is_password_of, user, claim.password)
            except RuntimeError as error:  # the system has no thread for it
                decided(_unchecked(error))
                return
            self._waiting[host] += 1
            self._pending[mark] = [decided]
            hashing.add_done_callback(partial(self._hashed, user, host, mark))

    def _hashed(
        self, user: User | None, host: str, mark: bytes, hashing: "asyncio.Future[bool]"
    ) -> None:
        self._waiting[host] -= 1
        if not self._waiting[host]:
            del self._waiting[host]
        error = None if hashing.cancelled() else hashing.exception()
        if hashing.cancelled() or error is not None:
            verdict: Principal | Refusal = _unchecked(error)
        else:
            right = hashing.result()
            if right and user is not None:
                self._proven[user.name] = user.password, mark
            verdict = self._verdict(user, right)
        for decided in self._pending.pop(mark):
            decided(verdict)

    def _was_right(self, user: User, mark: bytes) -> bool:
        """Whether this password was found to be right before. A fleet that connects again would
        keep both cores busy for minutes otherwise."""
        kept, proven = self._proven.get(user.name, (None, b""))
        return kept == user.password and hmac.compare_digest(mark, proven)

    def _mark(self, claim: Password, user: User | None) -> bytes:
        created = 0 if user is None else user.created
        text = f"{claim.user}\0{created}\0{claim.password}".encode(errors="surrogatepass")
        return hmac.digest(self._key, text, hashlib.sha256)

    def _verdict(self, user: User | None, right: bool) -> Principal | Refusal:
        # It may have been removed while its password was checked.
        if right and user is not None and self._users.get(user.name) == user:
            return Principal("user", user.name, user.role)
        return Refusal(Code.NOT_PERMITTED, WRONG)

    def note(self, login: GateEvent) -> None:
        """The same, from any thread."""
        self._loop.call_soon_threadsafe(self._note if login.error else self._record, login)

    def _note(self, login: GateEvent) -> None:
        """A failure: in the log of the broker, counted, and on record."""
        self.failures += 1
        logger.warning("%s could not log in from %s: %s", login.who, login.address, login.error)
        self._record(login)

    # Changes

    def connect(self, changed: Callable[[], None], gone: Callable[[Rights], None]) -> None:
        """Tell these when rights have changed, and whose rights are gone."""
        self._changed, self._gone = changed, gone

    def watch(self) -> None:
        """Look for changes from now on."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._hashing.shutdown(wait=False, cancel_futures=True)

    def _look(self) -> None:
        try:
            self.refresh()
        finally:
            self.watch()

    def refresh(self) -> None:
        """Read again what has changed. What cannot be read stays as it was, and is tried again."""
        versions = self._users_file.version, self._rules_file.version
        if versions == self._versions:
            return
        self._versions = versions
        try:
            users, rules = self._users_file.all(), self._rules_file.all()
        except (HeadwaterError, OSError) as error:
            logger.error("users and rules stay as they were: %s", error)
            return
        with self._changing:
            self._users, self._rules = users, rules
            gone = [each for each in self._rights if not self._is_known(each)]
            ended = [self._rights.pop(each) for each in gone]
            for rights in self._rights.values():
                rights.change(rules)
        self._end(ended)

    def forget_app(self, name: str) -> None:
        """An app was removed, or is another one now."""
        with self._changing:
            gone = [each for each in self._rights if (each.kind, each.name) == ("app", name)]
            ended = [self._rights.pop(each) for each in gone]
        self._end(ended)

    def _end(self, ended: Iterable[Rights]) -> None:
        for rights in ended:
            rights.end()
            self._gone(rights)
        self._changed()

    def _is_known(self, principal: Principal) -> bool:
        if principal.kind != "user":
            return True
        user = self._users.get(principal.name)
        return user is not None and user.role == principal.role


def app_that(claim: Signature | SharedSecret, apps: Mapping[str, KnownApp]) -> Principal | Refusal:
    """Which app makes this claim, if it is true."""
    if isinstance(claim, Signature):
        known = apps.get(claim.app)
        if known is not None and known.protocol not in ("", claim.protocol):
            known = None
        # The same work is done for an app that there is not.
        if claim.proves("" if known is None else known.secret) and known is not None:
            return Principal("app", claim.app, known.role)
        return Refusal(
            Code.NOT_PERMITTED, "there is no such client, or this is not its signature or secret"
        )
    for name, app in apps.items():
        is_theirs = hmac.compare_digest(app.secret.encode(), claim.secret)
        if is_theirs and app.protocol == claim.protocol:
            return Principal("app", name, app.role)
    return Refusal(Code.NOT_PERMITTED, "this is not the secret of any app")


def _unchecked(error: BaseException | None) -> Refusal:
    """Who gives a password is not let in while none can be hashed. None: the broker is stopping."""
    if error is not None:
        logger.error("a password could not be checked: %r", error)
    return Refusal(Code.UNAVAILABLE, "the password cannot be checked now")


def _name_of(claim: Claim) -> str:
    """What attempts are counted for, besides the address."""
    match claim:
        case Password():
            return f"user:{claim.user}"
        case Signature():
            return f"app:{claim.app}"
        case SharedSecret():
            return f"secret:{claim.protocol}"


def _printable(name: str) -> str:
    """A name that a stranger gave, for the log."""
    name = name if len(name) <= MOST_SHOWN else f"{name[:MOST_SHOWN]}…"
    return name if name.isprintable() else ascii(name)
