"""Work that would hold up everyone: it is done in slices, one in each turn of the loop.

A chore is a generator that yields whenever it may be interrupted. Chores take turns.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

logger = logging.getLogger(__name__)

# So long chores are worked on in a turn, all together.
CHORE_SECONDS = 0.002
DISPOSED_AT_ONCE = 200


class Chores:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._chores: deque[Iterator[None]] = deque()
        self._scheduled = False
        #: How long chores were worked on.
        self.seconds = 0.0

    @property
    def busy(self) -> bool:
        return bool(self._chores)

    def add(self, chore: Iterator[None]) -> None:
        self._chores.append(chore)
        self._schedule()

    def soon(self, act: Callable[[], None]) -> None:
        """Have something done that takes no longer than a slice."""
        self.add(_once(act))

    def dispose(self, gone: dict[Any, Any]) -> None:
        """Let go of what nobody needs any more. With very many objects, that takes long."""
        if len(gone) > DISPOSED_AT_ONCE:
            self.add(_dispose(gone))

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._work)

    def _work(self) -> None:
        self._scheduled = False
        began = perf_counter()
        stop = began + CHORE_SECONDS
        while self._chores and perf_counter() < stop:
            chore = self._chores.popleft()
            try:
                next(chore)
            except StopIteration:
                continue
            except Exception:  # the others have nothing to do with it
                logger.exception("a chore of the broker failed")
                continue
            self._chores.append(chore)
        self.seconds += perf_counter() - began
        if self._chores:
            self._schedule()


def _dispose(gone: dict[Any, Any]) -> Iterator[None]:
    while gone:
        for _ in range(min(DISPOSED_AT_ONCE, len(gone))):
            gone.popitem()
        yield


def _once(act: Callable[[], None]) -> Iterator[None]:
    act()
    yield from ()
