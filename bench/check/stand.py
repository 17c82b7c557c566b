"""A broker in this process, and connections without sockets.

What a client sends is handed to its connection as the event loop would do it; what the broker sends
is counted. The log is a real one. It is not synced: how long a disk takes is not what is asked.
"""

import asyncio
import queue
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from bench.wire import WIRES, crystal, prism
from headwater.broker.broker import Broker
from headwater.log.embedded.engine import EmbeddedEngine, LogSettings
from headwater.protocols.crystal.settings import CrystalSettings
from headwater.protocols.prism.settings import PrismApp, PrismSettings
from headwater.registry import REGISTRY
from headwater.transport.connection import Connection
from headwater.transport.tcp import Bounds, Connections, Listener

PATIENCE = 30.0  # seconds; what has not come by then is lost
_CALM_TURNS = 20
# No segment fills up: sealing one would be a part of some rounds and not of others.
_LOG = LogSettings(sync="os", segment_bytes=4 * 1024**3)
_SETTINGS: dict[str, object] = {
    "crystal": CrystalSettings(secret_key=crystal.SECRET),
    "prism": PrismSettings(apps=(PrismApp(client_id=prism.APP, client_secret=prism.SECRET),)),
}


class Client(asyncio.Transport):
    """One connection: the transport that the broker writes to, and how to send to the broker."""

    def __init__(self, stand: "Stand", listener: Listener) -> None:
        super().__init__({"peername": ("127.0.0.1", 0)})
        self._stand = stand
        self._said: queue.SimpleQueue[bytes] | None = queue.SimpleQueue()
        self._may_send = asyncio.Event()
        self._may_send.set()
        self._closed = False
        self._connection = Connection(listener)
        self._connection.connection_made(self)
        #: Send, whether or not the broker wants to read.
        self.send_now = self._connection.data_received

    async def open(self, how: Callable[[socket.socket], None]) -> None:
        """Shake hands as with a socket, in a thread."""
        assert self._said is not None
        link = _Link(asyncio.get_running_loop(), self.send_now, self._said)
        await asyncio.to_thread(how, cast(socket.socket, link))
        self._said = None

    async def send(self, data: bytes) -> None:
        """Send when the broker reads, and give it a turn."""
        await self._may_send.wait()
        self.send_now(data)
        await asyncio.sleep(0)

    # The broker calls these

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._said is None:
            self._stand.count(len(data))
        else:
            self._said.put(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        for data in list_of_data:
            self.write(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def pause_reading(self) -> None:
        self._may_send.clear()

    def resume_reading(self) -> None:
        self._may_send.set()

    def is_closing(self) -> bool:
        return self._closed

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)

    abort = close


class _Link:
    """As much of a socket as a handshake needs."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[bytes], None],
        said: queue.SimpleQueue[bytes],
    ) -> None:
        self._loop = loop
        self._send = send
        self._said = said
        self._unread = b""

    def sendall(self, data: bytes) -> None:
        self._loop.call_soon_threadsafe(self._send, data)

    def recv(self, size: int) -> bytes:
        if not self._unread:
            self._unread = self._said.get(timeout=PATIENCE)
        data, self._unread = self._unread[:size], self._unread[size:]
        return data


class Stand:
    def __init__(self, engine: EmbeddedEngine) -> None:
        self.engine = engine
        self.broker = Broker(engine)
        self.connections = Connections(Bounds(), self.broker.join, REGISTRY)
        engine.attach(self.connections.turn)
        self._listeners: dict[str, Listener] = {}
        #: Bytes that the broker has sent, to everyone.
        self.received = 0
        self._wanted = 0
        self._reached = asyncio.Event()

    def _listener(self, name: str) -> Listener:
        if name not in self._listeners:
            protocol = REGISTRY[name]
            service = protocol.serve(_SETTINGS.get(name, protocol.settings()), {})
            self._listeners[name] = Listener(name, service.session, self.connections)
        return self._listeners[name]

    async def publisher(self, wire: str, topic: str) -> Client:
        made = Client(self, self._listener(wire))
        await made.open(lambda link: WIRES[wire].open_publisher(link, topic))
        return made

    async def subscriber(self, wire: str, topic: str) -> Client:
        made = Client(self, self._listener(wire))
        await made.open(lambda link: WIRES[wire].open_subscriber(link, topic))
        return made

    def count(self, size: int) -> None:
        self.received += size
        if self.received >= self._wanted:
            self._reached.set()

    async def until(self, received: int) -> None:
        """Until the broker has sent so many bytes, since the beginning."""
        if self.received < received:
            self._wanted = received
            self._reached.clear()
            await self._reached.wait()

    async def durable(self) -> None:
        settled = asyncio.Event()
        self.engine.when_durable(self.engine.end, lambda _: settled.set())
        await settled.wait()

    async def learn(self, act: Callable[[], Awaitable[None]]) -> int:
        """How many bytes the broker sends in answer to something."""
        before = self.received
        await act()
        await self.durable()
        for _ in range(_CALM_TURNS):
            await asyncio.sleep(0.001)
        return self.received - before


@asynccontextmanager
async def a_stand(directory: Path) -> AsyncIterator[Stand]:
    made = Stand(await EmbeddedEngine.open(directory, _LOG))
    try:
        yield made
    finally:
        await made.connections.dismiss(1.0)
        await made.broker.stop()
        await made.engine.close()
