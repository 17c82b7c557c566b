"""Prism's client side: the bytes of requests, and what a broker sends as events."""

import json
import os
from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from headwater.errors import Code, Refusal
from headwater.message import Headers
from headwater.protocols.base import Answered, Delivered, Ended, Event
from headwater.protocols.prism import wire
from headwater.protocols.prism.names import key_of, topic_of
from headwater.protocols.prism.signature import SIGN, sign
from headwater.protocols.websocket import BINARY, Message, WebSocketClient, masked_frame


@dataclass(frozen=True, slots=True)
class _Received:
    topic: str
    payload: bytes
    headers: Headers
    ack: bytes


def signed_target(
    path: str, app: str, secret: str, seconds: int, prefetch: int | None = None
) -> str:
    """What the handshake asks for: the path with the parameters that prove who asks."""
    query = [("client_id", app), ("sign_time", str(seconds)), ("sign_method", "md5")]
    if prefetch is not None:
        query.append(("prefetch", str(prefetch)))
    query.append((SIGN, sign(secret, "GET", path, (), query)))
    return f"{path}?{urlencode(query, quote_via=quote)}"


class PrismClientSession(WebSocketClient):
    """The client's side. Prism has no answers, but a pong answers all that came before its ping."""

    def publish(self, topic: str, payloads: Sequence[bytes], headers: Headers = ()) -> bytes:
        content_type = ""
        for name, value in headers:
            if name.lower() != wire.CONTENT_TYPE:
                raise Refusal(Code.MALFORMED, f"Prism has no header but content-type, not {name}")
            content_type = value
        return self.messages(BINARY, wire.publish(key_of(topic), payloads, content_type))

    def consume(self, queue: str = "") -> bytes:
        return self.messages(BINARY, [wire.consume(queue)])

    def pong(self, payload: bytes) -> Iterator[Event]:
        yield Answered()

    def read(self, messages: list[Message]) -> Iterator[Event]:
        received: list[_Received] = []
        for _, text in messages:
            try:
                received.append(_parse(text))
            except (ValueError, TypeError, KeyError, RecursionError):
                yield from _delivered(received)
                yield Ended("what the broker sent is not a message")
                return
        yield from _delivered(received)


def _parse(text: bytes) -> _Received:
    """The JSON object of a message; raises all kinds of errors if it is none."""
    found = json.loads(text)
    tag = found["tag"]
    if isinstance(tag, int) and not isinstance(tag, bool):
        tag = str(tag)
    body = _utf8(found["body"])
    payload = b64decode(body, validate=True) if found.get("encoding") == "base64" else body
    known = found.get("type")
    headers = ((wire.CONTENT_TYPE, _utf8(known).decode()),) if known else ()
    return _Received(topic_of(_utf8(found["key"]).decode()), payload, headers, wire.ack(_utf8(tag)))


def _utf8(text: object) -> bytes:
    """JSON can say half of a character, which is no text."""
    if not isinstance(text, str):
        raise TypeError
    return text.encode()


def _delivered(received: list[_Received]) -> Iterator[Event]:
    """Those in a row that have the same topic and headers belong together."""
    start = 0
    for index in range(1, len(received) + 1):
        first = received[start]
        if index < len(received):
            each = received[index]
            if (each.topic, each.headers) == (first.topic, first.headers):
                continue
        together = received[start:index]
        keys = os.urandom(4 * len(together))
        yield Delivered(
            first.topic,
            [each.payload for each in together],
            first.headers,
            [
                masked_frame(BINARY, each.ack, keys[4 * place : 4 * place + 4])
                for place, each in enumerate(together)
            ],
        )
        start = index
