"""Publishers that go on all the time, whatever happens to the broker."""

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from headwater.client import BmtpClient
from headwater.errors import HeadwaterError
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


@dataclass
class OncePublisher:
    """Numbered messages over BMTP, to be stored exactly once: what had no answer is sent again,
    marked as a repeat, until it has one. It may be cancelled, and run again."""

    name: str
    topic: str
    chance: Random
    #: Seconds between two batches, at most.
    pause: float = 0.02
    sent: int = 0
    answered: set[bytes] = field(default_factory=set)
    _unanswered: list[bytes] = field(default_factory=list)

    async def run(self, port: int, stop: asyncio.Event) -> None:
        async with BmtpClient("127.0.0.1", port, qos=2) as client:
            while self._unanswered or not stop.is_set():
                await self._publish(client)
                await asyncio.sleep(self.chance.uniform(0, self.pause))

    async def _publish(self, client: BmtpClient) -> None:
        again = bool(self._unanswered)
        if not again:
            numbers = range(self.sent, self.sent + self.chance.choice((1, 10, 200)))
            self.sent = numbers.stop
            self._unanswered = [b"%s.%d" % (self.name.encode(), number) for number in numbers]
        with contextlib.suppress(HeadwaterError):
            await client.publish(self.topic, *self._unanswered, again=again)
            self.answered.update(self._unanswered)
            self._unanswered = []
