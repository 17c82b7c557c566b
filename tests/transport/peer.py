"""A peer that takes no commands, for tests of how connections come and go."""

from headwater.commands import BrokerPeer, Command
from headwater.rights import everything


class IdlePeer(BrokerPeer):
    def __init__(self) -> None:
        self.rights = everything()

    @property
    def position(self) -> int:
        return 0

    def handle(self, command: Command) -> None: ...

    def drained(self) -> None: ...

    def leave(self) -> None: ...
