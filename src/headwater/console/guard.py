"""Keeps out what browsers can be tricked into, before anything else looks at a request.

    Host          must be an address, localhost or a name that was configured: a name that someone
                  points at this machine (DNS rebinding) is none of these
    Origin        of a request that changes something must be this site, where a browser tells it
    X-Headwater   must be there in such a request: other sites cannot add a header unasked
                  (with a token it need not: no browser sends one by itself)
    answers       cannot be framed, sniffed, or run anything that is not from here
    bodies        are small, until a route knows that whoever asks may send a large one; they arrive
                  in time, and few large ones at the same time

It also keeps `%2F` in a path apart from `/`: topics and names of queues are one segment.
"""

import asyncio
import ipaddress
from urllib.parse import unquote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.console.connections import LEAST_RATE
from headwater.console.problems import answer
from headwater.console.settings import ConsoleSettings

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
CSRF_HEADER = "x-headwater"
#: Stands for a `/` that is part of a name. No name can have it: it is no character of UTF-8.
SLASH = "\ud800"
#: The largest body of a request by anyone.
MOST_BODY = 256 * 1024

_ANSWERED = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def name_of(segment: str) -> str:
    """The name that a segment of a path stands for."""
    return segment.replace(SLASH, "/")


class Body:
    """What a request brings. A route that knows who asks may allow more, with `allow`."""

    _NAME = "headwater.body"

    def __init__(self, scope: Scope, receive: Receive, seconds: float) -> None:
        self._most = MOST_BODY
        self._large: asyncio.Semaphore | None = None
        self._holds_large = False
        self._receive = receive
        self._read = 0
        self._seconds = seconds  # that are left, not counting those in which nobody reads
        self._complete = False
        scope[self._NAME] = self

    @classmethod
    def of(cls, scope: Scope) -> "Body":
        body: Body = scope[cls._NAME]
        return body

    def allow(self, most: int, large: asyncio.Semaphore) -> None:
        """It may have so many bytes. While it is larger than others may be, it takes a place of
        `large`."""
        self._most, self._large = most, large

    async def receive(self) -> Message:
        if self._complete:
            return await self._receive()
        if self._large is not None and self._read > MOST_BODY and not self._holds_large:
            await self._large.acquire()
            self._holds_large = True
        message = await self._receive_in_time()
        size = len(message.get("body", b""))
        self._read += size
        self._seconds += size / LEAST_RATE
        self._complete = not message.get("more_body", False)
        if self._read > self._most:
            raise HTTPException(413, f"a request has at most {self._most} bytes here")
        return message

    async def _receive_in_time(self) -> Message:
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._seconds):
                return await self._receive()
        except TimeoutError:
            sentence = "the body of the request did not arrive in time"
            raise HTTPException(408, sentence, {"Connection": "close"}) from None
        finally:
            self._seconds -= clock() - began

    def close(self) -> None:
        """The request is answered."""
        if self._large is not None and self._holds_large:
            self._large.release()


class Guard:
    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._body_seconds = settings.unfinished_seconds
        self._names = {"localhost", settings.host.lower(), *map(str.lower, settings.names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered = MutableHeaders(scope=message)
                for name, value in _ANSWERED.items():
                    answered.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    answered.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refusal(scope, headers)
        if refused is not None:
            await answer(*refused)(scope, receive, guarded)
            return
        scope["path"] = _path(scope)
        body = Body(scope, receive, self._body_seconds)
        try:
            await self._app(scope, body.receive, guarded)
        finally:
            body.close()

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str, str] | None:
        host = headers.get("host", "")
        if not self._is_us(host):
            return (
                421,
                "wrong_host",
                "this console is not known by that name; [console] names lists those it has",
            )
        if scope["method"] in SAFE:
            return None
        origin = headers.get("origin")
        if origin is not None and _netloc(origin) != host.lower():
            return 403, "wrong_origin", "this request comes from another site"
        by_token = headers.get("authorization", "").lower().startswith("bearer ")
        if not by_token and headers.get(CSRF_HEADER) != "1":
            return (
                403,
                "missing_csrf_header",
                "a request that changes something needs the header X-Headwater: 1",
            )
        return None

    def _is_us(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""  # that of no site


def _path(scope: Scope) -> str:
    raw = scope.get("raw_path", b"").decode("latin-1")
    if "%2f" not in raw.lower():
        path: str = scope["path"]
        return path
    parts = raw.replace("%2f", "%2F").split("%2F")
    return SLASH.join(unquote(part, errors="replace") for part in parts)
