"""How long others wait: the longest turn of the event loop while an input is worked off."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Turns:
    """Watches the loop from inside: it has its turn once in each iteration, as any connection."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.longest = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.ensure_future(self._watch())
        await asyncio.sleep(0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.sleep(0)  # the last turn counts, too
        self._task.cancel()

    async def _watch(self) -> None:
        while True:
            began = self._clock()
            await asyncio.sleep(0)
            self.longest = max(self.longest, self._clock() - began)
