"""Who may connect: the signed request of Prism's handshake.

Whether a client exists is nobody's business who cannot sign for it: an unknown client and a wrong
signature get the same answer, after the same work.
"""

import hmac
from collections.abc import Iterable, Mapping
from functools import partial

from headwater.commands import Signature
from headwater.protocols.base import Terms
from headwater.protocols.prism import PATHS
from headwater.protocols.prism.settings import MOST_PREFETCH
from headwater.protocols.prism.signature import as_sent, sign
from headwater.protocols.prism.wire import NAME
from headwater.protocols.websocket import HttpRefusal, Request

_MOST_DIGITS = 15  # of a time; more would not be one


def claim(request: Request, sign_seconds: float, terms: Terms) -> Signature:
    """What the request says of the client that it comes from, and how that can be proven."""
    if request.path not in PATHS:
        raise HttpRefusal(404, "not_found", "there is nothing here; the path is /api/notify")
    found = _first_values(request.parameters())
    client = found.get("client_id", "")
    if not client:
        raise refused("client_id is missing")
    if "client_secret" in found:
        if not terms.secure:
            raise refused("client_secret is only accepted inside TLS; sign the request instead")
        return Signature(NAME, client, partial(_equal, found["client_secret"]))
    _check_signing(found, sign_seconds, terms)
    return Signature(NAME, client, partial(_has_signed, request, found["sign"]))


def _has_signed(request: Request, given: str, secret: str) -> bool:
    expected = sign(secret, request.method, request.path, request.headers, request.parameters())
    return _equal(given, expected)


def wanted_prefetch(request: Request) -> int | None:
    """How many messages at a time the client asks for, if it does."""
    text = _first_values(request.parameters()).get("prefetch")
    if text is None:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS else 0
    if not 1 <= number <= MOST_PREFETCH:
        sentence = f"prefetch has to be a whole number from 1 to {MOST_PREFETCH}"
        raise HttpRefusal(400, "bad_request", sentence)
    return number


def _check_signing(found: Mapping[str, str], sign_seconds: float, terms: Terms) -> None:
    if found.get("sign_method", "") not in ("", "md5"):
        raise refused("sign_method has to be md5")
    if not found.get("sign"):
        raise refused("sign is missing")
    text = found.get("sign_time", "")
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise refused("sign_time has to be a time in seconds since 1970")
    if abs(terms.now - int(text)) > sign_seconds:
        raise refused(
            f"sign_time is more than {sign_seconds:g} s away from the broker's time, "
            f"{terms.now:.0f}"
        )


def refused(why: str) -> HttpRefusal:
    return HttpRefusal(401, "unauthorized", why)


def _first_values(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A parameter that is given twice means what it said first."""
    values: dict[str, str] = {}
    for name, value in pairs:
        values.setdefault(name, value)
    return values


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(as_sent(one), as_sent(other))
