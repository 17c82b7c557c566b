"""What every client can do, whatever it speaks.

async with connect("bpsp://localhost") as client:
    await client.publish("sensors/a", b"21.5")        # durable when this returns
    await client.subscribe("sensors/+")
    async for message in client:
        print(message.topic, message.payload)
"""

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headwater.client.link import Inbox
from headwater.message import Headers

MESSAGE_BYTES = 1 << 30  # what a client accepts from a broker it chose itself


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `topic` is as much as the protocol tells."""

    topic: str
    payload: bytes
    headers: Headers = ()


class Client(ABC):
    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._inbox = Inbox()
        self._messages: deque[Message] = deque()

    @abstractmethod
    async def publish(
        self, topic: str, *payloads: bytes, headers: Headers = (), ack: bool = True
    ) -> None:
        """Publish to a topic. With `ack`, all payloads are durable when this returns."""

    @abstractmethod
    async def subscribe(self, pattern: str) -> None:
        """Receive what is published to the topics that match, from now on."""

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
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        while not self._messages:
            batch = await self._inbox.take()
            self._messages.extend(
                [Message(batch.topic, payload, batch.headers) for payload in batch.payloads]
            )
        return self._messages.popleft()
