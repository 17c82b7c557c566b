"""A client: one link for everything."""

import ssl
from typing import Self

from headwater.client.base import Client
from headwater.client.link import Link
from headwater.client.target import Target
from headwater.message import Headers

from .codec import LineClientSession


class LineClient(Client):
    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(host, port, tls)
        self._patterns: list[str] = []
        self._link = Link(host, port, LineClientSession, self._introduce, self._inbox, tls)

    @classmethod
    def from_target(cls, target: Target, settings: object) -> Self:
        return cls(*target.address, tls=target.tls)

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def publish(
        self, topic: str, *payloads: bytes, headers: Headers = (), ack: bool = True
    ) -> None:
        lines = b"".join([b"PUB %s %s\n" % (topic.encode(), payload) for payload in payloads])
        if ack:
            await self._link.request(lines, len(payloads))
        else:
            await self._link.send(lines, len(payloads))

    async def subscribe(self, pattern: str) -> None:
        await self._link.request(f"SUB {pattern}\n".encode())
        self._patterns.append(pattern)

    async def _introduce(self, link: Link) -> None:
        for pattern in self._patterns:
            await link.ask(f"SUB {pattern}\n".encode())
