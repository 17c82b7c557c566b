"""A BMTP client: one link for everything, and a window of 255 messages that wait for PUBACK."""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from typing import Self

from headwater.client.base import Client
from headwater.client.link import Link
from headwater.client.target import Target
from headwater.errors import Disconnected, HeadwaterError
from headwater.message import Headers
from headwater.protocols.bmtp import PROTOCOL
from headwater.protocols.bmtp import codec as bmtp

DEFAULT_PORT = PROTOCOL.port
# A broker ends connections that are silent; ours after 60 seconds, unless it is told otherwise.
PING_SECONDS = 20.0


class BmtpClient(Client):
    """Topics are those of channels: `bmtp/42`, or what `channels` says. The text `42` will do."""

    def __init__(
        self,
        host: str = "localhost",
        port: int = DEFAULT_PORT,
        *,
        dialect: bmtp.Dialect = "document",
        envelope: bmtp.EnvelopeName = "json",
        qos: int = 1,
        channels: Mapping[int, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if qos not in (0, 1, 2):
            raise HeadwaterError(f"BMTP's QoS is 0, 1 or 2, not {qos}")
        super().__init__(host, port, tls)
        self._dialect: bmtp.Dialect = dialect
        self._envelope: bmtp.EnvelopeName = envelope
        self._channels = channels
        self._qos = qos
        self._subscriptions: dict[str, None] = {}
        self._freed = asyncio.Event()
        self._pinging: asyncio.Task[None] | None = None
        self._codec = self._new_session()  # that of the connection there is, or will be
        self._link = Link(host, port, self._new_session, self._introduce, self._inbox, tls)

    @classmethod
    def from_target(cls, target: Target, settings: bmtp.BmtpSettings) -> Self:
        target.check_no_user()
        return cls(
            *target.address,
            dialect=settings.dialect,
            envelope=settings.envelope,
            channels=settings.channels,
            tls=target.tls,
        )

    async def open(self) -> None:
        await self._link.open()
        self._pinging = asyncio.get_running_loop().create_task(self._ping())

    async def close(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        await self._link.close(bmtp.BmtpClientSession.DISCONN)

    async def publish(
        self,
        topic: str,
        *payloads: bytes,
        headers: Headers = (),
        ack: bool = True,
        again: bool = False,
    ) -> None:
        """Publish to a channel. `again`: this may be a repeat, which with QoS 2 the broker finds
        out. Of headers, `producer_id` is the only one that BMTP's JSON envelope has."""
        bodies = self._codec.bodies(topic, payloads, headers)
        if ack and self._qos:
            await self._publish_all(bodies, again)
        else:
            await self._link.send(self._codec.publish(bodies, 0))

    async def subscribe(self, pattern: str) -> None:
        """Take messages from a channel; there are no patterns."""
        await self._link.request(self._codec.subscribe(pattern))
        self._subscriptions[pattern] = None

    async def _publish_all(self, bodies: list[bytes], again: bool) -> None:
        """As many at a time as the window has room for; answers are waited for at the end."""
        answers: list[asyncio.Task[None]] = []
        position = 0
        try:
            while position < len(bodies):
                room = await self._room(answers)
                part = bodies[position : position + room]
                packets = self._codec.publish(part, self._qos, again)
                answers.append(asyncio.create_task(self._link.ask(packets, len(part))))
                await asyncio.sleep(0)  # now it is sent
                position += len(part)
            await asyncio.gather(*answers)
        finally:
            for answer in answers:
                if not answer.cancel() and not answer.cancelled():
                    answer.exception()  # the first one is enough for the caller

    async def _room(self, answers: list[asyncio.Task[None]]) -> int:
        """Wait until something can be sent, or raise what went wrong with the messages before."""
        while True:
            _settle(answers)
            await self._link.send(b"")  # when there is a connection that takes bytes
            _settle(answers)
            if self._codec.room:
                return self._codec.room
            self._freed.clear()
            await self._freed.wait()

    async def _introduce(self, link: Link) -> None:
        await asyncio.gather(link.ask(bmtp.BmtpClientSession.HELLO), link.greeted())
        for pattern in list(self._subscriptions):
            await link.ask(self._codec.subscribe(pattern))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            with contextlib.suppress(Disconnected):
                await self._link.send(bmtp.BmtpClientSession.PING)

    def _new_session(self) -> bmtp.BmtpClientSession:
        self._codec = bmtp.BmtpClientSession(
            self._dialect, self._envelope, self._channels, self._freed.set
        )
        self._freed.set()
        return self._codec


def _settle(answers: list[asyncio.Task[None]]) -> None:
    for answer in answers:
        if answer.done():
            answer.result()
    answers[:] = [answer for answer in answers if not answer.done()]
