"""What a connection needs of the listener that accepted it."""

from typing import TYPE_CHECKING, Protocol

from headwater.commands import BrokerPeer
from headwater.protocols.base import Session
from headwater.slowing import Slowdowns
from headwater.transport.ceilings import InputCeiling, OutputCeiling
from headwater.transport.clock import Clock
from headwater.transport.turn import Turn

if TYPE_CHECKING:
    from headwater.transport.connection import Connection


class Host(Protocol):
    clock: Clock
    turn: Turn
    input_ceiling: InputCeiling
    output_ceiling: OutputCeiling
    slowdowns: Slowdowns
    output_buffer_bytes: int
    handshake_seconds: float
    unfinished_seconds: float

    def recognised(self, connection: "Connection") -> None:
        """It is known what the connection speaks."""

    def arrived(self, connection: "Connection") -> tuple[Session, BrokerPeer] | None:
        """Take the connection in. None: it was turned away."""

    def left(self, connection: "Connection") -> None: ...
