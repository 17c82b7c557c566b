"""All keys, in the order in which they are shown."""

from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, Literal

from headwater import units
from headwater.declare import Setting, declarations, members, setting, spread, table
from headwater.registry import REGISTRY
from headwater.units import Address


def _listener(default: str, what: str) -> Address | None:
    """Of clients of a protocol, which may come through TLS."""
    kind = units.or_off(units.address_or_tls())
    return setting(kind, default, f"Where to listen for {what}.")


@table
class Listen:
    #: By the name of the protocol.
    protocols: Mapping[str, Address | None] = spread(
        {each.name: _listener(each.listen, f"{each.title} clients") for each in REGISTRY.values()}
    )
    any: Address | None = _listener("off", "clients of all protocols on one port")
    console: Address | None = _listener("127.0.0.1:8090", "browsers, and programs that use the API")
    flight: Address | None = _listener("127.0.0.1:8815", "Arrow Flight clients, such as Spark")


@table
class Tls:
    certificate: Path | None = setting(
        units.or_off(units.path()),
        "off",
        "The certificate, and those it is signed by, for listeners that begin with `tls://` (PEM).",
    )
    key: Path | None = setting(
        units.or_off(units.path()), "off", "The private key of the certificate (PEM)."
    )


@table
class Log:
    sync: Literal["always", "interval", "os"] = setting(
        units.choice("always", "interval", "os"),
        "always",
        "When messages are forced to disk: before each acknowledgement, at an interval, "
        "or when the operating system likes.",
    )
    sync_interval: float = setting(
        units.duration("1ms", "1h"),
        "100ms",
        'The time between two syncs when `log.sync` is "interval".',
    )
    segment_bytes: int = setting(
        units.size("64KiB", "1TiB"), "64MiB", "The size at which the log begins a new segment file."
    )
    retention_bytes: int | None = setting(
        units.or_off(units.size("64KiB")),
        "off",
        "The size of the log above which its oldest segments are dropped.",
    )
    retention_age: float | None = setting(
        units.or_off(units.duration("1s", "36500d")),
        "off",
        "The age above which segments are dropped.",
    )


@table
class Limits:
    message_bytes: int = setting(
        units.size("1", "1GiB"), "16MiB", "The largest message that is accepted."
    )
    connections: int = setting(
        units.whole_number(1, 10_000_000),
        20_000,
        "How many clients may be connected at the same time.",
    )
    subscriptions: int = setting(
        units.whole_number(1, 10_000_000),
        100_000,
        "How many subscriptions one client may have.",
    )
    output_buffer_bytes: int = setting(
        units.size("4KiB", "1GiB"),
        "1MiB",
        "How much may wait in memory for a client that reads slowly; the rest stays in the log.",
    )
    handshake_seconds: float = setting(
        units.number(0.1, 3600), 10, "How long a new client may take to introduce itself."
    )
    topic_bytes: int = setting(
        units.size("1", "65535"), "1KiB", "The longest topic that is accepted."
    )


@table
class Flight:
    token: str | None = setting(
        units.or_off(units.secret()),
        "off",
        "What Arrow Flight clients, such as Spark, have to know. Without one everyone who reaches "
        "the listener may read and write.",
    )


@table
class Console:
    session_hours: float = setting(
        units.number(0.01, 8760), 12, "How long a login lasts, in hours."
    )
    names: tuple[str, ...] = setting(
        units.texts(units.text(1, 253)),
        [],
        "Names that the console is reached by, besides `localhost` and addresses. Under any other "
        "name it does not answer.",
    )


@table
class Config:
    data: Path = setting(units.path(), "data", "The directory of the log and its state.")
    loop: Literal["auto", "uvloop", "asyncio"] = setting(
        units.choice("auto", "uvloop", "asyncio"),
        "auto",
        'The event loop; "auto" takes uvloop where it is installed.',
    )
    listen: Listen = Listen()
    log: Log = Log()
    limits: Limits = Limits()
    tls: Tls = Tls()
    #: The settings of each protocol that has any, by its name.
    protocols: Mapping[str, Any] = spread(
        {each.name: each.settings() for each in REGISTRY.values() if fields(each.settings)}
    )
    flight: Flight = Flight()
    console: Console = Console()

    def settings_of(self, protocol: str) -> Any:
        """The settings of a protocol, whether it has any or not."""
        found = self.protocols.get(protocol)
        return REGISTRY[protocol].settings() if found is None else found


#: Everything that is declared, by key.
DECLARED = {each.key: each for each in declarations(Config())}
#: Every key that has one value.
SETTINGS = {key: each for key, each in DECLARED.items() if isinstance(each, Setting)}
TABLES = tuple(name for name, member in members(Config()).items() if not isinstance(member, Field))
