"""From the configuration to what each part wants to know."""

import logging
from collections.abc import Mapping
from dataclasses import fields

from headwater import flight, local_tokens
from headwater.broker.quotas import Quotas
from headwater.config import Config
from headwater.console import settings as console
from headwater.gate import KnownApp
from headwater.log.embedded.engine import LogSettings
from headwater.protocols.base import Service
from headwater.queue_spec import QueueSpec
from headwater.registry import REGISTRY
from headwater.server import doors
from headwater.tls import Keyring, TlsFiles
from headwater.transport.tcp import Bounds

logger = logging.getLogger(__name__)

# Files that the broker needs besides those of its clients: the log, SQLite, Flight, commands.
OWN_FILES = 128
# Clients beyond the limit that are still reading why, if there are files for them.
MOST_TURNED_AWAY = 256


def log_settings(config: Config) -> LogSettings:
    log = config.log
    return LogSettings(
        sync=log.sync,
        sync_interval=log.sync_interval,
        segment_bytes=log.segment_bytes,
        retention_bytes=log.retention_bytes,
        retention_age=log.retention_age,
    )


def bounds(config: Config, files: int) -> Bounds:
    """`files`: how many the process may have open. Some of them the log needs, or messages would be
    refused as soon as there are too many clients."""
    limits = config.limits
    connections = min(limits.connections, max(files - OWN_FILES, files // 2))
    if connections < limits.connections // 2:
        logger.warning(
            "no more than %d clients can be connected, although limits.connections is %d: the "
            "system allows %d open files (ulimit -n, LimitNOFILE=)",
            connections,
            limits.connections,
            files,
        )
    return Bounds(
        connections=connections,
        connections_per_address=limits.connections_per_address,
        turned_away=min(MOST_TURNED_AWAY, (files - connections) // 4),
        message_bytes=limits.message_bytes,
        topic_bytes=limits.topic_bytes,
        output_buffer_bytes=limits.output_buffer_bytes,
        input_bytes=limits.input_bytes,
        output_bytes=limits.output_bytes,
        unfinished_seconds=limits.unfinished_seconds,
        handshake_seconds=limits.handshake_seconds,
        dead_peer_seconds=limits.dead_peer_seconds,
    )


def quotas(config: Config) -> Quotas:
    """What clients and users may have. Each limit is called the same there."""
    return Quotas(**{each.name: getattr(config.limits, each.name) for each in fields(Quotas)})


def services(config: Config, apps: dict[str, KnownApp]) -> dict[str, Service]:
    """Each protocol as the broker serves it. `apps` are the secrets of those that may connect: the
    protocols add those of the configuration, and more may come and go while the broker runs."""
    return {
        name: protocol.serve(config.settings_of(name), apps) for name, protocol in REGISTRY.items()
    }


def repeat_seconds(services: Mapping[str, Service]) -> float:
    """How long the broker recognises what is published again: as long as any protocol needs."""
    return max(each.repeat_seconds for each in services.values())


def queue_spec(services: Mapping[str, Service], name: str) -> QueueSpec | None:
    """The specification of a queue that is known by name only."""
    service = services.get(name.partition("/")[0])
    return None if service is None else service.queue_spec(name)


def flight_settings(config: Config) -> flight.FlightSettings | None:
    address = config.listen.flight
    if address is None:
        return None
    return flight.FlightSettings(
        host=address.host,
        port=address.port,
        token=config.flight.token or local_tokens.kept_in(config.data),
        tls=tls_files(config, "flight"),
        message_bytes=config.limits.message_bytes,
        topic_bytes=config.limits.topic_bytes,
        calls=config.flight.calls,
        idle_seconds=config.limits.dead_peer_seconds,
        record_batch_bytes=config.flight.record_batch_bytes,
        staged_bytes=config.flight.staged_bytes,
        commit_bytes=config.flight.commit_bytes,
        watch=flight.WatchLimits(
            connections=config.flight.connections,
            request_bytes=config.flight.request_bytes,
            input_bytes=config.flight.input_bytes,
            # As for checks of rows: one message always fits into a record batch.
            batch_bytes=max(config.flight.record_batch_bytes, 2 * config.limits.message_bytes),
            handshake_seconds=config.limits.handshake_seconds,
            unfinished_seconds=config.limits.unfinished_seconds,
        ),
    )


def console_settings(config: Config) -> console.ConsoleSettings | None:
    address = config.listen.console
    if address is None:
        return None
    return console.ConsoleSettings(
        data=config.data,
        host=address.host,
        port=address.port,
        anonymous=doors.is_anonymous(config, "console"),
        names=config.console.names,
        session_hours=config.console.session_hours,
        connections=config.console.connections,
        handshake_seconds=config.limits.handshake_seconds,
        unfinished_seconds=config.limits.unfinished_seconds,
        dead_peer_seconds=config.limits.dead_peer_seconds,
        tls=tls_files(config, "console"),
    )


def tls_files(config: Config, listener: str) -> TlsFiles | None:
    """What a listener needs that speaks TLS."""
    address = config.address_of(listener)
    certificate, key = config.key_pair_of(listener)
    if address is None or not address.secure or certificate is None or key is None:
        return None
    client_ca = config.listener.each[listener].client_ca or config.tls.client_ca
    required = client_ca is not None and doors.needs_certificate(config, listener)
    return TlsFiles(certificate=certificate, key=key, client_ca=client_ca, required=required)


def keyrings(config: Config) -> dict[str, Keyring]:
    """Those of all listeners that speak TLS. A pair that cannot be used is told although nobody
    uses it yet."""
    if config.tls.certificate is not None and config.tls.key is not None:
        TlsFiles(certificate=config.tls.certificate, key=config.tls.key).context()
    files = {name: tls_files(config, name) for name in config.listener.each}
    return {name: Keyring(name, each) for name, each in files.items() if each is not None}
