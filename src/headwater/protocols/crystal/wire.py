"""CrystalConnector's messages as bytes. Their fields are in crystal.proto.

What occurs once per connection goes through the protobuf runtime. What occurs once per message has
one common shape, and is read and written by its bytes:

    Publish   | 0a | size | channel | 12 | size | payload |
    Forward   | 0a | size | publisher | 12 | size | channel | 1a | size | payload |
    Result    | 0a 00 |     or     | 10 | error |

A size is a varint: seven bits in a byte, the lowest first, and the eighth says that more follow. A
field that is empty is left out; a channel is a message in the message, and always there.
"""

import base64
from collections.abc import Sequence
from functools import lru_cache

from headwater.protocols.websocket.frames import BINARY, header

Channel = tuple[str, str]  # namespace and name

FIRST, SECOND, THIRD = 0x0A, 0x12, 0x1A  # the tags of fields of text, bytes or messages
SUCCESSFUL = bytes((FIRST, 0))
_ERROR = 0x10  # the tag of the second field, where it is a number

NOT_TEXT = b"data:application/octet-stream;base64,"


def failure(error: int) -> bytes:
    """A Result that says what went wrong."""
    return bytes((_ERROR, error))


def is_result(message: bytes) -> bool:
    """A Result is told from a Forward by its bytes: no message from a broker has a type."""
    return not message or message == SUCCESSFUL or message[0] == _ERROR


def is_text(payload: bytes) -> bool:
    if payload.isascii():
        return True
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_text(payload: bytes) -> bytes:
    """Payloads are text here. What is none goes as a data URL (RFC 2397)."""
    return payload if is_text(payload) else NOT_TEXT + base64.b64encode(payload)


def varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _field(tag: int, content: bytes) -> bytes:
    return bytes((tag,)) + varint(len(content)) + content


def _text(tag: int, text: str) -> bytes:
    return _field(tag, text.encode()) if text else b""


def _channel(tag: int, channel: Channel) -> bytes:
    namespace, name = channel
    return _field(tag, _text(FIRST, namespace) + _text(SECOND, name))


@lru_cache(maxsize=1024)
def publish_start(channel: Channel) -> bytes:
    """A Publish up to the payload."""
    return _channel(FIRST, channel)


# A publisher that sends one message at a time would pay for building the same bytes each time.
@lru_cache(maxsize=4096)
def forward_start(publisher: str, channel: Channel) -> bytes:
    """A Forward up to the payload."""
    return _text(FIRST, publisher) + _channel(SECOND, channel)


def before_payload(start: bytes, tag: int, size: int) -> bytes:
    """All of a message but a payload of this size."""
    return start + bytes((tag,)) + varint(size) if size else start


def forwards(publisher: str, channel: Channel, payloads: Sequence[bytes]) -> bytes:
    """The frames of a Forward for each payload."""
    texts = [payload if payload.isascii() else as_text(payload) for payload in payloads]
    start = forward_start(publisher, channel)
    heads = {size: _framed(before_payload(start, THIRD, size), size) for size in {*map(len, texts)}}
    if len(heads) == 1:
        (head,) = heads.values()
        return head + head.join(texts)
    return b"".join([part for text in texts for part in (heads[len(text)], text)])


def _framed(head: bytes, size: int) -> bytes:
    return header(BINARY, len(head) + size) + head


def payload_at(message: bytes, position: int) -> int:
    """Where the payload begins whose size is at `position`, if it is what the message ends with.
    0: it is not."""
    size = shift = 0
    for index in range(position, min(position + 5, len(message))):
        size |= (message[index] & 0x7F) << shift
        if message[index] <= 0x7F:
            return index + 1 if index + 1 + size == len(message) else 0
        shift += 7
    return 0


def split_publish(message: bytes) -> tuple[bytes, int] | None:
    """Of a Publish in the common shape: its bytes up to the size of the payload, and where the
    payload begins. None: it has another shape, or is none."""
    if len(message) < 4 or message[0] != FIRST or message[1] > 0x7F:
        return None
    end = 2 + message[1]
    if end >= len(message) or message[end] != SECOND:
        return None
    body = payload_at(message, end + 1)
    return (message[: end + 1], body) if body else None
