"""All keys of the configuration, in the order in which they are shown."""

from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Literal

from headwater import units
from headwater.declare import (
    Setting,
    declarations,
    members,
    setting,
    spread,
    table,
    value_of,
)
from headwater.errors import HeadwaterError
from headwater.registry import REGISTRY
from headwater.units import Address


def _listener(default: str, what: str) -> Address | None:
    """A listener that may use TLS."""
    kind = units.or_off(units.address_or_tls())
    return setting(kind, default, f"Address to listen on for {what}.")


@table
class Listen:
    #: By the name of the protocol.
    protocols: Mapping[str, Address | None] = spread(
        {each.name: _listener(each.listen, f"{each.title} clients") for each in REGISTRY.values()}
    )
    any: Address | None = _listener("off", "clients of all protocols on one port")
    console: Address | None = _listener("127.0.0.1:8090", "the console: browsers and API clients")
    flight: Address | None = _listener("127.0.0.1:8815", "Arrow Flight clients, such as Spark")


@table
class ListenerOptions:
    """Who may come in through one listener, and what it shows of itself."""

    anonymous: bool | None = setting(
        units.or_auto(units.boolean()),
        "auto",
        "Whether clients may come in that do not say who they are. "
        '"auto": only if nobody but this machine can reach the address.',
    )
    certificate: Path | None = setting(
        units.or_off(units.path()), "off", "Certificate chain (PEM), instead of `tls.certificate`."
    )
    key: Path | None = setting(
        units.or_off(units.path()), "off", "Private key (PEM), instead of `tls.key`."
    )
    client_ca: Path | None = setting(
        units.or_off(units.path()),
        "off",
        "Certificates (PEM) of those who sign the certificates of clients, instead of "
        "`tls.client_ca`.",
    )


#: The listeners besides those of the protocols.
OTHER_LISTENERS = ("any", "console", "flight")


