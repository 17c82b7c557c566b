"""What takes the place of a session and a peer once their connection is gone, so that all that they
kept is given back at once."""

from collections.abc import Iterator

from headwater.commands import BrokerPeer, Command
from headwater.errors import HeadwaterError, Refusal
from headwater.protocols.base import Session
from headwater.rights import NOBODY, Rights


class Departed(Session):
    def __init__(self, protocol: str) -> None:
        self.protocol = protocol

    def receive(self, data: bytes) -> Iterator[Command]:
        return iter(())

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        return None

    def farewell(self, error: HeadwaterError) -> bytes:
        return b""


class DepartedPeer(BrokerPeer):
    def __init__(self) -> None:
        self.rights = Rights(NOBODY)

    @property
    def position(self) -> int:
        return 0

    def handle(self, command: Command) -> None:
        """There is nobody who could have sent it."""

    def drained(self) -> None:
        """Nothing is sent any more."""

    def leave(self) -> None:
        """It has left."""


#: That of everyone who has left.
DEPARTED_PEER = DepartedPeer()
