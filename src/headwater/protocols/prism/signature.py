"""Prism's signature: an MD5 over the request, with the app's secret at both ends.

    secret & method & path & headers & query & body & secret

    path      of the request, without the query
    headers   `Authorization` and what begins with `X-Api-`, spelled so, sorted: name=value&…
    query     all parameters but `sign`, sorted, decoded: key=value&…
    body      empty for a WebSocket's GET

Each part between the secrets, the method aside, is percent-encoded as a whole after it was built.
Parts are bytes: what a client sends and signs need not be UTF-8.
"""

import hashlib
from collections.abc import Iterable
from urllib.parse import quote

from headwater.protocols.websocket import AS_SENT

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
        as_sent(secret),
        as_sent(method),
        _encoded(as_sent(path)),
        _encoded(_joined(signed_headers)),
        _encoded(_joined(parameters)),
        _encoded(body),
        as_sent(secret),
    )
    # The protocol's choice; nothing but this comparison rests on it.
    digest = hashlib.md5(b"&".join(parts), usedforsecurity=False)
    return digest.hexdigest().upper()


def as_sent(text: str) -> bytes:
    return text.encode(errors=AS_SENT)


def _is_signed(name: str) -> bool:
    return name == "Authorization" or name.startswith("X-Api-")


def _joined(pairs: Pairs) -> bytes:
    raw = sorted([(as_sent(name), as_sent(value)) for name, value in pairs])
    return b"&".join([b"%b=%b" % pair for pair in raw])


def _encoded(part: bytes) -> bytes:
    """RFC 3986: all but A-Z a-z 0-9 - . _ ~ becomes %XX."""
    return quote(part, safe="").encode()