@table
class Listeners:
    #: By the name of the listener.
    each: Mapping[str, ListenerOptions] = spread(
        {name: ListenerOptions() for name in (*REGISTRY, *OTHER_LISTENERS)}
    )


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
    client_ca: Path | None = setting(
        units.or_off(units.path()),
        "off",
        "Certificates (PEM) of those who sign the certificates of clients. Listeners with `tls://` "
        "then ask clients for one, and the common name in it is the name of a user.",
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
    connections_per_address: int = setting(
        units.whole_number(1, 10_000_000),
        10_000,
        "Clients that may be connected from one address at the same time.",
    )
    connections_per_user: int | None = setting(
        units.or_off(units.whole_number(1, 10_000_000)),
        10_000,
        "Clients of one user or app that may be connected at the same time.",
    )
    messages_per_second: float | None = setting(
        units.or_off(units.number(0.01, 1e9)),
        "off",
        "Messages that one client may publish in a second. Who is faster is not read from for a "
        "while; nothing is dropped.",
    )
    bytes_per_second: int | None = setting(
        units.or_off(units.size("1", "1TiB")),
        "off",
        "Bytes that one client may publish in a second, in the same way.",
    )
    messages_per_second_per_user: float | None = setting(
        units.or_off(units.number(0.01, 1e9)),
        "off",
        "Messages that all clients of one user or app may publish in a second, in the same way.",
    )
    bytes_per_second_per_user: int | None = setting(
        units.or_off(units.size("1", "1TiB")),
        "off",
        "Bytes that all clients of one user or app may publish in a second, in the same way.",
    )
    topics_per_user: int | None = setting(
        units.or_off(units.whole_number(1, 1_000_000)),
        "off",
        "Topics with messages in the log that one user or app may have published to.",
    )
    queues_per_user: int | None = setting(
        units.or_off(units.whole_number(1, 10_000_000)),
        "off",
        "Queues that may belong to one user, app or role.",
    )
    stored_bytes_per_user: int | None = setting(
        units.or_off(units.size("1KiB")),
        "off",
        "Bytes of payloads in the log that one user or app may have published.",
    )
    subscriptions: int = setting(
        units.whole_number(1, 10_000_000),
        100_000,
        "Subscriptions that one client may have.",
    )
    patterns: int = setting(
        units.whole_number(1, 10_000_000),
        10_000,
        "Subscriptions of one client that may be PCRE patterns.",
    )
    client_queues: int = setting(
        units.whole_number(1, 10_000_000),
        100_000,
        "Queues that clients may make by consuming them, all clients together.",
    )
    output_buffer_bytes: int = setting(
        units.size("4KiB", "1GiB"),
        "1MiB",
        "Bytes that may wait in memory for a slow client; the rest stays in the log.",
    )
    input_bytes: int = setting(
        units.size("1MiB", "1TiB"),
        "256MiB",
        "Bytes of large messages that may be arriving at the same time, of all clients together; "
        "who comes with more has to wait.",
    )
    output_bytes: int = setting(
        units.size("1MiB", "1TiB"),
        "256MiB",
        "Bytes that may wait in memory for all slow clients together; each of them has its share, "
        "and the rest stays in the log.",
    )
    unfinished_seconds: float = setting(
        units.number(1, 86400),
        30,
        "Seconds that a message may take to arrive, and a second more for every 64 KiB. The same "
        "holds for requests to the console, and for its answers.",
    )
    handshake_seconds: float = setting(
        units.number(0.1, 3600),
        10,
        "Seconds that a new client may take for its handshake (for that of TLS, and again for that "
        "of its protocol), and a client of the console for the head of a request.",
    )
    greeting_seconds: float | None = setting(
        units.or_off(units.number(0.1, 3600)),
        2,
        "Seconds without a word after which `listen.any` greets a client whose protocol has the "
        "broker speak first; clients of the other protocols have to begin before that.",
    )
    dead_peer_seconds: float = setting(
        units.number(6, 86400),
        60,
        "Seconds until a client is disconnected that is gone without a word (no power, no "
        "network), or reads nothing of what waits for it.",
    )
    topic_bytes: int = setting(
        units.size("1", "65535"), "1KiB", "Longest topic that a client may use."
    )


@table
class Flight:
    token: str | None = setting(
        units.or_off(units.secret()),
        "off",
        "The broker's own token for Arrow Flight: whoever sends it may do everything there. If it "
        "is not set, the broker makes one at its first start, in a file that only its owner reads "
        "(`flight.token` in the data directory).",
    )
    calls: int = setting(
        units.whole_number(1, 10_000),
        100,
        "Reads and writes over Arrow Flight that may go on at the same time, and besides these as "
        "many small requests. Who comes with more has to try again, as Spark does.",
    )
    connections: int = setting(
        units.whole_number(1, 1_000_000),
        1000,
        "Connections to Arrow Flight. A new one takes the place of the one that has been idle for "
        "the longest time; its client connects again with its next call.",
    )
    request_bytes: int = setting(
        units.size("8MiB", "2GiB"),
        "32MiB",
        "What an Arrow Flight client may have on its way that belongs to no write: requests, of at "
        "most 4 MiB each. Beyond it, it is disconnected.",
    )
    input_bytes: int = setting(
        units.size("64MiB"),
        "2GiB",
        "Memory that all Arrow Flight clients together may have for what they are sending and no "
        "call has taken yet, an eighth of it for what is no write. Beyond it, the largest is "
        "disconnected.",
    )
    record_batch_bytes: int = setting(
        units.size("64KiB", "1GiB"),
        "64MiB",
        "Largest record batch that a client may send; one with a single message may be larger.",
    )
    staged_bytes: int = setting(
        units.size("1MiB"),
        "16GiB",
        "Bytes on the disk that rows may have which are written and not committed yet.",
    )
    commit_bytes: int = setting(
        units.size("1MiB", "1TiB"),
        "512MiB",
        "Memory that a batch may take while it becomes visible: about 700 bytes for each "
        "change of topic or headers from one row to the next.",
    )


@table
class AuditOptions:
    events: Literal["all", "changes", "off"] = setting(
        units.choice("all", "changes", "off"),
        "all",
        "What is recorded under `$audit/…` in the log: all, all but logins that went well, or "
        "nothing.",
    )


@table
class Console:
    connections: int = setting(
        units.whole_number(10, 100_000),
        1000,
        "Clients that may be connected to the console at the same time. A further one takes the "
        "place of the one that has been idle for the longest time.",
    )
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
    listener: Listeners = Listeners()
    log: Log = Log()
    limits: Limits = Limits()
    tls: Tls = Tls()
    #: The settings of each protocol that has any, by its name.
    protocols: Mapping[str, Any] = spread(
        {each.name: each.settings() for each in REGISTRY.values() if fields(each.settings)}
    )
    flight: Flight = Flight()
    audit: AuditOptions = AuditOptions()
    console: Console = Console()

    def address_of(self, listener: str) -> Address | None:
        """Where a listener listens."""
        address: Address | None = value_of(self.listen, listener)
        return address

    def key_pair_of(self, listener: str) -> tuple[Path | None, Path | None]:
        """The certificate and the key of a listener: its own if it names any, else those of
        `[tls]`. They are a pair, so it is both or none of them."""
        own = self.listener.each[listener]
        given = own if own.certificate or own.key else self.tls
        return given.certificate, given.key

    def settings_of(self, protocol: str) -> Any:
        """The settings of a protocol, whether it has any or not."""
        found = self.protocols.get(protocol)
        return REGISTRY[protocol].settings() if found is None else found


def _check_names() -> None:
    """A protocol's name is a table, and a listener, of its own."""
    taken = {each.name for each in (*fields(Config), *fields(Listen))} & REGISTRY.keys()
    for name in sorted(taken):
        raise HeadwaterError(
            f'no protocol may have the name "{name}": the configuration has a table or listener '
            "of that name"
        )


_check_names()

#: Everything that is declared, by key.
DECLARED = {each.key: each for each in declarations(Config())}
#: Every key that has one value.
SETTINGS = {key: each for key, each in DECLARED.items() if isinstance(each, Setting)}
TABLES = tuple(name for name, member in members(Config()).items() if not isinstance(member, Field))
