"""People who look at the console: open tails, live pages, lists that are asked for again and again,
and one who opened a tail and went to lunch."""

import select
import socket
import time

from bench.crew import Stages

READ_BYTES = 256 * 1024
TAILS = 10
#: Asked for once a second: the heavy pages, without what is kept for a moment.
PAGES = (
    "topics?sort=-count&limit=200",
    "connections?sort=-in&limit=200",
    "subscriptions?limit=200",
    "topics/{topic}/messages?limit=100",
)
_ANSWER_SECONDS = 30.0


def watch(host: str, port: int, topic: str, seconds: float) -> Stages:
    """Look for so long; then say how many bytes were seen."""
    quoted = topic.replace("/", "%2F")
    streams = [_ask(host, port, f"topics/{quoted}/live") for _ in range(TAILS)]
    streams.append(_ask(host, port, "live?page=overview"))
    sleeper = _ask(host, port, f"topics/{quoted}/live", receive_buffer=4096)
    _page(host, port, "overview")
    yield "watching"
    seen, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        seen += _look(streams, 1.0)
        for page in PAGES:
            seen += _page(host, port, page.format(topic=quoted))
    sleeper.close()
    return seen


def _look(streams: list[socket.socket], seconds: float) -> int:
    until, seen = time.monotonic() + seconds, 0
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select(streams, [], [], left)
        for stream in ready:
            data = stream.recv(READ_BYTES)
            if not data:
                raise ConnectionError("the console closed a live page")
            seen += len(data)
    return seen


def _page(host: str, port: int, path: str) -> int:
    with _ask(host, port, path, close=True) as link:
        return _read_answer(link)


def _read_answer(link: socket.socket) -> int:
    data = link.recv(READ_BYTES)
    if not data.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"the console said {data[:200]!r}")
    size = len(data)
    while part := link.recv(READ_BYTES):
        size += len(part)
    return size


def _ask(
    host: str, port: int, path: str, *, close: bool = False, receive_buffer: int = 0
) -> socket.socket:
    link = socket.socket()
    link.settimeout(_ANSWER_SECONDS)
    if receive_buffer:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    link.connect((host, port))
    lines = [f"GET /api/v1/{path} HTTP/1.1", "Host: localhost"]
    lines += ["Connection: close"] if close else []
    link.sendall("\r\n".join([*lines, "", ""]).encode())
    return link
