"""Wires everything: a configuration becomes a running broker; start, drain, stop."""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from headwater.admin.admin import Admin
from headwater.admin.apps import AppHandlers
from headwater.admin.pipelines import PipelineReports
from headwater.broker.broker import Broker
from headwater.config import Config
from headwater.console.settings import is_loopback
from headwater.console.supervisor import ConsoleSupervisor
from headwater.control import Control
from headwater.flight import FlightService
from headwater.identity.apps import FILE as APPS_FILE
from headwater.identity.apps import Apps
from headwater.identity.users import FILE as USERS_FILE
from headwater.identity.users import Users
from headwater.log.embedded.engine import EmbeddedEngine
from headwater.protocols import REGISTRY, Protocol, bmtp, crystal, prism
from headwater.protocols.base import Session, Terms
from headwater.protocols.prism import DEFAULT_QUEUE
from headwater.protocols.recognition import Recognition
from headwater.server import wiring
from headwater.traffic import Traffic
from headwater.transport.tcp import Connections, Listener

logger = logging.getLogger(__name__)

# SIGTERM to exit takes at most 5 s: so long for the disk, so long for clients to take the rest.
SETTLE_SECONDS = 2.0
FAREWELL_SECONDS = 1.5

#: Counters that the protocols keep, by the name of their metric.
COUNTERS = {
    "bmtp_skipped": lambda: bmtp.SKIPS.count,
    "prism_unknown_tags": lambda: prism.UNKNOWN_TAGS.count,
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running broker."""

    engine: EmbeddedEngine
    broker: Broker
    connections: Connections
    admin: Admin
    control: Control
    flight: FlightService | None
    console: ConsoleSupervisor | None
    listeners: list[Listener]
    #: What was bound: (name, host, port).
    addresses: list[tuple[str, str, int]]

    @classmethod
    async def start(cls, config: Config, log_format: str = "text") -> "Server":
        _allow_many_files()
        tls = wiring.tls_context(config)
        engine = await EmbeddedEngine.open(config.data, wiring.log_settings(config))
        broker = Broker(
            engine,
            subscriptions=config.limits.subscriptions,
            repeat_seconds=config.bmtp.dedup_seconds,
        )
        connections = Connections(wiring.bounds(config), broker.join, REGISTRY)
        secrets = {app.client_id: app.client_secret for app in config.prism.apps}
        settings = wiring.protocol_settings(config, secrets)
        reports = PipelineReports()
        apps = AppHandlers(
            Apps(config.data / APPS_FILE),
            secrets,
            lambda app: _declare(broker, settings, app, DEFAULT_QUEUE),
        )
        admin = Admin(
            config=config,
            broker=broker,
            connections=connections,
            queue_spec=partial(wiring.queue_spec, settings),
            counters=COUNTERS,
            apps=apps,
            reports=reports,
        )
        control = Control(admin.handlers())
        flight_settings = wiring.flight_settings(config)
        flight: FlightService | None = None
        if flight_settings is not None:
            flight = FlightService(
                broker=broker,
                data=config.data,
                settings=flight_settings,
                report=reports.report,
                traffic=connections.traffic.setdefault("flight", Traffic()),
            )
        console_settings = wiring.console_settings(config)
        console = (
            ConsoleSupervisor(console_settings, log_format=log_format) if console_settings else None
        )
        server = cls(engine, broker, connections, admin, control, flight, console, [], [])
        try:
            if flight is not None:
                await flight.recover()
            await broker.recall()
            await control.start(config.data)
            await apps.load()
            for queue in config.prism.queues:
                _declare(broker, settings, queue.app, queue.name)
            await server._listen(config, settings, tls)
            if flight is not None:
                server.addresses.append(("flight", *await flight.start()))
            if console is not None:
                server.addresses.append(("console", *await console.start()))
        except BaseException:
            await server.stop()
            raise
        _say_who_is_shut_out(config, secrets)
        return server

    async def _listen(
        self, config: Config, settings: Mapping[str, Any], tls: ssl.SSLContext | None
    ) -> None:
        sessions: dict[str, Callable[[Terms], Session]] = {
            name: partial(_make_session, protocol, settings[name])
            for name, protocol in REGISTRY.items()
            if name != crystal.NAME or config.crystal.secret_key
        }
        everyone: dict[str, Callable[[Terms], Session]] = {
            **sessions,
            "any": partial(Recognition, sessions=sessions),
        }
        for name, session in everyone.items():
            address = getattr(config.listen, name)
            if address is not None:
                listener = Listener(name, session, self.connections)
                context = tls if address.secure else None
                bound = await listener.listen(address.host, address.port, context)
                self.listeners.append(listener)
                self.addresses.append((name, *bound))

    async def stop(self) -> None:
        """Drain: accept nothing new, make durable what was accepted, say goodbye."""
        for listener in self.listeners:
            listener.stop()
        if self.console is not None:
            await self.console.stop()
        await self.control.stop()
        if self.flight is not None:
            await self.flight.stop()
        self.admin.close()
        self.connections.hush()
        settled = asyncio.Event()
        self.engine.when_durable(self.engine.end, lambda _: settled.set())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(settled.wait(), SETTLE_SECONDS)
        await self.connections.dismiss(FAREWELL_SECONDS)
        self.broker.close()
        await self.engine.close()


def _make_session(protocol: Protocol, settings: Any, terms: Terms) -> Session:
    return protocol.session(terms, settings)


def _declare(broker: Broker, settings: Mapping[str, Any], app: str, name: str) -> None:
    """Let a queue exist from now on, if it does not yet."""
    broker.queue(prism.queue_spec(settings[prism.NAME], app, name))


def _say_who_is_shut_out(config: Config, apps: Mapping[str, str]) -> None:
    if config.listen.prism and not apps:
        logger.warning(
            "prism refuses everyone, because there are no apps: "
            "add one with 'headwater app add NAME'"
        )
    console = config.listen.console
    exposed = console is not None and not is_loopback(console.host)
    if exposed and not Users(config.data / USERS_FILE).all():
        logger.warning(
            "the console has no users, so nobody may use it: add one with 'headwater user add NAME'"
        )
    if config.listen.crystal and not config.crystal.secret_key:
        logger.warning(
            "crystal is off, because it has no secret: set [crystal] secret_key "
            "or HEADWATER_CRYSTAL_SECRET_KEY"
        )


async def serve(config: Config, announce: Callable[[Server], None], log_format: str) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    server = await Server.start(config, log_format)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    announce(server)
    await stop.wait()
    logger.info("draining")
    await server.stop()


def run(config: Config, announce: Callable[[Server], None], log_format: str = "text") -> None:
    # The newest batches stay in memory, and the collector would look through all of them again and
    # again: a fifth of the CPU with many small messages. Hardly anything here is ever in a cycle.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    with asyncio.Runner(loop_factory=loop_factory(config.loop)) as runner:
        runner.run(serve(config, announce, log_format))


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


def _allow_many_files() -> None:
    """Each connection is an open file; take as many as the system gives without asking."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
