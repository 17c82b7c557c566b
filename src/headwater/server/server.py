"""Wires everything: a configuration becomes a running broker; start, drain, stop."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

from headwater.admin.access import AccessHandlers
from headwater.admin.admin import Admin
from headwater.admin.apps import AppHandlers
from headwater.admin.audit import AuditTrail
from headwater.admin.pipelines import PipelineReports
from headwater.broker.broker import Broker
from headwater.config import Config
from headwater.console.supervisor import ConsoleSupervisor
from headwater.control import Control
from headwater.errors import HeadwaterError, LogUnavailable
from headwater.files import close_to_others, make_private
from headwater.flight import FlightService
from headwater.gate import KnownApp
from headwater.identity.apps import FILE as APPS_FILE
from headwater.identity.apps import Apps
from headwater.identity.book import AccessBook
from headwater.identity.gatekeeper import Gatekeeper
from headwater.identity.tokens import TokenGate
from headwater.log.embedded.engine import EmbeddedEngine
from headwater.protocols.any_port import AnyPortSession
from headwater.protocols.base import Service, ServiceCounter, Session, Terms
from headwater.protocols.recognition import in_order
from headwater.registry import REGISTRY
from headwater.server import doors, garbage, wiring
from headwater.server.garbage import FullCollections
from headwater.server.loop import loop_factory
from headwater.tls import Keyring, KeyringWatch
from headwater.traffic import Traffic
from headwater.transport.tcp import Bounds, Connections, Listener

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
    gate: Gatekeeper
    broker: Broker
    services: Mapping[str, Service]
    connections: Connections
    apps: AppHandlers
    admin: Admin
    control: Control
    flight: FlightService | None
    console: ConsoleSupervisor | None
    #: Of the listeners that speak TLS, by name.
    keyrings: Mapping[str, Keyring]
    certificates: KeyringWatch
    listeners: list[Listener] = field(default_factory=list)
    #: What was bound: (name, host, port).
    addresses: list[tuple[str, str, int]] = field(default_factory=list)
    #: Whom each of these is open to, by name.
    open_to: dict[str, str] = field(default_factory=dict)

    @classmethod
    async def start(cls, config: Config, log_format: str = "text") -> "Server":
        doors.check(config)
        _keep_private(config.data)
        files = _allow_many_files()
        keyrings = wiring.keyrings(config)
        engine = await EmbeddedEngine.open(config.data, wiring.log_settings(config))
        bounds = wiring.bounds(config, files)
        server = cls._assemble(config, engine, keyrings, log_format, bounds)
        try:
            await server._recover()
            await server.control.start(config.data)
            await server._declare_queues()
            await server._bind_all(config)
            await server._start_others()
            for listener in server.listeners:
                await listener.serve()
            server.certificates.start()
        except BaseException:
            await server.stop()
            raise
        server._warn(config)
        server.open_to.update(
            {door.name: door.open_to(server.gate.has_users) for door in doors.doors(config)}
        )
        server.gate.watch()
        server.admin.look_over()
        return server

    @classmethod
    def _assemble(
        cls,
        config: Config,
        engine: EmbeddedEngine,
        keyrings: Mapping[str, Keyring],
        log_format: str,
        bounds: Bounds,
    ) -> "Server":
        """All parts, none of which has begun to work."""
        known: dict[str, KnownApp] = {}
        services = wiring.services(config, known)
        audit = AuditTrail(
            enabled=config.audit.events != "off", logins=config.audit.events == "all"
        )
        book = AccessBook(config.data, lambda: {name: app.role for name, app in known.items()})
        gate = Gatekeeper(book.users, book.rules, known, audit.login)
        broker = Broker(
            engine,
            gate=gate,
            quotas=wiring.quotas(config),
            client_queues=config.limits.client_queues,
            repeat_seconds=wiring.repeat_seconds(services),
        )
        audit.begin(broker)
        connections = Connections(bounds, broker.join, services, gate)
        engine.attach(connections.turn)
        reports = PipelineReports()
        flight = _flight(config, broker, connections, gate, reports, audit)
        counters = [counter for each in services.values() for counter in each.counters()]
        declare = partial(_declare_queues_of, broker, services)
        apps = AppHandlers(Apps(config.data / APPS_FILE), known, declare, gate.forget_app)
        gate.connect(broker.access_changed, connections.drop)
        admin = Admin(
            config=config,
            broker=broker,
            connections=connections,
            queue_spec=partial(wiring.queue_spec, services),
            counters=[*counters, *_counters_of(flight)],
            apps=apps,
            access=AccessHandlers(book, gate, audit),
            audit=audit,
            reports=reports,
            keyrings=tuple(keyrings.values()),
        )
        console = _console(config, log_format)

        def renewed(keyring: Keyring) -> None:
            if keyring.name == "console" and console is not None:
                console.reload_certificate()
            elif keyring.name == "flight" and flight is not None:
                flight.renew_certificate()

        return cls(
            engine=engine,
            gate=gate,
            broker=broker,
            services=services,
            connections=connections,
            apps=apps,
            admin=admin,
            control=Control(admin.handlers()),
            flight=flight,
            console=console,
            keyrings=keyrings,
            certificates=KeyringWatch(keyrings.values(), renewed),
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

    async def _bind_all(self, config: Config) -> None:
        sessions = {name: each.session for name, each in self.services.items() if not each.off}
        for name, session in sessions.items():
            await self._bind(name, session, config)
        protocols = in_order(REGISTRY.values())
        anyone = partial(
            AnyPortSession,
            protocols=protocols,
            sessions=sessions,
            silent_after=config.limits.greeting_seconds,
        )
        await self._bind("any", anyone, config)

    async def _bind(self, name: str, session: Callable[[Terms], Session], config: Config) -> None:
        address = config.address_of(name)
        if address is None:
            return
        listener = Listener(
            name,
            session,
            self.connections,
            self.keyrings.get(name),
            anonymous=doors.is_anonymous(config, name),
        )
        bound = await listener.bind(address.host, address.port)
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
        for keyring in self.keyrings.values():
            if (warning := keyring.warning()) is not None:
                logger.warning(warning)

    def count_work(self) -> int:
        """A number that grows with every message, every connection, and every call over Flight."""
        calls = 0 if self.flight is None else self.flight.calls.ended
        return self.engine.end + self.connections.accepted.total() + calls

    async def stop(self) -> bool:
        """Drain: accept nothing new, make durable what was accepted, say goodbye; then end those
        that clients do not wait for. Returns whether all of it has ended."""
        self.certificates.stop()
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
        self.gate.stop()
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
    config: Config,
    broker: Broker,
    connections: Connections,
    gate: Gatekeeper,
    reports: PipelineReports,
    audit: AuditTrail,
) -> FlightService | None:
    settings = wiring.flight_settings(config)
    if settings is None:
        return None
    return FlightService(
        broker=broker,
        data=config.data,
        settings=settings,
        report=reports.report,
        exported=audit.read,
        traffic=connections.traffic.setdefault("flight", Traffic()),
        slowdowns=connections.slowdowns,
        admit=TokenGate(gate, anonymous=doors.is_anonymous(config, "flight")).admit,
    )


def _counters_of(flight: FlightService | None) -> tuple[ServiceCounter, ...]:
    return () if flight is None else (*flight.calls.counters, *flight.watch.counters)


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
    if not sys.stdin.isatty():  # there, a hang-up means that the terminal is gone
        loop.add_signal_handler(signal.SIGHUP, server.certificates.reload)
    announce(server)
    collections = FullCollections(server.count_work, server.engine.rest)
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


def _keep_private(data: Path) -> None:
    """What the broker keeps is for its owner: what there is, and what it is going to make."""
    os.umask(0o077)
    make_private(data)
    if close_to_others(data):
        logger.warning("other users of this machine could read %s; they cannot any more", data)


def _allow_many_files() -> int:
    """Each connection is an open file; take as many as the system gives without asking."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
