"""What the models have in common that run a real broker on a real disk, in a loop of their own.

A model calls `begin`, and says with `_open` and `_close` how the broker starts and stops, and with
`_check` what has to be true in the end.
"""

import asyncio
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, rule

# No step takes so long, not on the busiest machine.
PATIENCE = 60


class BrokerModel(RuleBasedStateMachine):
    loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Call this in an `initialize`, when what `_open` needs is there."""
        self.loop = asyncio.new_event_loop()
        self.directory = Path(tempfile.mkdtemp())
        self.wait(self._open())

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self.loop is not None
        return self.loop.run_until_complete(asyncio.wait_for(work, PATIENCE))

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...

    @abstractmethod
    async def _check(self) -> None: ...

    @rule()
    def restart(self) -> None:
        self.wait(self._close())
        self.wait(self._open())

    def teardown(self) -> None:
        if self.loop is None:
            return
        try:
            self.wait(self._check())
            self.wait(self._close())
        finally:
            shutil.rmtree(self.directory)
            self.loop.close()


def short(part: int, steps: int) -> settings:
    """A step is milliseconds of real disk, so there are fewer examples than elsewhere: one of so
    many, and not very many with `make fuzz-properties`."""
    examples = min(settings().max_examples // part, 1500)
    return settings(deadline=None, max_examples=examples, stateful_step_count=steps)
