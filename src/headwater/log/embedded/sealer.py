"""The thread that seals full segments, slowly while the log is busy.

Sealing takes CPU that the broker could use, and it can wait. So while messages arrive it works one
tenth of the time; when the log is quiet it works through.
"""

import logging
import threading
import time

from headwater.errors import LogError
from headwater.log.embedded.store import Store

logger = logging.getLogger(__name__)

REST_PER_WORK = 9.0
BUSY_SECONDS = 0.1
LOOK_SECONDS = 1.0


class _Stopped(Exception):
    pass


class Sealer(threading.Thread):
    def __init__(self, store: Store) -> None:
        super().__init__(name="log-sealer", daemon=True)
        self._store = store
        self._stopping = threading.Event()
        #: When something was last appended, by the monotonic clock; told by the engine.
        self.active_at = 0.0

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                for segment in self._store.unsealed():
                    self._store.seal(segment, self._pause)
            except _Stopped:
                return
            except (OSError, LogError) as error:
                logger.error("a segment could not be sealed: %s", error)

    def _pause(self, spent: float) -> None:
        if time.monotonic() - self.active_at < BUSY_SECONDS:
            self._stopping.wait(spent * REST_PER_WORK)
        if self._stopping.is_set():
            raise _Stopped
