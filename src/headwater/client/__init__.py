"""Clients for the protocols, on the broker's own codecs.

`connect` takes a URL and returns the client for its scheme:

    async with connect("psmb://localhost") as client: ...
"""

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headwater.client import bmtp, bpsp, crystal, prism, psmb
from headwater.client.base import Client, Message
from headwater.client.bmtp import BmtpClient
from headwater.client.bpsp import BpspClient
from headwater.client.crystal import CrystalClient
from headwater.client.prism import PrismClient
from headwater.client.psmb import PsmbClient
from headwater.config import Config
from headwater.errors import HeadwaterError

__all__ = [
    "BmtpClient",
    "BpspClient",
    "Client",
    "CrystalClient",
    "Message",
    "PrismClient",
    "PsmbClient",
    "Target",
    "connect",
]


@dataclass(frozen=True, slots=True)
class Target:
    """scheme://[user[:password]@]host[:port][/topic or pattern]

    Whatever follows the slash is the topic or pattern as it stands: nothing in it is
    percent-decoded, so that patterns can be written down without escapes.
    """

    scheme: str
    host: str
    port: int | None
    user: str
    password: str
    topic: str

    @classmethod
    def parse(cls, url: str) -> "Target":
        scheme, separator, rest = url.partition("://")
        authority, _, topic = rest.partition("/")
        if not separator or scheme not in _CLIENTS:
            schemes = ", ".join(f"{scheme}://" for scheme in _CLIENTS)
            raise HeadwaterError(f"a URL begins with one of {schemes}, not: {url}")
        try:
            parts = urlsplit(f"//{authority}")
            port = parts.port
        except ValueError:
            raise HeadwaterError(f"the URL has no valid host and port: {url}") from None
        if not parts.hostname:
            raise HeadwaterError(f"the URL names no host: {url}")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(scheme, parts.hostname, port, user, password, topic)


def connect(url: "str | Target", config: Config | None = None) -> Client:
    """The client for a URL; use it with `async with`.

    What the URL leaves open (secrets, how BMTP is spoken) is taken from the environment, and then
    from a configuration of Headwater where one is given.
    """
    target = Target.parse(url) if isinstance(url, str) else url
    return _CLIENTS[target.scheme](target, config or Config())


def _psmb(target: Target, config: Config) -> Client:
    _no_users(target)
    return PsmbClient(target.host, target.port or psmb.DEFAULT_PORT)


def _bmtp(target: Target, config: Config) -> Client:
    _no_users(target)
    return BmtpClient(
        target.host,
        target.port or bmtp.DEFAULT_PORT,
        dialect=config.bmtp.dialect,
        envelope=config.bmtp.envelope,
        channels=config.bmtp.channels,
    )


def _bpsp(target: Target, config: Config) -> Client:
    port = target.port or bpsp.DEFAULT_PORT
    return BpspClient(target.host, port, user=target.user, password=target.password)


def _prism(target: Target, config: Config) -> Client:
    known = {app.client_id: app.client_secret for app in config.prism.apps}
    app = target.user or os.environ.get("HEADWATER_PRISM_CLIENT_ID") or next(iter(known), "")
    secret = target.password or os.environ.get("HEADWATER_PRISM_CLIENT_SECRET") or known.get(app)
    if not app or not secret:
        raise HeadwaterError(
            "Prism wants a client_id and its secret: write prism://client_id:secret@host, or set "
            "HEADWATER_PRISM_CLIENT_ID and HEADWATER_PRISM_CLIENT_SECRET"
        )
    return PrismClient(target.host, target.port or prism.DEFAULT_PORT, app=app, secret=secret)


def _crystal(target: Target, config: Config) -> Client:
    given = target.password or target.user or os.environ.get("HEADWATER_CRYSTAL_SECRET_KEY")
    secret = given or config.crystal.secret_key
    if not secret:
        raise HeadwaterError(
            "CrystalConnector wants a secret: write crystal://secret@host, or set "
            "HEADWATER_CRYSTAL_SECRET_KEY"
        )
    return CrystalClient(target.host, target.port or crystal.DEFAULT_PORT, secret=secret)


def _no_users(target: Target) -> None:
    if target.user:
        name = target.scheme.upper()
        raise HeadwaterError(f"{name} has no users: leave the name out of the URL")


_CLIENTS = {"psmb": _psmb, "bmtp": _bmtp, "bpsp": _bpsp, "prism": _prism, "crystal": _crystal}
