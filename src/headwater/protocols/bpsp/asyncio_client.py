"""A BPSP client: one link for everything."""

import ssl
from typing import Self

from headwater.client.base import MESSAGE_BYTES, Client
from headwater.client.link import Link
from headwater.client.target import Target
from headwater.message import Headers
from headwater.protocols.bpsp import PROTOCOL
from headwater.protocols.bpsp import codec as bpsp

DEFAULT_PORT = PROTOCOL.port


class BpspClient(Client):
    def __init__(
        self,
        host: str = "localhost",
        port: int = DEFAULT_PORT,
        *,
        user: str = "",
        password: str = "",
        echo: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(host, port, tls)
        self._user, self._password, self._echo = user, password, echo
        self._codec = bpsp.BpspClientSession(MESSAGE_BYTES)
        self._subscriptions: dict[tuple[str, str], None] = {}
        self._link = Link(
            host,
            port,
            lambda: bpsp.BpspClientSession(MESSAGE_BYTES),
            self._introduce,
            self._inbox,
            tls,
        )

    @classmethod
    def from_target(cls, target: Target, settings: object) -> Self:
        return cls(*target.address, user=target.user, password=target.password, tls=target.tls)

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def publish(
        self, topic: str, *payloads: bytes, headers: Headers = (), ack: bool = True
    ) -> None:
        frames = self._codec.publish(topic, payloads, headers, ack=ack, echo=self._echo)
        if ack and payloads:
            await self._link.request(frames, len(payloads))
        else:
            await self._link.send(frames)

    async def subscribe(self, pattern: str, tag: str = bpsp.DEFAULT_TAG) -> None:
        """`pattern` is a topic with wildcards: `+` is one level, a last `*` one or more."""
        await self._link.request(self._codec.subscribe(pattern, tag))
        self._subscriptions[pattern, tag] = None

    async def unsubscribe(self, pattern: str, tag: str = bpsp.DEFAULT_TAG) -> None:
        await self._link.request(self._codec.unsubscribe(pattern, tag))
        self._subscriptions.pop((pattern, tag), None)

    async def _introduce(self, link: Link) -> None:
        await link.greeted()  # CONNECT is sent "after received INFO"
        await link.ask(self._codec.connect(self._user, self._password))
        for pattern, tag in list(self._subscriptions):
            await link.ask(self._codec.subscribe(pattern, tag))
