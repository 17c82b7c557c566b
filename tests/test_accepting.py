"""A crowd that comes while turns of the event loop are long is let in several at a time."""

import asyncio
import errno
import logging
import os
import socket
from contextlib import ExitStack

import pytest

from headwater import accepting
from headwater.accepting import ACCEPTED_TOGETHER, Acceptor
from headwater.server.loop import loop_factory

WAITING = 10 * ACCEPTED_TOGETHER


class Guest(asyncio.Protocol):
    """One that was let in."""

    def __init__(self, guests: "list[Guest]") -> None:
        self._guests = guests

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self._guests.append(self)


class Door:
    """An address, those who wait there, and those who were let in."""

    def __init__(self, stack: ExitStack) -> None:
        self.guests = list[Guest]()
        self._loop = asyncio.get_running_loop()
        self._stack = stack
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1000))
        self.acceptor = Acceptor([self._listening], self._welcome)
        stack.callback(self.acceptor.stop)

    async def _welcome(self, accepted: socket.socket, address: str) -> None:
        assert address.startswith("127.0.0.1:")
        await self._loop.connect_accepted_socket(lambda: Guest(self.guests), accepted)

    def knock(self, count: int) -> None:
        for _ in range(count):
            self._stack.enter_context(socket.create_connection(self._listening.getsockname()))

    def close(self) -> None:
        for guest in self.guests:
            guest.transport.close()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_several_are_accepted_in_a_turn(loop: str) -> None:
    async def check() -> int:
        with ExitStack() as stack:
            door, turns = Door(stack), 0
            door.knock(WAITING)
            door.acceptor.start()
            while len(door.guests) < WAITING:
                turns += 1
                await asyncio.sleep(0)
            door.close()
            await asyncio.sleep(0)
            return turns

    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        # Each is accepted in one turn, and begins in one of the next.
        assert runner.run(check()) < WAITING / 2


def test_who_waits_is_let_in_when_the_system_has_files_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "PAUSE_SECONDS", 0.01)

    class Exhausted(socket.socket):
        """Of a system that has no files, twice."""

        left = 2

        def accept(self) -> tuple[socket.socket, object]:
            if self.left:
                self.left -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return super().accept()

    async def check() -> None:
        with ExitStack() as stack:
            door = Door(stack)
            door.acceptor.stop()
            listening = stack.enter_context(Exhausted())
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            door.acceptor = Acceptor([listening], door._welcome)
            stack.callback(door.acceptor.stop)
            stack.enter_context(socket.create_connection(listening.getsockname()))
            door.acceptor.start()
            async with asyncio.timeout(60):
                while not door.guests:
                    await asyncio.sleep(0.001)
            door.close()
            await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING):
        asyncio.run(check())
    assert caplog.text.count("no connection can be accepted: Too many open files") == 2
