"""What takes the place of a session once its connection is gone, so that all that the session kept
is given back at once."""

from collections.abc import Iterator

from headwater.commands import Command
from headwater.errors import HeadwaterError, Refusal
from headwater.protocols.base import Session


class Departed(Session):
    def __init__(self, protocol: str) -> None:
        self.protocol = protocol

    def receive(self, data: bytes) -> Iterator[Command]:
        return iter(())

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        return None

    def farewell(self, error: HeadwaterError) -> bytes:
        return b""
