"""Wires everything: a configuration becomes a running broker; start, drain, stop."""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from headwater.broker.broker import Broker
from headwater.config import Config
from headwater.log.embedded.engine import EmbeddedEngine, Settings
from headwater.protocols import REGISTRY, Protocol, bpsp, psmb
from headwater.protocols.base import Session, Terms
from headwater.transport.tcp import Bounds, Connections, Listener

logger = logging.getLogger(__name__)

# SIGTERM to exit takes at most 5 s: so long for the disk, so long for clients to take the rest.
SETTLE_SECONDS = 2.0
FAREWELL_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Server:
    """A running broker."""

    engine: EmbeddedEngine
    broker: Broker
    connections: Connections
    listeners: list[Listener]
    #: What was bound: (name, host, port).
    addresses: list[tuple[str, str, int]]

    @classmethod
    async def start(cls, config: Config) -> "Server":
        _allow_many_files()
        engine = await EmbeddedEngine.open(config.data, _log_settings(config))
        broker = Broker(engine, config.limits.subscriptions)
        connections = Connections(_bounds(config), broker.join)
        server = cls(engine, broker, connections, [], [])
        try:
            await server._listen(config)
        except BaseException:
            await server.stop()
            raise
        return server

    async def _listen(self, config: Config) -> None:
        settings = _protocol_settings(config)
        for name, protocol in REGISTRY.items():
            address = getattr(config.listen, name)
            if address is not None:
                make = partial(_make_session, protocol, settings[name])
                listener = Listener(name, make, self.connections)
                bound = await listener.listen(address.host, address.port)
                self.listeners.append(listener)
                self.addresses.append((name, *bound))

    async def stop(self) -> None:
        """Drain: accept nothing new, make durable what was accepted, say goodbye."""
        for listener in self.listeners:
            listener.stop()
        self.connections.hush()
        settled = asyncio.Event()
        self.engine.when_durable(self.engine.end, lambda _: settled.set())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(settled.wait(), SETTLE_SECONDS)
        await self.connections.dismiss(FAREWELL_SECONDS)
        self.broker.close()
        await self.engine.close()


async def serve(config: Config, announce: Callable[[Server], None]) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    server = await Server.start(config)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    announce(server)
    await stop.wait()
    logger.info("draining")
    await server.stop()


def run(config: Config, announce: Callable[[Server], None]) -> None:
    # The newest batches stay in memory, and the collector would look through all of them again and
    # again: a fifth of the CPU with many small messages. Hardly anything here is ever in a cycle.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    with asyncio.Runner(loop_factory=loop_factory(config.loop)) as runner:
        runner.run(serve(config, announce))


def loop_factory(choice: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed, unless the configuration says otherwise."""
    if choice == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if choice == "uvloop":
            raise
        return None
    return uvloop.new_event_loop


def _log_settings(config: Config) -> Settings:
    log = config.log
    return Settings(
        log.sync, log.sync_interval, log.segment_bytes, log.retention_bytes, log.retention_age
    )


def _bounds(config: Config) -> Bounds:
    limits = config.limits
    return Bounds(
        limits.connections,
        limits.message_bytes,
        limits.topic_bytes,
        limits.output_buffer_bytes,
        limits.handshake_seconds,
    )


def _make_session(protocol: Protocol, settings: Any, terms: Terms) -> Session:
    return protocol.session(terms, settings)


def _protocol_settings(config: Config) -> dict[str, Any]:
    return {
        psmb.NAME: psmb.Settings(config.psmb.keepalive_seconds, config.psmb.keepalive_misses),
        bpsp.NAME: bpsp.Settings(),
    }


def _allow_many_files() -> None:
    """Each connection is an open file; take as many as the system gives without asking."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
