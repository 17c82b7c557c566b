"""Which listeners are open, and to whom.

A listener that only this machine can reach lets everyone in; any other one needs a way to know its
clients, or the words `anonymous = true`. A broker that would be open to strangers by mistake does
not start.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.config import Config, ListenerOptions
from headwater.config.tables import OTHER_LISTENERS
from headwater.errors import ConfigError
from headwater.identity.users import FILE as USERS_FILE
from headwater.identity.users import Users
from headwater.protocols.entry import Protocol
from headwater.registry import REGISTRY
from headwater.sockets import is_loopback

CONSOLE = "console"  # once there are users, it is for nobody else
FLIGHT = "flight"  # always wants a token, unless everyone is let in by name


@dataclass(frozen=True, slots=True)
class Door:
    """One listener."""

    name: str
    local: bool
    anonymous: bool
    certificates: bool  # say who clients are

    def open_to(self, has_users: bool) -> str:
        """For a person."""
        where = "on this machine" if self.local else "who reaches it"
        how = [*self._ways(has_users)]
        if self.anonymous and not (self.name == CONSOLE and has_users):
            also = f", or as {' or '.join(how)}" if how else ""
            return f"everyone {where}{also}"
        return " or ".join(how) if how else "nobody"

    def _ways(self, has_users: bool) -> Iterator[str]:
        protocol = REGISTRY.get(self.name)
        if self.certificates:
            yield "users with a certificate"
        if self.name == FLIGHT:
            yield "users with a token"
        elif _has_secrets(self.name):
            yield "apps with their secret"
        elif has_users and (protocol is None or protocol.has_passwords):
            yield "users with their password"


def doors(config: Config) -> list[Door]:
    """Those that are not off."""
    found = []
    for name in (*REGISTRY, *OTHER_LISTENERS):
        address = config.address_of(name)
        if address is not None:
            known = address.secure and _knows_certificates(config, name)
            found.append(Door(name, is_loopback(address.host), is_anonymous(config, name), known))
    return found


def _knows_certificates(config: Config, name: str) -> bool:
    """Whether a listener takes the name in a certificate for that of a user. The console asks for a
    password all the same, and Flight looks at certificates only if it asks everyone for one."""
    own = config.listener.each[name].client_ca
    if name in (CONSOLE, FLIGHT):
        return name == FLIGHT and own is not None
    return (own or config.tls.client_ca) is not None


def is_anonymous(config: Config, name: str) -> bool:
    """Whether a listener is for clients that do not say who they are."""
    if _has_secrets(name):
        return False
    options: ListenerOptions = config.listener.each[name]
    address = config.address_of(name)
    if options.anonymous is not None:
        return options.anonymous
    return name != FLIGHT and address is not None and is_loopback(address.host)


def needs_certificate(config: Config, name: str) -> bool:
    """Whether a certificate is the only way to tell who a client is. Arrow Flight asks all clients
    for one, or none: all, if the listener itself says who signs them."""
    protocol = REGISTRY.get(name)
    if name == FLIGHT:
        return config.listener.each[name].client_ca is not None
    if protocol is None or protocol.has_apps or protocol.has_passwords:
        return False
    return not is_anonymous(config, name)


def _has_secrets(name: str) -> bool:
    """Whether the protocol itself lets in nobody but apps."""
    protocol = REGISTRY.get(name)
    return protocol is not None and protocol.has_apps


def check(config: Config) -> None:
    """Raise ConfigError if a listener is open to other machines, and nobody has said to whom."""
    has_users = bool(Users(config.data / USERS_FILE).all())
    for door in doors(config):
        if door.local or door.anonymous or door.certificates or door.name == FLIGHT:
            continue
        protocol = REGISTRY.get(door.name)
        if _has_secrets(door.name) or (has_users and (protocol is None or protocol.has_passwords)):
            continue
        raise ConfigError(_advice(door, protocol))


def _advice(door: Door, protocol: Protocol | None) -> str:
    ways = []
    if protocol is None or protocol.has_passwords:
        ways.append("add a user ('headwater user add NAME')")
    ways.append(
        f"have clients show certificates ([listener.{door.name}] client_ca and a tls:// address)"
    )
    ways.append(f"write [listener.{door.name}] anonymous = true to let everyone in")
    return (
        f"listen.{door.name} can be reached by other machines, and nothing says who may come in: "
        f"{', '.join(ways[:-1])}, or {ways[-1]}"
    )
