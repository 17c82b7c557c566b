"""Who waits for a message to be durable, without being a client."""

import asyncio

from headwater.errors import LogUnavailable
from headwater.log.engine import Receipt


class AwaitedReceipt(Receipt):
    """For one who awaits `error`: None, or why it was not stored."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.error: asyncio.Future[LogUnavailable | None] = loop.create_future()

    def settled(self, error: LogUnavailable | None) -> None:
        if not self.error.done():
            self.error.set_result(error)
