"""Prism's signature: an MD5 over the request, with the app's secret at both ends.

    secret & method & path & headers & query & body & secret

    path      of the request, without the query
    headers   `Authorization` and what begins with `X-Api-`, spelled so, sorted: name=value&…
    query     all parameters but `sign`, sorted, decoded: key=value&…
    body      empty for a WebSocket's GET

Each part between the secrets, the method aside, is percent-encoded as a whole after it was built.
"""

import hashlib
from collections.abc import Iterable
from urllib.parse import quote

SIGN = "sign"
#: Secrets that stand in published examples, so everyone knows them. No configuration may use one.
EXAMPLE_SECRETS = frozenset({"56dygmyhrfuhuwrdst3c"})

Pairs = Iterable[tuple[str, str]]


def sign(
    secret: str, method: str, path: str, headers: Pairs = (), query: Pairs = (), body: bytes = b""
) -> str:
    """The value of the parameter `sign`."""
    signed_headers = [(name, value) for name, value in headers if _is_signed(name)]
    parameters = [(name, value) for name, value in query if name != SIGN]
    parts = (
        secret,
        method,
        _encoded(path),
        _encoded(_joined(signed_headers)),
        _encoded(_joined(parameters)),
        _encoded(body),
        secret,
    )
    # The protocol's choice; nothing but this comparison rests on it.
    digest = hashlib.md5("&".join(parts).encode(errors="replace"), usedforsecurity=False)
    return digest.hexdigest().upper()


def _is_signed(name: str) -> bool:
    return name == "Authorization" or name.startswith("X-Api-")


def _joined(pairs: Pairs) -> str:
    return "&".join([f"{name}={value}" for name, value in sorted(pairs)])


def _encoded(part: str | bytes) -> str:
    """RFC 3986: all but A-Z a-z 0-9 - . _ ~ becomes %XX."""
    return quote(part, safe="", errors="replace") if isinstance(part, str) else quote(part, safe="")
