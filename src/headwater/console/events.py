"""Server-sent events that end by themselves: when the reader goes, stops reading, or may not read
any more."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headwater.console.problems import ApiError

logger = logging.getLogger(__name__)

MOST_STREAMS = 200
MOST_PER_ADDRESS = 50
# A reader that takes nothing for so long is gone.
PATIENCE_SECONDS = 30.0
#: Sent when nothing else is, so that both ends notice when the other is gone; and a reader who was
#: shut out is noticed then at the latest.
HEARTBEAT_SECONDS = 5.0
HEARTBEAT = ":\n\n"


def event(name: str, data: str) -> str:
    return f"event: {name}\ndata: {data}\n\n"


class Streams:
    """Counts the open streams."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(self._open.values())

    def enter(self, address: str) -> None:
        if len(self) >= MOST_STREAMS or self._open.get(address, 0) >= MOST_PER_ADDRESS:
            raise ApiError(
                429, "too_many_streams", "too many live pages are open", {"Retry-After": "5"}
            )
        self._open[address] = self._open.get(address, 0) + 1

    def leave(self, address: str) -> None:
        self._open[address] -= 1
        if not self._open[address]:
            del self._open[address]


class EventStream(Response):
    """Sends events as they come. Nothing is kept for a slow reader but the one being sent."""

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[str],
        streams: Streams,
        address: str,
        may_read: Callable[[], bool],
    ) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._streams = streams
        self._address = address
        self._may_read = may_read
        streams.enter(address)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and (error := sending.exception()) is not None:
                logger.error("a live page ended", exc_info=error)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
            self._streams.leave(self._address)

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        with suppress(TimeoutError):
            async with aclosing(self._events):
                await self._send_events(send)
        await send({"type": "http.response.body", "body": b""})

    async def _send_events(self, send: Send) -> None:
        async for text in self._events:
            if not self._may_read():
                return
            body = {"type": "http.response.body", "body": text.encode(), "more_body": True}
            # `asyncio.wait_for` of Python 3.11 would forget a cancellation that comes in the moment
            # in which `send` ends: the stream would stay open for ever, with nobody to read it.
            async with asyncio.timeout(PATIENCE_SECONDS):
                await send(body)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
