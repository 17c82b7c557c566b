"""Threads of the log, which end when they are told to, or else are heard of."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

logger = logging.getLogger(__name__)

#: Hears which thread has ended, and by what.
Died = Callable[[str, BaseException], None]


class LogThread(threading.Thread, ABC):
    def __init__(self, name: str, died: Died) -> None:
        super().__init__(name=name, daemon=True)
        self._died = died

    @abstractmethod
    def work(self) -> None:
        """Returns when the thread was told to stop."""

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            logger.critical("the thread %s has ended", self.name, exc_info=True)
            self._died(self.name, error)
