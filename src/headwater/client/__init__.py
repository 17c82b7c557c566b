"""Clients for the protocols, on the broker's own codecs.

`connect` takes a URL and returns the client for its scheme:

    async with connect("psmb://localhost") as client: ...
"""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from headwater.client.base import Client, Message
from headwater.client.bpsp import BpspClient
from headwater.client.psmb import PsmbClient
from headwater.errors import HeadwaterError

__all__ = ["BpspClient", "Client", "Message", "PsmbClient", "Target", "connect"]


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
            raise HeadwaterError(f"a URL begins with {' or '.join(_CLIENTS)}://, not: {url}")
        try:
            parts = urlsplit(f"//{authority}")
            port = parts.port
        except ValueError:
            raise HeadwaterError(f"the URL has no valid host and port: {url}") from None
        if not parts.hostname:
            raise HeadwaterError(f"the URL names no host: {url}")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        return cls(scheme, parts.hostname, port, user, password, topic)


def connect(url: "str | Target") -> Client:
    """The client for a URL; use it with `async with`."""
    target = Target.parse(url) if isinstance(url, str) else url
    return _CLIENTS[target.scheme](target)


def _psmb(target: Target) -> Client:
    if target.user:
        raise HeadwaterError("PSMB has no users: leave the name out of the URL")
    return PsmbClient(target.host) if target.port is None else PsmbClient(target.host, target.port)


def _bpsp(target: Target) -> Client:
    from headwater.client.bpsp import DEFAULT_PORT

    port = DEFAULT_PORT if target.port is None else target.port
    return BpspClient(target.host, port, user=target.user, password=target.password)


_CLIENTS = {"psmb": _psmb, "bpsp": _bpsp}
