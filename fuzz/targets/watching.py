"""What a session promises (`protocols/base.py`), checked while a connection uses it."""

from collections.abc import Iterator
from typing import get_args

from fuzz import branches
from fuzz.stand import MESSAGE_BYTES
from fuzz.targets.base import Violation
from headwater.commands import Close, Command, Respond
from headwater.protocols.base import Session
from headwater.protocols.bulk import Intake

#: What a message may have around it: headers.
AROUND_BYTES = 128 * 1024
#: What a session may hold of a handshake, which is no message yet.
HANDSHAKE_BYTES = 16 * 1024
COMMANDS = get_args(Command)


class Watched:
    """One connection's session, or those that follow each other on it."""

    def __init__(self, session: Session) -> None:
        self._follow(session)
        #: It has said that the connection ends.
        self.closed = False
        #: Reads whose commands are not all carried out.
        self.busy = 0
        self._last = ""

    def _follow(self, session: Session) -> None:
        """The first session, and the one that the port for all hands over to."""
        self.session, self._receive = session, session.receive
        # A connection asks for the method once, so this is what it gets.
        vars(session)["receive"] = self._watch

    def _watch(self, data: bytes) -> Iterator[Command]:
        self.busy += 1
        return self._commands(self._receive(data))

    def _commands(self, commands: Iterator[Command]) -> Iterator[Command]:
        session = self.session
        for command in commands:
            self._note(command)
            if isinstance(command, Close):
                self._end(commands)
            yield command
        self.busy -= 1
        if session.successor is not None:
            self._follow(session.successor[0])
        self.check_memory()

    def _note(self, command: Command) -> None:
        if not isinstance(command, COMMANDS):
            raise Violation(f"{command!r} is not a command")
        kind = type(command).__name__
        answer = command.answer[:1] if isinstance(command, Respond | Close) else b""
        branches.outcome(self.session.protocol, self._last, kind, answer)
        self._last = kind

    def _end(self, commands: Iterator[Command]) -> None:
        self.closed = True
        for command in commands:
            raise Violation(f"{command!r} follows the end of the connection")

    def check_memory(self) -> None:
        """It holds no more than it says, and no more than it may."""
        unfinished, (message, handshake) = (
            self.session.unfinished,
            held_bytes(self.session),
        )
        most = MESSAGE_BYTES + AROUND_BYTES
        if not 0 <= unfinished <= most:
            raise Violation(f"it waits for {unfinished} bytes, and may for {most}")
        if message > unfinished:
            raise Violation(f"it holds {message} bytes, and says {unfinished}")
        if handshake > HANDSHAKE_BYTES:
            raise Violation(f"it holds {handshake} bytes of a handshake")
        branches.outcome(self.session.protocol, "waits for", unfinished.bit_length())

    def check_end(self) -> None:
        """What comes behind the end is nothing."""
        if self.closed and (more := list(self._receive(b"\0more\r\n\r\n"))):
            raise Violation(f"{more!r} follows the end of the connection")


def held_bytes(session: Session) -> tuple[int, int]:
    """The bytes of its client that it keeps, wherever that is: of a message, and of a handshake."""
    message = handshake = 0
    for owner in (session, getattr(session, "_reader", None)):
        for name, value in vars(owner).items() if owner is not None else ():
            if isinstance(value, Intake):
                message += len(value._kept)
            elif name == "_begun":
                message += len(value)
            elif name in ("_request", "_data"):
                handshake += len(value)
    return message, handshake
