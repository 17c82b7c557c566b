"""Sessions that break their promises are noticed: otherwise all of them would seem to keep them."""

from collections.abc import Iterator

import pytest

from fuzz.targets.base import Violation
from fuzz.targets.watching import Watched
from headwater.commands import Close, Command, Respond
from headwater.errors import HeadwaterError, Refusal
from headwater.protocols.base import Session
from headwater.protocols.bulk import Intake


class Promising(Session):
    """Yields what it is told to."""

    def __init__(self, *commands: Command) -> None:
        self._commands = commands
        self._intake = Intake()
        self.says = 0

    @property
    def unfinished(self) -> int:
        return self.says

    def receive(self, data: bytes) -> Iterator[Command]:
        self._intake.keep(data, 0)
        yield from self._commands

    def refuse(self, command: Command, error: Refusal) -> Command | None:
        return None

    def farewell(self, error: HeadwaterError) -> bytes:
        return b""


def test_a_command_behind_the_end() -> None:
    session = Promising(Close(b"bye"), Respond(b"more"))
    Watched(session)
    with pytest.raises(Violation, match="follows the end"):
        list(session.receive(b""))


def test_a_command_to_what_comes_behind_the_end() -> None:
    session = Promising(Close(b"bye"))
    watched = Watched(session)
    assert [type(command) for command in session.receive(b"")] == [Close]
    with pytest.raises(Violation, match="follows the end"):
        watched.check_end()


def test_what_is_no_command() -> None:
    session = Promising("nonsense")  # type: ignore[arg-type]
    Watched(session)
    with pytest.raises(Violation, match="is not a command"):
        list(session.receive(b""))


def test_bytes_that_are_held_and_not_told() -> None:
    session = Promising()
    Watched(session)
    with pytest.raises(Violation, match="and says 0"):
        list(session.receive(bytes(10)))


def test_more_than_a_message() -> None:
    session = Promising()
    Watched(session)
    session.says = 1 << 30
    with pytest.raises(Violation, match="it waits for"):
        list(session.receive(b""))


def test_the_session_that_takes_over_is_watched_as_well() -> None:
    first, second = Promising(), Promising(Close(), Respond(b"more"))
    watched = Watched(first)
    first.successor = second, b""
    assert not list(first.receive(b""))
    assert watched.session is second
    with pytest.raises(Violation, match="follows the end"):
        list(second.receive(b""))
