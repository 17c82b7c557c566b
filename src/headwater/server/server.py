"""Wires everything: a configuration becomes a running broker; start, drain, stop."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NoReturn

from headwater.admin.admin import Admin
from headwater.admin.apps import AppHandlers
from headwater.admin.pipelines import PipelineReports
from headwater.broker.broker import Broker
from headwater.config import Config
from headwater.console.settings import is_loopback
from headwater.console.supervisor import ConsoleSupervisor
from headwater.control import Control
from headwater.errors import HeadwaterError, LogUnavailable
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
from headwater.server import garbage, wiring
from headwater.server.garbage import FullCollections
from headwater.server.loop import loop_factory
from headwater.traffic import Traffic
from headwater.transport.tcp import Bounds, Connections, Listener
from headwater.units import Address

logger = logging.getLogger(__name__)

# SIGTERM to exit takes at most 5 s, whoever hangs: so long for the disk (and beside it for the
# console), for clients to take the rest, for readers over Flight, and for the log's threads.
SETTLE_SECONDS = 2.0
FAREWELL_SECONDS = 1.0
FLIGHT_SECONDS = 0.5
CLOSE_SECONDS = 1.0
SWITCH_SECONDS = 0.001
# A broker that cannot go on says so for a while, to clients and to whoever asks for its health.
FAILED_SECONDS = 3.0


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
        files = _allow_many_files()
        tls = wiring.tls_context(config)
        engine = await EmbeddedEngine.open(config.data, wiring.log_settings(config))
        server = cls._assemble(config, engine, log_format, wiring.bounds(config, files))
        try:
            await server._recover()
            await server.control.start(config.data)
            await server._declare_queues()
            await server._bind_all(config, tls)
            await server._start_others()
            for listener in server.listeners:
                await listener.serve()
        except BaseException:
            await server.stop()
            raise
        server._warn(config)
        server.admin.look_over()
        return server

    @classmethod
    def _assemble(
        cls, config: Config, engine: EmbeddedEngine, log_format: str, bounds: Bounds
    ) -> "Server":
        """All parts, none of which has begun to work."""
        secrets: dict[str, str] = {}
        services = wiring.services(config, secrets)
        broker = Broker(
            engine,
            subscriptions=config.limits.subscriptions,
            client_queues=config.limits.client_queues,
            repeat_seconds=wiring.repeat_seconds(services),
        )
        connections = Connections(bounds, broker.join, services)
        engine.attach(connections.turn)
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
        self.broker.unused.recall(partial(wiring.queue_spec, self.services))
        with contextlib.suppress(LogUnavailable):  # a full disk: as soon as there is room
            await self.engine.notes.flush()

    async def _bind_all(self, config: Config, tls: ssl.SSLContext | None) -> None:
        sessions = {name: each.session for name, each in self.services.items() if not each.off}
        for name, session in sessions.items():
            await self._bind(name, session, config.listen.protocols[name], tls)
        protocols = in_order(REGISTRY.values())
        anyone = partial(
            AnyPortSession,
            protocols=protocols,
            sessions=sessions,
            silent_after=config.limits.greeting_seconds,
        )
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
        bound = await listener.bind(address.host, address.port, tls if address.secure else None)
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

    async def stop(self) -> bool:
        """Drain: accept nothing new, make durable what was accepted, say goodbye; then end those
        that clients do not wait for. Returns whether all of it has ended."""
        for listener in self.listeners:
            listener.stop()
        if self.flight is not None:
            self.flight.refuse()
        self.connections.hush()
        self.engine.hurry()
        ended = [
            *await asyncio.gather(
                _within(SETTLE_SECONDS, self._settled(), "the disk"),
                _within(SETTLE_SECONDS, self._stop_operators(), "the console"),
            )
        ]
        await self.connections.dismiss(FAREWELL_SECONDS)
        self.admin.close()
        ended.append(await _within(CLOSE_SECONDS, self.broker.stop(), "the broker"))
        if self.flight is not None:
            ended.append(await self.flight.stop(FLIGHT_SECONDS))
        ended.append(await _within(CLOSE_SECONDS, self.engine.close(), "the log"))
        return all(ended)

    async def _settled(self) -> None:
        settled = asyncio.Event()
        self.engine.when_durable(self.engine.end, lambda _: settled.set())
        await settled.wait()

    async def _stop_operators(self) -> None:
        await self.control.stop()
        if self.console is not None:
            await self.console.stop()


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


async def _within(seconds: float, work: Awaitable[None], what: str) -> bool:
    """Whether the work has ended in time. If not, it is left alone."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if done:
        task.result()
    else:
        logger.warning("%s did not come to an end within %g s", what, seconds)
    return bool(done)


@dataclass(slots=True)
class Ending:
    """How a broker came to its end."""

    #: Nothing of it is left that could hold up the process.
    complete: bool = True
    #: What it could not go on without, if that was the reason.
    failure: str | None = None


async def serve(config: Config, announce: Callable[[Server], None], log_format: str) -> Ending:
    """Run a broker until SIGTERM or SIGINT, or until it cannot go on."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    stopping = loop.create_task(stop.wait())
    starting = loop.create_task(Server.start(config, log_format))
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        logger.info("stopped before it was ready")
        starting.cancel()
        await asyncio.wait({starting})
        return Ending()
    server, ending = starting.result(), Ending()
    failed = asyncio.Event()

    def fail(why: str) -> None:
        ending.failure = why
        failed.set()

    server.engine.when_dead(fail)
    announce(server)
    collections = FullCollections(lambda: server.engine.end, server.engine.rest)
    failing = loop.create_task(failed.wait())
    await asyncio.wait({stopping, failing}, return_when=asyncio.FIRST_COMPLETED)
    if ending.failure is not None:
        logger.critical("%s; the broker ends, so that it can be started again", ending.failure)
        await asyncio.wait({stopping}, timeout=FAILED_SECONDS)
    collections.stop()
    logger.info("draining")
    ending.complete = await server.stop()
    return ending


def run(config: Config, announce: Callable[[Server], None], log_format: str = "text") -> None:
    garbage.settle()
    # So long the loop waits for a thread that reads or writes the log, each time that it comes back
    # from the system: with Python's 5 ms, a few readers of history would slow down everyone.
    sys.setswitchinterval(SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=loop_factory(config.loop)) as runner:
        ending = runner.run(serve(config, announce, log_format))
        if not ending.complete:
            # All that was accepted is on the disk, or is refused. Python would wait for threads
            # that hang in a disk or in a client.
            _exit_now(ending.failure)
    if ending.failure is not None:
        raise HeadwaterError(ending.failure)


def _exit_now(failure: str | None) -> NoReturn:
    if failure is not None:
        print(f"headwater: error: {failure}", file=sys.stderr)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0 if failure is None else 1)


def _allow_many_files() -> int:
    """Each connection is an open file; take as many as the system gives without asking."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
