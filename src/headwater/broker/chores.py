"""Work that would hold up everyone: it is done in slices, one in each turn of the loop.

A chore is a generator that yields whenever it may be interrupted. Chores take turns, and all those
of one owner have one turn together: a client with 20,000 queues gets no more of it than others.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from time import perf_counter
from typing import Any

logger = logging.getLogger(__name__)

# So long chores are worked on in a turn, all together.
CHORE_SECONDS = 0.002
DISPOSED_AT_ONCE = 200


class Chores:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: dict[Hashable, deque[Iterator[None]]] = {}  # by owner
        self._owners: deque[Hashable] = deque()  # of these, the first is next
        self._scheduled = False
        #: How long chores were worked on.
        self.seconds = 0.0

    @property
    def busy(self) -> bool:
        return bool(self._owners)

    def add(self, chore: Iterator[None], owner: Hashable = None) -> None:
        """Without an owner, it has turns of its own."""
        key: Hashable = id(chore) if owner is None else owner
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = deque()
            self._owners.append(key)
        line.append(chore)
        self._schedule()

    def soon(self, act: Callable[[], None], owner: Hashable) -> None:
        """Have something done that takes no longer than a slice."""
        self.add(_once(act), owner)

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
        while self._owners and perf_counter() < stop:
            owner = self._owners.popleft()
            line = self._lines[owner]
            chore = line.popleft()
            if _goes_on(chore):
                line.append(chore)
            if line:
                self._owners.append(owner)
            else:
                del self._lines[owner]
        self.seconds += perf_counter() - began
        if self._owners:
            self._schedule()


def _goes_on(chore: Iterator[None]) -> bool:
    """Work on it, and say whether there is more to do."""
    try:
        next(chore)
    except StopIteration:
        return False
    except Exception:  # the others have nothing to do with it
        logger.exception("a chore of the broker failed")
        return False
    return True


def _dispose(gone: dict[Any, Any]) -> Iterator[None]:
    while gone:
        for _ in range(min(DISPOSED_AT_ONCE, len(gone))):
            gone.popitem()
        yield


def _once(act: Callable[[], None]) -> Iterator[None]:
    act()
    yield from ()
