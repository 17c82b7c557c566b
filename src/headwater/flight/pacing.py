"""How fast rows may come over Flight: not faster than a connection, and its user, may publish.

Rows count as they come, whether they are committed later or not. The thread that reads them waits
before it goes on; nothing is dropped, and the event loop does not wait.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from headwater.broker.quotas import Accounts, Pace
from headwater.errors import Code, Refusal
from headwater.flight.entrance import Caller
from headwater.log.record import Cells
from headwater.slowing import RATE, Slowdowns

# Whether a client that has to wait is still there is looked at so often.
LOOK_SECONDS = 0.5
# Flight does not say when a connection ends. Of those that wrote last, so many are remembered.
MOST_CONNECTIONS = 1000

T = TypeVar("T")


class Pacing:
    """Made in the event loop's thread; threads of Flight call `paced`.

    `rest` waits for so many seconds, or raises Refusal when the broker stops.
    """

    def __init__(
        self, accounts: Accounts, slowdowns: Slowdowns, rest: Callable[[float], None]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._accounts = accounts
        self._slowdowns = slowdowns
        self._rest = rest
        self._paces: OrderedDict[tuple[str, str], Pace] = OrderedDict()

    def paced(self, batches: Iterator[Any], caller: Caller) -> Iterator[Any]:
        """The same batches, which have a column of topics and one of values."""
        if not self._accounts.quotas.has_rates:
            return batches
        pace = self._in_loop(self._pace_of(caller))
        return batches if pace is None else self._slowed(batches, pace, caller)

    def _slowed(self, batches: Iterator[Any], pace: Pace, caller: Caller) -> Iterator[Any]:
        go_on_at = self._in_loop(_spent(pace, 0, 0))  # what calls before have left
        for batch in batches:
            self._wait_until(go_on_at, caller)
            size = Cells(batch.column(1)).total_bytes
            go_on_at = self._in_loop(_spent(pace, len(batch), size))
            yield batch

    def _wait_until(self, at: float, caller: Caller) -> None:
        if at <= time.monotonic():
            return
        slowed = Slowdowns(self._slowdowns)
        self._loop.call_soon_threadsafe(slowed.begin, RATE)
        try:
            while (seconds := at - time.monotonic()) > 0:
                self._rest(min(seconds, LOOK_SECONDS))
                caller.rights.check_known()
                if caller.is_cancelled():
                    raise Refusal(Code.UNAVAILABLE, "the client has gone")
        finally:
            self._loop.call_soon_threadsafe(slowed.end, RATE)

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # What happens in the loop

    async def _pace_of(self, caller: Caller) -> Pace | None:
        key = caller.address, str(caller.rights.principal)
        pace = self._paces.get(key)
        if pace is None:
            pace = self._accounts.pace(self._accounts.of(caller.rights))
            if pace is None:  # there are rates for users, and it is none
                return None
            self._paces[key] = pace
        self._paces.move_to_end(key)
        if len(self._paces) > MOST_CONNECTIONS:
            self._paces.popitem(last=False)
        return pace


async def _spent(pace: Pace, messages: int, size: int) -> float:
    """When to go on, by the monotonic clock."""
    return time.monotonic() + pace.spent(messages, size)
