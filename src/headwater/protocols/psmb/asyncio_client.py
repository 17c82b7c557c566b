"""A PSMB client. A connection has one mode, so each topic and each pattern has its own link."""

import ssl
from typing import Self

from headwater.client.base import MESSAGE_BYTES, Client
from headwater.client.link import Link
from headwater.client.target import Target
from headwater.errors import Code, Refusal
from headwater.message import Headers
from headwater.protocols.psmb import PROTOCOL
from headwater.protocols.psmb import codec as psmb

DEFAULT_PORT = PROTOCOL.port


class PsmbClient(Client):
    def __init__(
        self,
        host: str = "localhost",
        port: int = DEFAULT_PORT,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(host, port, tls)
        self._publishing: dict[str, Link] = {}
        self._subscribed: list[Link] = []

    @classmethod
    def from_target(cls, target: Target, settings: psmb.PsmbSettings) -> Self:
        target.check_no_user()
        return cls(*target.address, tls=target.tls)

    async def open(self) -> None:
        """Links are opened when their topic or pattern is known."""

    async def close(self) -> None:
        for link in [*self._publishing.values(), *self._subscribed]:
            await link.close(psmb.BYE)

    async def publish(
        self, topic: str, *payloads: bytes, headers: Headers = (), ack: bool = True
    ) -> None:
        if headers:
            raise Refusal(Code.MALFORMED, "PSMB has no headers")
        if topic not in self._publishing:
            self._publishing[topic] = await self._link(
                psmb.PsmbClientSession.publishing(_ascii(topic))
            )
        link = self._publishing[topic]
        frames = psmb.encode_messages(payloads) if payloads else b""
        if ack:
            # The NIL that answers this NOP comes when everything before it is durable.
            await link.request(frames + psmb.NOP)
        else:
            await link.send(frames)

    async def subscribe(self, pattern: str, subscriber: int | None = None) -> None:
        """`pattern` is a PCRE pattern for the whole topic. With a `subscriber` id, the broker
        remembers what was received, and begins with everything it retains."""
        mode = psmb.PsmbClientSession.subscribe(_ascii(pattern), subscriber)
        self._subscribed.append(await self._link(mode, pattern))

    async def subscribe_as(self, subscriber: int, pattern: str) -> None:
        await self.subscribe(pattern, subscriber)

    async def _link(self, mode: bytes, pattern: str = "") -> Link:
        async def introduce(link: Link) -> None:
            # I.3: the client is in state (II), where it chooses the mode, after message 3.
            await link.greeted(psmb.PsmbClientSession.hello())
            await link.ask(mode)

        def session() -> psmb.PsmbClientSession:
            return psmb.PsmbClientSession(MESSAGE_BYTES, pattern)

        link = Link(self._host, self._port, session, introduce, self._inbox, self._tls)
        await link.open()
        return link


def _ascii(text: str) -> str:
    if not text.isascii():
        raise Refusal(Code.MALFORMED, f"PSMB's names are ASCII, this one is not: {text}")
    return text
