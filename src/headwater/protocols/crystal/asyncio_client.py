"""A CrystalConnector client.

A connection says once, in the beginning, with which channels it deals. So there is a link for all
channels that are given beforehand, and one of its own for each topic that is published or
subscribed to later. Only one open connection may have a client id: further links have a number
behind it.
"""

import os
import secrets
import ssl
from collections.abc import Callable, Mapping
from itertools import count
from typing import Self

from headwater.client.base import MESSAGE_BYTES, Client
from headwater.client.link import Inbox, Link
from headwater.client.target import Target
from headwater.errors import Code, HeadwaterError, Refusal
from headwater.message import Headers
from headwater.protocols.crystal import PROTOCOL
from headwater.protocols.crystal import codec as crystal

DEFAULT_PORT = PROTOCOL.port


class CrystalClient(Client):
    """`channels` are topics, each with a direction: INCOMING, OUTGOING or ALL of
    `headwater.protocols.crystal`."""

    def __init__(
        self,
        host: str = "localhost",
        port: int = DEFAULT_PORT,
        *,
        secret: str,
        client_id: str = "",
        client_name: str = "headwater",
        channels: Mapping[str, int] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(host, port, tls)
        self._secret, self._client_name = secret, client_name
        self._client_id, self._numbers = client_id, count(1)
        self._channels = dict(channels or {})
        self._publishing: dict[str, _Connection] = {}
        self._subscribed: dict[str, _Connection] = {}

    @classmethod
    def from_target(cls, target: Target, settings: crystal.CrystalSettings) -> Self:
        given = target.password or target.user or os.environ.get("HEADWATER_CRYSTAL_SECRET_KEY")
        secret = given or settings.secret_key
        if not secret:
            raise HeadwaterError(
                "CrystalConnector wants a secret: write crystal://secret@host, or set "
                "HEADWATER_CRYSTAL_SECRET_KEY"
            )
        return cls(*target.address, secret=secret, tls=target.tls)

    async def open(self) -> None:
        """Links for other topics are opened when those are known."""
        if self._channels:
            connection = await self._connect(self._channels)
            for topic, direction in self._channels.items():
                if direction & crystal.OUTGOING:
                    self._publishing[topic] = connection
                if direction & crystal.INCOMING:
                    self._subscribed[topic] = connection

    async def close(self) -> None:
        for connection in {*self._publishing.values(), *self._subscribed.values()}:
            await connection.link.close(connection.codec.close_frame())

    async def publish(
        self, topic: str, *payloads: bytes, headers: Headers = (), ack: bool = True
    ) -> None:
        """Payloads are text in UTF-8."""
        if headers:
            raise Refusal(Code.MALFORMED, "CrystalConnector has no headers")
        connection = self._publishing.get(topic)
        if connection is None:
            connection = await self._connect({topic: crystal.OUTGOING})
            self._publishing[topic] = connection
        if not payloads:
            return
        frames = connection.codec.publish(topic, payloads)
        if ack:
            await connection.link.request(frames, len(payloads))
        else:
            await connection.link.send(frames, len(payloads))

    async def subscribe(self, pattern: str) -> None:
        """`pattern` is a topic; there are no wildcards."""
        if pattern not in self._subscribed:
            self._subscribed[pattern] = await self._connect({pattern: crystal.INCOMING})

    async def _connect(self, directions: Mapping[str, int]) -> "_Connection":
        number = next(self._numbers)

        def introduction(codec: crystal.CrystalClientSession) -> bytes:
            client_id = self._id_of_link(number)
            return codec.authenticate(client_id, self._client_name, self._secret, directions)

        connection = _Connection(self._host, self._port, introduction, self._inbox, self._tls)
        await connection.link.open()
        return connection

    def _id_of_link(self, number: int) -> tuple[str, str]:
        if not self._client_id:
            # A new one each time: the broker may not know yet that the last connection is gone.
            return "headwater", secrets.token_hex(16)
        namespace, name = crystal.channel_of(self._client_id)
        return namespace, name if number == 1 else f"{name}_{number}"


class _Connection:
    """A link, and the codec of the connection that it has at the moment."""

    def __init__(
        self,
        host: str,
        port: int,
        introduction: Callable[[crystal.CrystalClientSession], bytes],
        inbox: Inbox,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._introduction = introduction
        self._address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self.codec = crystal.CrystalClientSession(MESSAGE_BYTES)
        self.link = Link(host, port, self._new_codec, self._introduce, inbox, tls)

    def _new_codec(self) -> crystal.CrystalClientSession:
        """Each connection proves its own handshake."""
        self.codec = crystal.CrystalClientSession(MESSAGE_BYTES)
        return self.codec

    async def _introduce(self, link: Link) -> None:
        await link.ask(self.codec.request(self._address, "/"))
        await link.ask(self._introduction(self.codec))
