"""All clients at once, in an event loop in a thread of its own."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from random import Random
from types import TracebackType
from typing import Any, Self

from headwater.client import link
from tests.e2e.process import BrokerProcess, eventually
from torture.everyone import publishers, subscribers
from torture.everyone.accounts import DURABLE, PRISM, Accounts
from torture.everyone.publishers import Pace

CATCH_UP_SECONDS = 100.0
#: A broker that was killed is back soon, and clients that wait longer would see little of it.
link.LONGEST_DELAY = 0.2


class Crowd:
    """`pause`: seconds between two publishes of a publisher, at most."""

    def __init__(
        self, broker: BrokerProcess, accounts: Accounts, chance: Random, pause: float
    ) -> None:
        self._broker, self.accounts = broker, accounts
        self._chance, self._pause = chance, pause
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._enough = asyncio.Event()
        self._left = threading.Event()
        self._publishing: list[asyncio.Future[None]] = []
        self._listening: list[asyncio.Future[None]] = []
        self._durable = threading.Thread(
            target=subscribers.be_durable, args=(broker, accounts, self._left)
        )

    def __enter__(self) -> Self:
        self._thread.start()
        self._durable.start()
        self._wait(self._begin())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.set()
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._durable.join()

    def finish(self) -> None:
        """Publish no more; what was begun, and counts once, comes to its end. Then the durable
        subscriber and the consumers get what is left."""
        self._wait(self._finish())
        stored, received = set(self.accounts.acknowledged), self.accounts.received
        with contextlib.suppress(AssertionError):  # what has not come by then is missed
            for _ in eventually(CATCH_UP_SECONDS):
                if all(stored <= received[name].keys() for name in (DURABLE, PRISM)):
                    return

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(CATCH_UP_SECONDS)

    async def _begin(self) -> None:
        broker, accounts = self._broker, self.accounts

        def pace(slowness: float = 1.0) -> Pace:
            return Pace(Random(self._chance.random()), pause=slowness * self._pause)

        work = [
            *(
                publishers.publish(name, broker, accounts, pace(), self._enough)
                for name in publishers.PLAIN
            ),
            publishers.publish_once(broker, accounts, pace(), self._enough),
            publishers.append(broker, accounts, pace(4), self._enough, staged=False),
            publishers.append(broker, accounts, pace(4), self._enough, staged=True),
        ]
        self._publishing = list(map(asyncio.ensure_future, work))
        listening = [
            *(subscribers.listen(name, broker, accounts) for name in subscribers.LISTENERS),
            subscribers.read_columns(broker, accounts, 5 * self._pause),
        ]
        self._listening = list(map(asyncio.ensure_future, listening))

    async def _finish(self) -> None:
        self._enough.set()
        await asyncio.gather(*self._publishing)

    async def _end(self) -> None:
        everyone = [*self._publishing, *self._listening]
        for each in everyone:
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*everyone, return_exceptions=True)
