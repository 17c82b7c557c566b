"""What every client can do, whatever it speaks.

async with connect(url) as client:
    await client.publish("sensors/a", b"21.5")        # durable when this returns
    await client.subscribe("sensors/+")
    async for message in client:
        print(message.topic, message.payload)
"""

import ssl
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from headwater.client.link import Inbox, Receipt
from headwater.client.target import Target
from headwater.errors import Code, Refusal
from headwater.message import Headers

MESSAGE_BYTES = 1 << 30  # what a client accepts from a broker it chose itself
# So many messages are acknowledged together while more of them are at hand.
RECEIPTS_TOGETHER = 32


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `topic` is as much as the protocol tells."""

    topic: str
    payload: bytes
    headers: Headers = ()


class Client(ABC):
    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._inbox = Inbox()
        self._messages: deque[Message] = deque()
        self._receipts: deque[bytes] = deque()  # of those messages, where they need one
        self._done: list[bytes] = []  # receipts to be sent
        self._taken = False  # the application has a message that it may still be working on
        self._acknowledge: Receipt = _ignore

    @property
    def secure(self) -> bool:
        """It speaks inside TLS, or not at all."""
        return self._tls is not None

    @classmethod
    @abstractmethod
    def from_target(cls, target: Target, settings: Any) -> Self:
        """The client for a URL, with the settings of its protocol for what that leaves open."""

    @abstractmethod
    async def publish(
        self, topic: str, *payloads: bytes, headers: Headers = (), ack: bool = True
    ) -> None:
        """Publish to a topic. With `ack`, all payloads are durable when this returns."""

    @abstractmethod
    async def subscribe(self, pattern: str) -> None:
        """Receive what is published to the topics that match, from now on."""

    async def subscribe_as(self, subscriber: int, pattern: str) -> None:
        """Be the durable subscriber of this number: receive what it has not received yet."""
        raise Refusal(Code.NOT_PERMITTED, "this protocol has no durable subscriptions")

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:  # otherwise the application may not be done with the last message
            self._finish()
            self._flush()
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message. To ask for it says that the application is done with the one before,
        which is then acknowledged where the protocol does so."""
        self._finish()
        while not self._messages:
            self._flush()
            batch, self._acknowledge = await self._inbox.take()
            self._receipts.extend(batch.receipts)
            self._messages.extend(
                [Message(batch.topic, payload, batch.headers) for payload in batch.payloads]
            )
        if len(self._done) >= RECEIPTS_TOGETHER:
            self._flush()
        self._taken = True
        return self._messages.popleft()

    def _finish(self) -> None:
        if self._taken and self._receipts:
            self._done.append(self._receipts.popleft())
        self._taken = False

    def _flush(self) -> None:
        if self._done:
            self._acknowledge(b"".join(self._done))
            self._done.clear()


def _ignore(receipts: bytes) -> None:
    pass
