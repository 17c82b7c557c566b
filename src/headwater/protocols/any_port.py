"""The session of the port for all protocols: it lives until the first bytes have told which one."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from headwater.commands import Close, Command, Subscription
from headwater.errors import HeadwaterError, Refusal
from headwater.message import Batch
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
    ) -> None:
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

    def encode(self, batch: Batch, subscriptions: tuple[Subscription, ...]) -> list[bytes]:
        return []

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        return None

    def farewell(self, error: HeadwaterError) -> bytes:
        return b""
