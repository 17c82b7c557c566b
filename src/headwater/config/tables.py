"""All keys of the configuration, in the order in which they are shown."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Literal

from headwater import units
from headwater.config.declare import (
    Setting,
    array,
    declarations,
    inherited,
    pairs,
    required,
    setting,
    table,
)
from headwater.units import Address


def _listener(default: str, what: str) -> Address | None:
    """A listener that may use TLS."""
    kind = units.or_off(units.address_or_tls())
    return setting(kind, default, f"Address to listen on for {what}.")


@table
class Listen:
    psmb: Address | None = _listener("0.0.0.0:13880", "PSMB clients")
    bmtp: Address | None = _listener("0.0.0.0:1039", "BMTP clients")
    prism: Address | None = _listener("0.0.0.0:8080", "Prism Notify clients")
    bpsp: Address | None = _listener("0.0.0.0:29010", "BPSP clients")
    crystal: Address | None = _listener("0.0.0.0:33927", "CrystalConnector clients")
    any: Address | None = _listener("off", "clients of all five protocols on one port")
    console: Address | None = _listener("127.0.0.1:8090", "the console: browsers and API clients")
    flight: Address | None = _listener("127.0.0.1:8815", "Arrow Flight clients, such as Spark")


@table
class Tls:
    certificate: Path | None = setting(
        units.or_off(units.path()),
        "off",
        "Certificate chain (PEM) for listeners whose address begins with `tls://`.",
    )
    key: Path | None = setting(
        units.or_off(units.path()), "off", "Private key of the certificate (PEM)."
    )


@table
class Log:
    sync: Literal["always", "interval", "os"] = setting(
        units.choice("always", "interval", "os"),
        "always",
        'When messages are synced to disk: before they are acknowledged ("always"), every '
        '`log.sync_interval` ("interval"), or when the operating system does it ("os").',
    )
    sync_interval: float = setting(
        units.duration("1ms", "1h"),
        "100ms",
        'Time between two syncs when `log.sync` is "interval".',
    )
    segment_bytes: int = setting(
        units.size("64KiB", "1TiB"), "64MiB", "Size at which the log begins a new segment file."
    )
    retention_bytes: int | None = setting(
        units.or_off(units.size("64KiB")),
        "off",
        "Size of the log above which its oldest segments are deleted.",
    )
    retention_age: float | None = setting(
        units.or_off(units.duration("1s", "36500d")),
        "off",
        "Age above which segments are deleted.",
    )


@table
class Limits:
    message_bytes: int = setting(
        units.size("1", "1GiB"), "16MiB", "Largest message that a client may publish."
    )
    connections: int = setting(
        units.whole_number(1, 10_000_000),
        20_000,
        "Clients that may be connected at the same time.",
    )
    subscriptions: int = setting(
        units.whole_number(1, 10_000_000),
        100_000,
        "Subscriptions that one client may have.",
    )
    output_buffer_bytes: int = setting(
        units.size("4KiB", "1GiB"),
        "1MiB",
        "Bytes that may wait in memory for a slow client; the rest stays in the log.",
    )
    handshake_seconds: float = setting(
        units.number(0.1, 3600), 10, "Seconds that a new client may take for its handshake."
    )
    topic_bytes: int = setting(
        units.size("1", "65535"), "1KiB", "Longest topic that a client may use."
    )


@table
class Psmb:
    keepalive_seconds: float = setting(
        units.number(0.1, 86400), 10, "How long a client may be silent before it is sent a NOP."
    )
    keepalive_misses: int = setting(
        units.whole_number(1, 1000), 3, "After how many unanswered NOPs a connection is closed."
    )


@table
class Bmtp:
    dialect: Literal["document", "bitmq"] = setting(
        units.choice("document", "bitmq"),
        "document",
        'Whether a PUB of QoS 0 has a stream ID: "document" says yes, "bitmq" no.',
    )
    envelope: Literal["json", "binary"] = setting(
        units.choice("json", "binary"),
        "json",
        "How a payload carries the channel: in a JSON object, or in four bytes in front.",
    )
    delivery: Literal["broadcast", "balanced"] = setting(
        units.choice("broadcast", "balanced"),
        "broadcast",
        "Whether a message goes to every subscriber of its channel, or to one of them.",
    )
    idle_seconds: float = setting(
        units.number(0.1, 86400), 60, "How long a client may be silent before it is disconnected."
    )
    dedup_seconds: float = setting(
        units.number(0.1, 86400),
        120,
        "How long a message of QoS 2 is remembered, so that it is not stored again when it is "
        "sent again.",
    )
    channels: Mapping[int, str] = pairs(
        units.whole_text(0, 2**32 - 1),
        units.topic(),
        "The topics of channels, by number. A channel that is not here has the topic "
        "`bmtp/NUMBER`.",
    )


_PREFETCH = units.whole_number(1, 65535)
_ACK_SECONDS = units.number(0.1, 7 * 86400)
_MAX_DELIVERIES = units.whole_number(1, 1_000_000)


@table
class PrismApp:
    client_id: str = required(units.client_id(), "The name of the app.")
    client_secret: str = required(units.app_secret(), "What the app signs with.")


@table
class PrismQueue:
    app: str = required(
        units.client_id(),
        "The app that it belongs to: one from above, or from `headwater app add`.",
    )
    name: str = required(
        units.text(0, 256), 'The name that clients ask for; "" is the default queue of the app.'
    )
    bindings: tuple[str, ...] = setting(
        units.texts(units.text(1, 256)),
        [],
        "Patterns of the routing keys that it takes; `*` is one word, `#` any number. Without any, "
        "the key that is equal to its name, and the default queue every key.",
    )
    prefetch: int = inherited(_PREFETCH, "prism.prefetch", "The same as there, for this queue.")
    ack_seconds: float = inherited(
        _ACK_SECONDS, "prism.ack_seconds", "The same as there, for this queue."
    )
    max_deliveries: int = inherited(
        _MAX_DELIVERIES, "prism.max_deliveries", "The same as there, for this queue."
    )


@table
class Prism:
    numeric_tags: bool = setting(
        units.boolean(),
        False,
        "Whether tags of messages are numbers in JSON, for clients that know no others.",
    )
    sign_seconds: float = setting(
        units.number(1, 86400),
        300,
        "How far the time in a signature may be from the broker's clock.",
    )
    prefetch: int = setting(
        _PREFETCH, 100, "How many messages a consumer may have that it has not acknowledged."
    )
    ack_seconds: float = setting(
        _ACK_SECONDS,
        60,
        "How long a consumer may take to acknowledge a message before another one gets it.",
    )
    max_deliveries: int = setting(
        _MAX_DELIVERIES,
        16,
        "How often a message is delivered before it goes to the dead letters of its queue.",
    )
    apps: tuple[PrismApp, ...] = array(
        PrismApp, "Apps that may connect, besides those that were made with `headwater app add`."
    )
    queues: tuple[PrismQueue, ...] = array(
        PrismQueue, "Queues that exist from the start, or have bindings or limits of their own."
    )


@table
class Crystal:
    secret_key: str | None = setting(
        units.or_off(units.secret()),
        "off",
        "The key that all clients have to know; without one, there is no listener for them.",
    )


@table
class Flight:
    token: str | None = setting(
        units.or_off(units.secret()),
        "off",
        "Token that Arrow Flight clients, such as Spark, must send. Without a token, everyone who "
        "reaches the listener may read and write.",
    )


@table
class Console:
    session_hours: float = setting(units.number(0.01, 8760), 12, "Hours until a login ends.")
    names: tuple[str, ...] = setting(
        units.texts(units.text(1, 253)),
        [],
        "Host names under which the console answers, besides `localhost` and addresses. Requests "
        "for other names are refused.",
    )


@table
class Config:
    data: Path = setting(units.path(), "data", "Data directory: the log and the broker's state.")
    loop: Literal["auto", "uvloop", "asyncio"] = setting(
        units.choice("auto", "uvloop", "asyncio"),
        "auto",
        'Event loop; "auto" takes uvloop if it is installed.',
    )
    listen: Listen = Listen()
    log: Log = Log()
    limits: Limits = Limits()
    tls: Tls = Tls()
    psmb: Psmb = Psmb()
    bmtp: Bmtp = Bmtp()
    prism: Prism = Prism()
    crystal: Crystal = Crystal()
    flight: Flight = Flight()
    console: Console = Console()


#: Everything that is declared, by key.
DECLARED = {each.key: each for each in declarations(Config())}
#: Every key that has one value.
SETTINGS = {key: each for key, each in DECLARED.items() if isinstance(each, Setting)}
TABLES = tuple(each.name for each in fields(Config) if not each.metadata)
