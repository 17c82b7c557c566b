"""Whether batches were ever noted here.

A flight.db that was removed looks like one that never was. So the notes beside the log know that
there were batches, and the loss is told at the next start.
"""

import asyncio

from headwater.broker.broker import Broker
from headwater.flight.stages import Stages

_BATCHES = "batches were noted in flight.db"


class KeptBatches:
    """Made in the event loop's thread."""

    def __init__(self, broker: Broker) -> None:
        self._loop = asyncio.get_running_loop()
        self._notes = broker.engine.notes

    async def check(self, stages: Stages) -> None:
        """Raises HeadwaterError if what was noted is damaged; that it is gone, an operator is
        told."""
        if lost := stages.lost(self._notes.load_number(_BATCHES) is not None):
            self._notes.warn(lost)
        if await asyncio.to_thread(stages.check):
            self._note()

    def begun(self) -> None:
        """A batch is about to be appended. Any thread may say so."""
        self._loop.call_soon_threadsafe(self._note)

    def _note(self) -> None:
        if self._notes.load_number(_BATCHES) is None:
            self._notes.save_number(_BATCHES, 1)
