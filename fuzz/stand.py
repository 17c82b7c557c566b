"""A whole broker in this process, and connections to it without sockets.

The broker is the real one, from the configuration to the log on the disk; only its listeners are
left out. A connection is `transport/connection.py`, on a transport that is memory.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Self

from headwater.config import load
from headwater.identity.attempts import Attempts
from headwater.protocols.any_port import AnyPortSession
from headwater.protocols.base import Session, Terms
from headwater.protocols.recognition import in_order
from headwater.registry import REGISTRY
from headwater.server.server import Server
from headwater.transport.connection import Connection
from headwater.transport.tcp import Listener

#: The time of all signatures, and the secret of CrystalConnector in the wire vectors.
NOW = 1400567172
SHARED_SECRET = "secret"
APP, APP_SECRET = "fuzz", "a secret that is in no example"
#: Small, so that inputs reach the limit.
MESSAGE_BYTES = 64 * 1024

CONFIGURATION = f"""
[listen]
{"".join(f'{name} = "off"' + chr(10) for name in (*REGISTRY, "any", "console", "flight"))}
[log]
sync = "os"
segment_bytes = "16MiB"
retention_bytes = "64MiB"

[audit]
events = "off"

[limits]
message_bytes = "{MESSAGE_BYTES}"

[crystal]
secret_key = "{SHARED_SECRET}"

[[prism.apps]]
client_id = "{APP}"
client_secret = "{APP_SECRET}"
"""

Watch = Callable[[Session], Session]


class MemoryTransport(asyncio.Transport):
    """Takes what is written, and tells of the end as a socket does: a moment later."""

    def __init__(self, lost: Callable[[Exception | None], None]) -> None:
        super().__init__({"peername": ("192.0.2.1", 5000), "sockname": ("192.0.2.2", 80)})
        self.written: list[bytes] = []
        #: Hears what is written, instead of its being kept.
        self.reader: Callable[[bytes], None] | None = None
        #: Nothing more comes from the broker.
        self.ended = False
        self._lost = lost
        self._closing = False
        self._protocol: Any = None

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def write(self, data: Any) -> None:
        if self._closing:
            return
        if self.reader is not None:
            self.reader(bytes(data))
        else:
            self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        if not self._closing:
            self._closing = self.ended = True
            asyncio.get_running_loop().call_soon(self._lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closing

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_reading(self) -> bool:
        return not self._closing

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


class Stand:
    """A broker that runs, and its listeners by name."""

    def __init__(self, server: Server, data: Path, watch: Watch) -> None:
        self.server, self.data = server, data
        sessions = {name: each.session for name, each in server.services.items()}

        def anyone(terms: Terms) -> Session:
            return AnyPortSession(terms, in_order(REGISTRY.values()), sessions)

        self._listeners = {
            name: Listener(name, _steady(each, watch), server.connections)
            for name, each in {**sessions, "any": anyone}.items()
        }

    @classmethod
    async def start(cls, data: Path, watch: Watch, **flags: str) -> Self:
        """`flags`: settings of the configuration, with `__` for a dot."""
        file = data.with_suffix(".toml")
        file.write_text(CONFIGURATION)
        given = {"data": str(data)} | {k.replace("__", "."): v for k, v in flags.items()}
        stand = cls(await Server.start(load(file, given, {}).config), data, watch)
        # Whoever guesses for hours would be kept out, and nothing behind the gate be reached.
        stand.server.gate.attempts = Attempts(clock=count(step=1e9).__next__)
        return stand

    async def stop(self) -> None:
        await self.server.stop()

    def connect(self, name: str) -> tuple[Connection, MemoryTransport]:
        connection = Connection(self._listeners[name])
        transport = MemoryTransport(connection.connection_lost)
        connection.connection_made(transport)
        return connection, transport

    async def settle(self) -> None:
        """Until all that was published is durable, and has gone to whoever wants it."""
        engine, done = self.server.engine, asyncio.Event()
        engine.when_durable(engine.end, lambda _: done.set())
        engine.hurry()
        await done.wait()


def _steady(make: Callable[[Terms], Session], watch: Watch) -> Callable[[Terms], Session]:
    """Sessions to whom it is always the same moment, or signatures would be good for a day."""
    return lambda terms: watch(make(replace(terms, now=NOW)))
