"""Accepts connections: several in a turn of the event loop.

uvloop's own server accepts one in a turn, however many wait. While turns are long, because others
send much, a fleet that comes back would take minutes to be let in.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

logger = logging.getLogger(__name__)

# To begin a connection takes a tenth of a millisecond: this many make no long turn.
ACCEPTED_TOGETHER = 16
# When the system has no more files or memory, it is asked again after so long.
EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE_SECONDS = 1.0

#: What to do with a connection from an address; None if that is done already.
Welcome = Callable[[socket.socket, str], Coroutine[Any, Any, None] | None]


class Acceptor:
    """Accepts from sockets that listen."""

    def __init__(self, sockets: Iterable[socket.socket], welcome: Welcome) -> None:
        self._sockets = tuple(sockets)
        self._welcome = welcome
        self._beginning: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._stopped = False

    def start(self) -> None:
        for each in self._sockets:
            each.setblocking(False)
            self._loop.add_reader(each, self._accept, each)

    def stop(self) -> None:
        """Accept no more, and end what has only begun."""
        if self._stopped:
            return
        self._stopped = True
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        for task in self._beginning:
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_TOGETHER):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                logger.warning("no connection can be accepted: %s", error.strerror)
                self._loop.remove_reader(listening)
                self._loop.call_later(PAUSE_SECONDS, self._go_on, listening)
                return
            accepted.setblocking(False)
            work = self._welcome(accepted, f"{address[0]}:{address[1]}")
            if work is not None:
                task = self._loop.create_task(work)
                self._beginning.add(task)
                task.add_done_callback(self._beginning.discard)

    def _go_on(self, listening: socket.socket) -> None:
        if not self._stopped:
            self._loop.add_reader(listening, self._accept, listening)
