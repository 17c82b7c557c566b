"""The console: raw HTTP for the server that it uses, with the whole application behind that, and
behind the application the broker, through its control socket.

Inputs come with the token of an operator, so that all routes can be reached, and sometimes without.
"""

import asyncio
import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from fuzz import branches
from fuzz.stand import MemoryTransport, Stand
from fuzz.targets.audience import Audience
from fuzz.targets.base import Target, Violation
from fuzz.targets.control import JSON_WORDS
from headwater.console.__main__ import MOST_HEAD
from headwater.console.access import AccessControl
from headwater.console.app import make_app
from headwater.console.connections import ConnectionBounds, bounded
from headwater.console.control_link import ControlLink
from headwater.console.live import Tails
from headwater.console.settings import ConsoleSettings
from headwater.identity.users import FILE

#: Turns of the loop that a request has; then the client leaves. A stream goes on for ever, and is
#: left when it has said something.
TURNS = 300
#: So long a request may go on when its client has left.
PATIENCE_SECONDS = 30.0
HOST = "127.0.0.1"
TOKEN = "hw_fuzz"
HEADERS = (
    f"Host: {HOST}:8090\r\nAuthorization: Bearer {TOKEN}\r\nX-Headwater: 1\r\n"
    f"Origin: http://{HOST}:8090\r\nContent-Type: application/json\r\n"
)
OPERATOR = {
    "role": "operator",
    "created": 0,
    "password": None,
    "tokens": [hashlib.sha256(TOKEN.encode()).hexdigest()],
}
VALUES = {
    "topic": "a%2Fb",
    "name": "prism%2Ffuzz%2Fdefault",
    "offset": "0",
    "id": "1",
    "path": "app.js",
}
#: Bodies of requests, of which one or the other fits.
BODIES: tuple[dict[str, object], ...] = (
    {"topic": "a/b", "text": "21.5", "headers": {"k": "v"}},
    {"name": "alice", "password": "correct horse", "role": "viewer"},
    {"topic": "a/c", "base64": "YWJj"},
)
WORDS = (
    *(b"\r\n", b"\r\n\r\n", b" HTTP/1.1", b" HTTP/1.0", b"GET ", b"POST ", b"PUT ", b"DELETE "),
    *(b"HEAD ", b"OPTIONS ", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n"),
    *(
        b"0\r\n\r\n",
        b"Expect: 100-continue\r\n",
        b"Connection: close\r\n",
        b"Upgrade: websocket\r\n",
    ),
    *(b"Connection: Upgrade\r\n", b"Sec-WebSocket-Version: 13\r\n", b"Range: bytes=0-9\r\n"),
    *(
        b"Authorization: Bearer hw_x\r\n",
        b"Cookie: headwater_session=x\r\n",
        b"%2F",
        b"%00",
        b"%ff",
    ),
    *(b"%ED%A0%80", b"../", b"//", b"?limit=1", b"&cursor=", b"&sort=-", b"&q=", b"http://a/"),
)
_SIZE = re.compile(rb"Content-Length: *\d+", re.IGNORECASE)


class ConsoleTarget(Target):
    name = "console"
    has_json = True

    def __init__(self) -> None:
        self._stand: Stand | None = None
        self._audience: Audience | None = None
        # Made once, as in a console's process: what it learns of its routes is never forgotten.
        connection, connections = bounded(ConnectionBounds())
        self._app = make_app(ConsoleSettings(data=Path("none"), host=HOST, port=8090), connections)
        # As in headwater/console/__main__.py.
        self._config = uvicorn.Config(
            self._app,
            http=connection,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            h11_max_incomplete_event_size=MOST_HEAD,
        )
        self._config.load()

    def seeds(self) -> list[bytes]:
        found = [_request("GET", path) for path in ("/", "/static/app.js", "/healthz", "/metrics")]
        for path, methods in self._app.openapi()["paths"].items():
            for method in methods:
                filled = path.format_map(VALUES)
                if method == "get":
                    found.append(_request("GET", filled))
                else:
                    found += [_request(method.upper(), filled, each) for each in BODIES]
        return [*found, found[0] + found[1], found[2].replace(b"1.1", b"1.0")]

    def words(self) -> list[bytes]:
        return [*branches.words("headwater.console"), *WORDS, *JSON_WORDS]

    def finished(self, data: bytes) -> bytes:
        """With the size of its body, mostly, or the rest would be looked at as another request."""
        head, blank, body = data.partition(b"\r\n\r\n")
        if zlib.crc32(data) % 4 == 0 or not blank:
            return data
        return _SIZE.sub(b"Content-Length: %d" % len(body), head) + blank + body

    async def open(self, directory: Path) -> None:
        self._stand = await Stand.start(directory, lambda session: session)
        self._audience = Audience(self._stand, may_be_closed=True)
        (directory / FILE).write_text(json.dumps({"fuzz": OPERATOR}))
        # What knows the broker is made anew: a link to the one before may be on its way back.
        state, settings = self._app.state, ConsoleSettings(data=directory, host=HOST, port=8090)
        state.broker = ControlLink(directory)
        state.access, state.tails = AccessControl(settings), Tails(state.broker)

    async def close(self) -> None:
        assert self._stand is not None and self._audience is not None
        self._app.state.tails.close()
        self._app.state.broker.close()
        self._audience.leave()
        await self._stand.stop()

    async def run(self, data: bytes) -> None:
        assert self._audience is not None
        state = ServerState()
        make: Any = self._config.http_protocol_class
        protocol = make(
            config=self._config,
            server_state=state,
            app_state={},
            _loop=asyncio.get_running_loop(),
        )
        transport = MemoryTransport(lambda error: transport.get_protocol().connection_lost(error))
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if data:  # a socket never brings nothing
            protocol.data_received(data)
        for _ in range(TURNS):
            if not state.tasks or transport.ended or is_stream(transport.written):
                break
            await asyncio.sleep(0)
        transport.close()
        await asyncio.sleep(0)
        if state.tasks:
            _, left = await asyncio.wait(state.tasks, timeout=PATIENCE_SECONDS)
            if left:
                raise Violation("a request goes on although its client has left")
        self._audience.answer()
        check_answer(b"".join(transport.written))


def _request(method: str, path: str, body: dict[str, object] | None = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    size = f"Content-Length: {len(content)}\r\n" if body is not None else ""
    return f"{method} {path} HTTP/1.1\r\n{HEADERS}{size}\r\n".encode() + content


def is_stream(written: list[bytes]) -> bool:
    return len(written) > 1 and b"text/event-stream" in written[0]


def check_answer(answer: bytes) -> None:
    if not answer:
        return  # the request had no end, or its client left before
    version, _, rest = answer.partition(b" ")
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise Violation(f"this is no answer: {answer[:80]!r}")
    status = rest[:3]
    branches.outcome("console", status)
    if status == b"500":
        raise Violation(f"an internal error: {answer[-200:]!r}")
