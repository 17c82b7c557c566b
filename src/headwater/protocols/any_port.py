"""The session of the port for all protocols: it lives until the first bytes have told which one.

Clients of one protocol may wait for the broker's greeting. Those of all others speak first, so
after a silence a client is taken for one of that protocol, and greeted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from headwater.commands import Close, Command
from headwater.errors import HeadwaterError, Refusal
from headwater.protocols.base import Session, Terms
from headwater.protocols.entry import Protocol
from headwater.protocols.recognition import recognise


class AnyPortSession(Session):
    """Waits for the first bytes, then lets the right session go on."""

    def __init__(
        self,
        terms: Terms,
        protocols: Sequence[Protocol],
        sessions: Mapping[str, Callable[[Terms], Session]],
        silent_after: float | None = None,
    ) -> None:
        self.silent_after = silent_after
        self._terms = terms
        self._protocols = protocols
        self._sessions = sessions
        self._data = b""

    def receive(self, data: bytes) -> Iterator[Command]:
        self._data += data
        name = recognise(self._data, self._protocols)
        if name is None:
            return
        if name not in self._sessions:
            yield Close(b"", f"{name} is not served here")
            return
        self.successor = self._sessions[name](self._terms), self._data

    def silent(self) -> None:
        waited_for = (each.name for each in self._protocols if each.broker_speaks_first)
        name = next((name for name in waited_for if name in self._sessions), None)
        if name is not None and not self._data:
            self.successor = self._sessions[name](self._terms), b""

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        return None

    def farewell(self, error: HeadwaterError) -> bytes:
        return b""
