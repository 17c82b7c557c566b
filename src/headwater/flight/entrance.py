"""Who calls, and what they may read and write: as a token says, or a certificate.

The broker's own token, which only its owner can read, is good for everything. Tokens of users, and
certificates with their names, are good for what rules allow them.
"""

import hmac
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyarrow import flight

from headwater.errors import Code, Refusal
from headwater.rights import Rights, everything

#: The name under which a call finds its token.
NAME = "token"
WANTED = (
    "this broker wants a token: set the option `token` to one of a user ('headwater user token "
    "NAME'), or run as the user of the broker on its machine"
)

#: Makes rights of a token, the name in a certificate and an address. Raises Refusal.
Admit = Callable[[str, str, str], Rights]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who has made a call."""

    rights: Rights
    address: str  # with its port: a connection has one of its own
    is_cancelled: Callable[[], bool]

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]


class Token(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class Tokens(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Reads the token of each call."""

    def start_call(self, info: Any, headers: Any) -> Token:
        kind, _, token = (headers.get("authorization") or [""])[0].partition(" ")
        return Token(token.strip() if kind.lower() == "bearer" else "")


class Entrance:
    """Used by the threads of Flight. `owner` is the broker's own token."""

    def __init__(self, owner: str, admit: Admit) -> None:
        self._owner = owner.encode()
        self._local = everything()
        self._admit = admit
        self._lock = threading.Lock()

    def caller_of(self, context: Any) -> Caller:
        address = unquote(context.peer()).partition(":")[2]
        return Caller(self._rights_of(context, address), address, context.is_cancelled)

    def _rights_of(self, context: Any, address: str) -> Rights:
        token = context.get_middleware(NAME).text
        if token and hmac.compare_digest(token.encode(errors="replace"), self._owner):
            return self._local
        certified = context.peer_identity().decode(errors="replace")
        try:
            with self._lock:
                return self._admit(token, certified, address)
        except Refusal as error:
            if error.code is Code.NOT_PERMITTED:
                raise flight.FlightUnauthenticatedError(f"{error}; {WANTED}") from None
            raise
