"""From the configuration to what each part wants to know."""

import ssl
from collections.abc import Mapping
from typing import Any

from headwater import flight
from headwater.config import Config
from headwater.console import settings as console
from headwater.errors import ConfigError
from headwater.log.embedded.engine import LogSettings
from headwater.protocols import REGISTRY, bmtp, bpsp, crystal, prism, psmb
from headwater.queue_spec import QueueSpec
from headwater.transport.tcp import Bounds


def log_settings(config: Config) -> LogSettings:
    log = config.log
    return LogSettings(
        sync=log.sync,
        sync_interval=log.sync_interval,
        segment_bytes=log.segment_bytes,
        retention_bytes=log.retention_bytes,
        retention_age=log.retention_age,
    )


def bounds(config: Config) -> Bounds:
    limits = config.limits
    return Bounds(
        limits.connections,
        limits.message_bytes,
        limits.topic_bytes,
        limits.output_buffer_bytes,
        limits.handshake_seconds,
    )


def protocol_settings(config: Config, apps: Mapping[str, str]) -> dict[str, Any]:
    """The settings of each protocol. `apps` may change while the broker runs."""
    return {
        psmb.NAME: psmb.Settings(config.psmb.keepalive_seconds, config.psmb.keepalive_misses),
        bmtp.NAME: bmtp.Settings(
            config.bmtp.dialect,
            config.bmtp.envelope,
            config.bmtp.delivery,
            config.bmtp.channels,
            config.bmtp.idle_seconds,
        ),
        bpsp.NAME: bpsp.Settings(),
        prism.NAME: prism.Settings(
            apps,
            {f"{queue.app}/{queue.name}": queue for queue in config.prism.queues},
            config.prism.numeric_tags,
            config.prism.sign_seconds,
            config.prism.prefetch,
            config.prism.ack_seconds,
            config.prism.max_deliveries,
        ),
        crystal.NAME: crystal.Settings(config.crystal.secret_key or ""),
    }


def flight_settings(config: Config) -> flight.FlightSettings | None:
    address = config.listen.flight
    if address is None:
        return None
    return flight.FlightSettings(
        host=address.host,
        port=address.port,
        token=config.flight.token,
        certificate=config.tls.certificate if address.secure else None,
        key=config.tls.key if address.secure else None,
        message_bytes=config.limits.message_bytes,
        topic_bytes=config.limits.topic_bytes,
    )


def console_settings(config: Config) -> console.ConsoleSettings | None:
    address = config.listen.console
    if address is None:
        return None
    return console.ConsoleSettings(
        data=config.data,
        host=address.host,
        port=address.port,
        names=config.console.names,
        session_hours=config.console.session_hours,
        certificate=config.tls.certificate if address.secure else None,
        key=config.tls.key if address.secure else None,
    )


def queue_spec(settings: Mapping[str, Any], name: str) -> QueueSpec | None:
    """The specification of a queue that is known by name only."""
    protocol = REGISTRY.get(name.partition("/")[0])
    if protocol is None or protocol.queue_spec is None:
        return None
    return protocol.queue_spec(settings[protocol.name], name)


def tls_context(config: Config) -> ssl.SSLContext | None:
    """What a listener needs that speaks TLS, where the configuration has a certificate."""
    if config.tls.certificate is None or config.tls.key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls.certificate, config.tls.key)
    except (OSError, ssl.SSLError) as error:
        why = error.strerror or str(error)
        raise ConfigError(
            f"the certificate {config.tls.certificate} with the key {config.tls.key} "
            f"cannot be used: {why}"
        ) from None
    return context
