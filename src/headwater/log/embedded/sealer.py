"""The thread that seals full segments, slowly while the log is busy.

Sealing takes CPU that the broker could use, and it can wait. So while messages arrive it works one
tenth of the time; when the log is quiet it works through.
"""

import logging
import threading
import time
from pathlib import Path

from headwater.errors import LogError
from headwater.log.embedded.segment import Segment
from headwater.log.embedded.store import LogStore
from headwater.log.embedded.threads import Died, LogThread

logger = logging.getLogger(__name__)

REST_PER_WORK = 9.0
BUSY_SECONDS = 0.1
LOOK_SECONDS = 1.0
LATER_SECONDS = 30.0


class _Stopped(Exception):
    pass


class Sealer(LogThread):
    def __init__(self, store: LogStore, died: Died) -> None:
        super().__init__("log-sealer", died)
        self._store = store
        self._stopping = threading.Event()
        self._given_up: set[Path] = set()  # damaged; they stay as they are
        #: When something was last appended, by the monotonic clock; told by the engine.
        self.active_at = 0.0

    def stop(self) -> None:
        self._stopping.set()

    def work(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                for segment in self._store.unsealed():
                    if segment.path not in self._given_up:
                        self._seal(segment)
            except _Stopped:
                return

    def _seal(self, segment: Segment) -> None:
        try:
            self._store.seal(segment, self._pause)
        except LogError as error:
            logger.error("a segment could not be sealed: %s", error)
            self._given_up.add(segment.path)
        except OSError as error:
            logger.warning("a segment could not be sealed yet: %s", error.strerror)
            self._stopping.wait(LATER_SECONDS)
        except _Stopped:
            raise
        except Exception:
            # It can be read as it is, and would fail again: no reason to end the broker.
            logger.exception("the segment %s stays unsealed", segment.path.name)
            self._given_up.add(segment.path)

    def _pause(self, spent: float) -> None:
        if time.monotonic() - self.active_at < BUSY_SECONDS:
            self._stopping.wait(spent * REST_PER_WORK)
        if self._stopping.is_set():
            raise _Stopped
