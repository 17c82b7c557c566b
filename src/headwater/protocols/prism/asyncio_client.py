"""A Prism client: one link for everything.

Prism does not answer commands. It does answer a WebSocket ping, and only after everything that came
before: the pong proves that messages are durable and that a queue is being consumed.
"""

import asyncio
import os
import ssl
import time
from typing import Self

from headwater.client.base import MESSAGE_BYTES, Client
from headwater.client.link import Link
from headwater.client.target import Target
from headwater.errors import HeadwaterError
from headwater.message import Headers
from headwater.protocols.prism import PROTOCOL
from headwater.protocols.prism import codec as prism

DEFAULT_PORT = PROTOCOL.port
# So many messages may be on their way before the first of them is acknowledged.
PREFETCH = 100


class PrismClient(Client):
    def __init__(
        self,
        host: str = "localhost",
        port: int = DEFAULT_PORT,
        *,
        app: str,
        secret: str,
        queue: str = "",
        prefetch: int | None = PREFETCH,
        path: str = "/api/notify",
        user_agent: str = "headwater",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(host, port, tls)
        self._app, self._secret, self._queue = app, secret, queue
        self._path, self._user_agent = path, user_agent
        self._prefetch = prefetch
        self._consumed: dict[str, None] = {}
        self._codec = prism.PrismClientSession(MESSAGE_BYTES)
        self._link = Link(host, port, self._new_codec, self._introduce, self._inbox, tls)

    @classmethod
    def from_target(cls, target: Target, settings: prism.PrismSettings) -> Self:
        known = {app.client_id: app.client_secret for app in settings.apps}
        environ = os.environ
        app = target.user or environ.get("HEADWATER_PRISM_CLIENT_ID") or next(iter(known), "")
        given = target.password or environ.get("HEADWATER_PRISM_CLIENT_SECRET")
        secret = given or known.get(app)
        if not app or not secret:
            raise HeadwaterError(
                "Prism wants a client_id and its secret: write prism://client_id:secret@host, or "
                "set HEADWATER_PRISM_CLIENT_ID and HEADWATER_PRISM_CLIENT_SECRET"
            )
        return cls(*target.address, app=app, secret=secret, tls=target.tls)

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close(self._codec.close_frame())

    async def publish(
        self, topic: str, *payloads: bytes, headers: Headers = (), ack: bool = True
    ) -> None:
        """Prism carries one header, `content-type`."""
        frames = self._codec.publish(topic, payloads, headers)
        if ack:
            await self._link.request(frames + self._codec.ping())
        else:
            await self._link.send(frames)

    async def subscribe(self, pattern: str = "") -> None:
        """Take messages from the app's queue of this name, or from its default queue."""
        queue = pattern or self._queue
        await self._link.request(self._codec.consume(queue) + self._codec.ping())
        self._consumed[queue] = None

    def _new_codec(self) -> prism.PrismClientSession:
        """Each connection proves its own handshake."""
        self._codec = prism.PrismClientSession(MESSAGE_BYTES)
        return self._codec

    async def _introduce(self, link: Link) -> None:
        now = int(time.time())
        target = prism.signed_target(self._path, self._app, self._secret, now, self._prefetch)
        host = f"[{self._host}]" if ":" in self._host else self._host
        about = (("User-Agent", self._user_agent),)
        request = self._codec.request(f"{host}:{self._port}", target, about)
        await asyncio.gather(link.ask(request), link.greeted())
        for queue in list(self._consumed):
            await link.ask(self._codec.consume(queue) + self._codec.ping())
