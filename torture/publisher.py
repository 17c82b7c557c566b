"""Publishes all the time, whatever happens to the broker."""

import contextlib
import random
import threading
from collections.abc import Callable

from tests.e2e.process import BrokerProcess

# A bound for what hangs. Who leaves before the answer, does not know what the broker will make of
# what it has not read yet.
ANSWER_SECONDS = 120.0


class Publisher:
    """To five topics below `prefix`: what `burst` returns, acknowledged, then a pause."""

    def __init__(
        self, broker: BrokerProcess, prefix: str, burst: Callable[[], list[bytes]], pause: float
    ) -> None:
        self._broker, self._prefix = broker, prefix
        self._burst, self._pause = burst, pause
        self.acknowledged = 0

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError, EOFError):
                wire = self._broker.publisher(f"{self._prefix}/{random.randrange(5)}")
                wire.socket.settimeout(ANSWER_SECONDS)
                with contextlib.closing(wire):
                    while not stop.is_set():
                        messages = self._burst()
                        wire.messages(*messages)
                        self.acknowledged += len(messages)
                        stop.wait(self._pause)
            stop.wait(0.05)
