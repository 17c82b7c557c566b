"""The opening handshake: an HTTP request with an upgrade, and the answer to it.

Only what RFC 6455 needs of HTTP/1.1 is understood: one GET without a body. Everything else is
refused with a status and a small JSON object that says why.
"""

import json
import re
from base64 import b64encode
from dataclasses import dataclass, field
from hashlib import sha1
from http import HTTPStatus
from urllib.parse import parse_qsl

from headwater.errors import HeadwaterError
from headwater.message import Headers

REQUEST_BYTES = 8192
END = b"\r\n\r\n"
# A record of TLS with a handshake in it; no HTTP request begins like this.
TLS_HELLO = b"\x16\x03"
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

_REQUEST_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([!-~]+) HTTP/([0-9]\.[0-9])")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


# What a client sent need not be UTF-8. Bytes that are not stand as surrogates in the text, so that
# encoding it in the same way gives back what was sent.
AS_SENT = "surrogateescape"


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; the values of headers and parameters `AS_SENT`."""

    method: str
    path: str  # as it was sent, without the query
    query: str
    headers: list[tuple[str, str]] = field(default_factory=list)

    def header(self, name: str) -> str:
        """The values of a header as plain text, in whatever case its name was sent; empty if it is
        not there."""
        return find_header(self.headers, name).encode(errors=AS_SENT).decode(errors="replace")

    def parameters(self) -> list[tuple[str, str]]:
        """The query's parameters, decoded, in their order."""
        return parse_qsl(self.query, keep_blank_values=True, errors=AS_SENT)


class HttpRefusal(HeadwaterError):
    """The answer to a request is no WebSocket connection but this."""

    def __init__(self, status: int, code: str, sentence: str, headers: Headers = ()) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.headers = headers

    def to_bytes(self) -> bytes:
        body = json.dumps({"error": self.code, "message": str(self)}).encode()
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *[f"{name}: {value}" for name, value in self.headers],
        ]
        return "\r\n".join(lines).encode() + END + body


def read_request(data: bytes, most: int = REQUEST_BYTES) -> tuple[Request, int] | None:
    """The request at the beginning of `data` and its size; None: more bytes are needed."""
    end = data.find(END, 0, most)
    if end < 0:
        if data.startswith(TLS_HELLO):
            raise HttpRefusal(400, "bad_request", "the client speaks TLS, and this port does not")
        if len(data) >= most:
            raise HttpRefusal(431, "too_large", f"the request is over {most} bytes")
        return None
    first, *lines = data[:end].decode(errors=AS_SENT).split("\r\n")
    found = _REQUEST_LINE.fullmatch(first)
    if found is None:
        raise HttpRefusal(400, "bad_request", "the first line is not an HTTP request")
    method, target, version = found.groups()
    if version != "1.1":
        raise HttpRefusal(505, "bad_version", "only HTTP/1.1 is understood here")
    if method != "GET":
        raise HttpRefusal(405, "bad_method", "only GET is understood here", (("Allow", "GET"),))
    if not target.startswith("/"):
        raise HttpRefusal(400, "bad_request", "the request's target is not a path")
    path, _, query = target.partition("?")
    try:
        request = Request(method, path, query, read_headers(lines))
    except ValueError as error:
        raise HttpRefusal(400, "bad_request", str(error)) from None
    if request.header("Transfer-Encoding") or request.header("Content-Length") not in ("", "0"):
        raise HttpRefusal(400, "bad_request", "a request with a body is not understood here")
    return request, end + len(END)


def read_headers(lines: list[str]) -> list[tuple[str, str]]:
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name) or _CONTROL.search(value):
            raise ValueError("a header is malformed")
        headers.append((name, value.strip(" \t")))
    return headers


def find_header(headers: list[tuple[str, str]], name: str) -> str:
    name = name.lower()
    return ", ".join(value for key, value in headers if key.lower() == name)


def check_upgrade(request: Request) -> None:
    """Raise a refusal unless this asks for a WebSocket connection.

    RFC 6455 says that the key decodes to 16 bytes. Deployed clients send others, and nothing
    depends on it, so any key is taken.
    """
    wanted = [token.strip().lower() for token in request.header("Connection").split(",")]
    if request.header("Upgrade").lower() != "websocket" or "upgrade" not in wanted:
        raise HttpRefusal(
            426, "upgrade_required", "only WebSocket is spoken here", (("Upgrade", "websocket"),)
        )
    if request.header("Sec-WebSocket-Version") != "13":
        raise HttpRefusal(
            426,
            "bad_version",
            "only version 13 of WebSocket is spoken here",
            (("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13")),
        )
    if not request.header("Sec-WebSocket-Key"):
        raise HttpRefusal(400, "bad_request", "there is no Sec-WebSocket-Key")


def accept(key: str) -> str:
    """What proves that a server has understood the request with this key."""
    return b64encode(sha1((key + _GUID).encode(), usedforsecurity=False).digest()).decode()


def switching(request: Request) -> bytes:
    """The answer that opens the connection: these lines in this order, and nothing else, because
    there are clients that count them."""
    return (
        "HTTP/1.1 101 Switching Protocols\r\n"
        "Upgrade: websocket\r\n"
        "Connection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accept(request.header('Sec-WebSocket-Key'))}\r\n\r\n"
    ).encode()
