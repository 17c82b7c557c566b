"""The gate: who a client is, and what it may do. `identity/gatekeeper.py` has the real one."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

from mypy_extensions import mypyc_attr

from headwater.actions import APP_ROLE
from headwater.commands import Claim
from headwater.errors import Refusal
from headwater.rights import Rights, everything


@dataclass(frozen=True, slots=True)
class KnownApp:
    """An app that may connect, by one protocol."""

    protocol: str  # empty: an app of the time when only those existed that sign
    secret: str = field(repr=False)
    role: str = APP_ROLE


#: Hears who it is, or why not.
Admitted = Callable[[Rights | Refusal], None]


@mypyc_attr(allow_interpreted_subclasses=True)
class Gate(ABC):
    @abstractmethod
    def arriving(self, certified: str, anonymous: bool) -> Rights:
        """What a new client may do before it says anything: it has shown the certificate of the
        user `certified`, or none, and its listener is for `anonymous` clients, or not. Raises
        Refusal."""

    @abstractmethod
    def admit(self, claim: Claim, address: str, done: Admitted) -> None:
        """Find out whether a claim is true. `done` may be called before this returns, or later in
        the same thread."""

    @abstractmethod
    def is_user(self, name: str) -> bool:
        """Whether this is the name of a user; nobody else may go by it."""


class OpenGate(Gate):
    """Everyone is welcome: for a broker without clients from outside."""

    def arriving(self, certified: str, anonymous: bool) -> Rights:
        return everything()

    def admit(self, claim: Claim, address: str, done: Admitted) -> None:
        done(everything())

    def is_user(self, name: str) -> bool:
        return False
