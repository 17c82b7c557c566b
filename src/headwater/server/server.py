"""Wires everything: a configuration becomes a running broker; start, drain, stop."""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

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
from headwater.protocols.any_port import AnyPortSession
from headwater.protocols.base import Service, Session, Terms
from headwater.protocols.recognition import in_order
from headwater.registry import REGISTRY
from headwater.server import wiring
from headwater.server.loop import loop_factory
from headwater.traffic import Traffic
from headwater.transport.tcp import Connections, Listener
from headwater.units import Address

logger = logging.getLogger(__name__)

# SIGTERM to exit takes at most 5 s: so long for the disk, so long for clients to take the rest.
SETTLE_SECONDS = 2.0
FAREWELL_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Server:
    """A running broker."""

    engine: EmbeddedEngine
    broker: Broker
    services: Mapping[str, Service]
    connections: Connections
    apps: AppHandlers
    admin: Admin
    control: Control
    flight: FlightService | None
    console: ConsoleSupervisor | None
    listeners: list[Listener] = field(default_factory=list)
    #: What was bound: (name, host, port).
    addresses: list[tuple[str, str, int]] = field(default_factory=list)

    @classmethod
    async def start(cls, config: Config, log_format: str = "text") -> "Server":
        _allow_many_files()
        tls = wiring.tls_context(config)
        engine = await EmbeddedEngine.open(config.data, wiring.log_settings(config))
        server = cls._assemble(config, engine, log_format)
        try:
            await server._recover()
            await server.control.start(config.data)
            await server._declare_queues()
            await server._listen(config, tls)
            await server._start_others()
        except BaseException:
            await server.stop()
            raise
        server._warn(config)
        return server

    @classmethod
    def _assemble(cls, config: Config, engine: EmbeddedEngine, log_format: str) -> "Server":
        """All parts, none of which has begun to work."""
        secrets: dict[str, str] = {}
        services = wiring.services(config, secrets)
        broker = Broker(
            engine,
            subscriptions=config.limits.subscriptions,
            repeat_seconds=wiring.repeat_seconds(services),
        )
        connections = Connections(wiring.bounds(config), broker.join, services)
        reports = PipelineReports()
        declare = partial(_declare_queues_of, broker, services)
        apps = AppHandlers(Apps(config.data / APPS_FILE), secrets, declare)
        admin = Admin(
            config=config,
            broker=broker,
            connections=connections,
            queue_spec=partial(wiring.queue_spec, services),
            counters=[counter for each in services.values() for counter in each.counters()],
            apps=apps,
            reports=reports,
        )
        return cls(
            engine=engine,
            broker=broker,
            services=services,
            connections=connections,
            apps=apps,
            admin=admin,
            control=Control(admin.handlers()),
            flight=_flight(config, broker, connections, reports),
            console=_console(config, log_format),
        )

    async def _recover(self) -> None:
        """Find out what the log says of the time before."""
        if self.flight is not None:
            await self.flight.recover()
        await self.broker.recall()

    async def _declare_queues(self) -> None:
        """Let the queues exist that have to, before anyone publishes."""
        await self.apps.load()
        for service in self.services.values():
            for queue in service.queues():
                self.broker.queue(queue)

    async def _listen(self, config: Config, tls: ssl.SSLContext | None) -> None:
        sessions = {name: each.session for name, each in self.services.items() if not each.off}
        for name, session in sessions.items():
            await self._bind(name, session, config.listen.protocols[name], tls)
        protocols = in_order(REGISTRY.values())
        anyone = partial(AnyPortSession, protocols=protocols, sessions=sessions)
        await self._bind("any", anyone, config.listen.any, tls)

    async def _bind(
        self,
        name: str,
        session: Callable[[Terms], Session],
        address: Address | None,
        tls: ssl.SSLContext | None,
    ) -> None:
        if address is None:
            return
        listener = Listener(name, session, self.connections)
        bound = await listener.listen(address.host, address.port, tls if address.secure else None)
        self.listeners.append(listener)
        self.addresses.append((name, *bound))

    async def _start_others(self) -> None:
        if self.flight is not None:
            self.addresses.append(("flight", *await self.flight.start()))
        if self.console is not None:
            self.addresses.append(("console", *await self.console.start()))

    def _warn(self, config: Config) -> None:
        """Say who is shut out, and what to do about it."""
        for name, service in self.services.items():
            sentence = service.off or service.warning()
            if sentence and config.listen.protocols[name] is not None:
                logger.warning(sentence)
        console = config.listen.console
        exposed = console is not None and not is_loopback(console.host)
        if exposed and not Users(config.data / USERS_FILE).all():
            logger.warning(
                "the console has no users, so nobody may use it: "
                "add one with 'headwater user add NAME'"
            )

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


def _flight(
    config: Config, broker: Broker, connections: Connections, reports: PipelineReports
) -> FlightService | None:
    settings = wiring.flight_settings(config)
    if settings is None:
        return None
    return FlightService(
        broker=broker,
        data=config.data,
        settings=settings,
        report=reports.report,
        traffic=connections.traffic.setdefault("flight", Traffic()),
    )


def _console(config: Config, log_format: str) -> ConsoleSupervisor | None:
    settings = wiring.console_settings(config)
    return None if settings is None else ConsoleSupervisor(settings, log_format=log_format)


def _declare_queues_of(broker: Broker, services: Mapping[str, Service], app: str) -> None:
    """Let the queues exist that an app has from now on, if they do not yet."""
    for service in services.values():
        for queue in service.queues_of_app(app):
            broker.queue(queue)


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


def _allow_many_files() -> None:
    """Each connection is an open file; take as many as the system gives without asking."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
