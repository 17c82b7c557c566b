"""A link: a client's connection that comes back by itself.

It connects, lets its owner introduce itself, and keeps the open requests in order. When the
connection is lost, open requests fail (nobody can know whether they were carried out) and the link
connects and introduces itself again until it is closed.
"""

import asyncio
import contextlib
import os
import random
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from headwater.errors import Disconnected, HeadwaterError, Refusal
from headwater.protocols.base import Answered, ClientSession, Delivered, Ended, Event, Pinged, Ready

FIRST_DELAY = 0.05
LONGEST_DELAY = 5.0
FAREWELL_SECONDS = 1.0
# Batches that wait to be taken by the application before the link stops reading.
INBOX_BATCHES = 64


#: Sends the receipt of a message to the connection that it came from, if that is still there.
Receipt = Callable[[bytes], None]


class Inbox:
    """What has arrived and was not taken yet. A full inbox stops the links that fill it."""

    def __init__(self) -> None:
        self._items: deque[tuple[Delivered, Receipt] | HeadwaterError] = deque()
        self._arrived = asyncio.Event()
        self._links: set[Link] = set()

    def put(self, item: tuple[Delivered, Receipt] | HeadwaterError, link: "Link") -> None:
        self._items.append(item)
        self._arrived.set()
        if len(self._items) >= INBOX_BATCHES:
            self._links.add(link)
            link.pause_reading()

    async def take(self) -> tuple[Delivered, Receipt]:
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        item = self._items.popleft()
        if self._links and len(self._items) < INBOX_BATCHES // 2:
            links, self._links = self._links, set()
            for link in links:
                link.resume_reading()
        if isinstance(item, HeadwaterError):
            raise item
        return item


class Link(asyncio.Protocol):
    def __init__(
        self,
        host: str,
        port: int,
        session: Callable[[], ClientSession],
        introduce: Callable[["Link"], Awaitable[None]],
        inbox: Inbox,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._address = (host, port)
        self._tls = tls
        self._new_session = session
        self._session = session()
        self._introduce = introduce
        self._inbox = inbox
        self._transport: asyncio.Transport | None = None
        self._requests: deque[tuple[asyncio.Future[None], int]] = deque()
        self._greeted: asyncio.Future[None] | None = None
        self._up = asyncio.Event()
        self._gone = asyncio.Event()  # the last connection is
        self._writable = asyncio.Event()
        self._reconnecting: asyncio.Task[None] | None = None
        self._closed = False

    async def open(self) -> None:
        """Connect and introduce ourselves; fails if that fails."""
        if not await self._connect():
            self._come_back()

    async def _connect(self) -> bool:
        """Whether the connection is still there when we are introduced. If it was lost together
        with the last answer, messages may have come with that as well: it is no failure."""
        host, port = self._address
        loop = asyncio.get_running_loop()
        self._session = self._new_session()
        self._greeted = loop.create_future()
        try:
            await loop.create_connection(lambda: self, host, port, ssl=self._tls)
        except OSError as error:
            raise Disconnected(f"cannot connect to {host}:{port}: {_reason(error)}") from None
        try:
            await self._introduce(self)
        except BaseException:
            self._drop()
            raise
        if self._transport is None:
            return False
        self._up.set()
        return True

    async def close(self, farewell: bytes = b"") -> None:
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reconnecting
        if self._transport is not None:
            self._transport.write(farewell)
            self._transport.close()
            if self._tls is not None:
                await self._parted(self._transport)

    async def _parted(self, transport: asyncio.Transport) -> None:
        """TLS ends with a word of both sides; a program that ends before that leaves it open."""
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._gone.wait()
        except TimeoutError:
            transport.abort()

    async def greeted(self, hello: bytes = b"") -> None:
        """Say hello, if it is ours to begin, and wait for the broker's greeting (while introducing
        ourselves)."""
        if self._transport is None:
            raise Disconnected("the connection was lost")
        assert self._greeted is not None
        self._transport.write(hello)
        await self._greeted

    async def send(self, data: bytes, answers: int = 0) -> None:
        """Send as soon as there is a connection with room; nobody waits for the answers to it."""
        await self._up.wait()
        await self._writable.wait()
        if self._transport is None:
            raise Disconnected("the connection was lost")
        if answers:
            ignored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ignored.cancel()
            self._requests.extend([(ignored, 0)] * answers)
        self._transport.write(data)

    async def request(self, data: bytes, answers: int = 1) -> None:
        """Send, and wait for that many answers; the first refusal is raised."""
        await self._up.wait()
        await self._writable.wait()
        await self.ask(data, answers)

    async def ask(self, data: bytes, answers: int = 1) -> None:
        """Like `request`, but without waiting for a connection (while introducing ourselves)."""
        if self._transport is None:
            raise Disconnected("the connection was lost")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests.extend([(future, index) for index in reversed(range(answers))])
        self._transport.write(data)
        await future

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    # asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._gone.clear()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        for event in self._session.receive(data):
            self._handle(event)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._gone.set()
        # Whether the broker accepts its certificate, a client learns after its handshake.
        why = f": {_reason(error)}" if isinstance(error, ssl.SSLError) else ""
        self._lose(f"the connection was lost{why}")

    def _handle(self, event: Event) -> None:
        if isinstance(event, Delivered):
            self._inbox.put((event, partial(self._acknowledge, self._session)), self)
        elif isinstance(event, Answered):
            self._settle(event.error)
        elif isinstance(event, Pinged) and self._transport is not None:
            self._transport.write(event.answer)
        elif isinstance(event, Ready) and self._greeted is not None:
            if not self._greeted.done():
                self._greeted.set_result(None)
        elif isinstance(event, Ended):
            self._lose(event.reason)

    def _acknowledge(self, session: ClientSession, receipts: bytes) -> None:
        if self._transport is not None and self._session is session:
            self._transport.write(receipts)

    def _settle(self, error: Refusal | None) -> None:
        if not self._requests:
            return
        future, remaining = self._requests.popleft()
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        elif not remaining:
            future.set_result(None)

    def _drop(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def _lose(self, reason: str) -> None:
        self._drop()
        was_up = self._up.is_set()
        self._up.clear()
        lost = Disconnected(reason)
        for future, _ in self._requests:
            if not future.done():
                future.set_exception(lost)
        self._requests.clear()
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_exception(lost)
            self._greeted.exception()  # not everyone waits to be greeted
        if was_up and not self._closed:
            self._come_back()

    def _come_back(self) -> None:
        self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        delay = FIRST_DELAY
        while True:
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            try:
                if await self._connect():
                    return
            except Disconnected:
                pass
            except HeadwaterError as error:
                # The broker is there and does not want us: trying again will not help.
                self._inbox.put(error, self)
                return
            delay = min(delay * 2, LONGEST_DELAY)


def _reason(error: OSError) -> str:
    """The system's words: asyncio puts the address of the socket in their place."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
