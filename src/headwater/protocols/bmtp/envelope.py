"""What is inside a PUB: BMTP leaves it open where the channel is, so there are two envelopes.

    "json"    to the broker    {"consumer_id": 42, "producer_id": …, "data": …}
              to a subscriber  {"msg_id":7,"producer_id":…,"consumer_id":42,"create":…,"data":…}
    "binary"  both ways        channel:u32 payload

Data in JSON is a string, whose UTF-8 bytes are the payload, or an object or array, whose text is.
To a subscriber, a payload that is none of these goes as base64, with `"encoding":"base64"` behind.
A producer_id is any scalar. It travels as the header of that name, as the JSON text that it is.

In the dialect "bitmq", a client may also say how and when it wants a message to be delivered:

    "delivery_mode"   1: at most once, to all that are there; 2: as usual; nothing else is one
    "effect"          seconds until it is delivered
    "expire"          seconds from then on until it is delivered to nobody any more

and a message to a subscriber has no producer_id if there is none.

These functions define the envelopes; `reader.py` has a shortcut for messages that look alike.
"""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import NamedTuple

from headwater.errors import Code, Refusal
from headwater.message import Headers
from headwater.protocols.bmtp.jsontext import (
    Member,
    is_container,
    members,
    quoted,
    value_at,
)
from headwater.protocols.bmtp.names import parse_channel
from headwater.protocols.bmtp.settings import Dialect
from headwater.protocols.bmtp.wire import HIGHEST_CHANNEL, MOST_PACKET_BYTES, U32

PRODUCER = "producer_id"
# Offsets and microseconds have 63 bits.
_HIGHEST = 2**63 - 1
# In JSON, an envelope to a subscriber may be longer than the one to the broker: by an offset, a
# time and a producer that is null, with their names up to 74 bytes. Data never become longer. So
# what is published in packets of up to this size fits into a subscriber's.
SURE_BYTES = MOST_PACKET_BYTES - 80

# ASCII without these is a JSON string when put into quotes, and neither an object nor an array.
_NOT_PLAIN = bytes(range(32)) + b'"\\{['

# An envelope as `json_bodies` writes it, around such a text.
_PLAIN_DELIVERY = re.compile(
    rb'\{"msg_id":(?:0|[1-9][0-9]*),"producer_id":(null|"[^"\\\x00-\x1f\x80-\xff]*+")'
    rb',"consumer_id":(0|[1-9][0-9]{0,9}),"create":(?:0|[1-9][0-9]*)'
    rb',"data":"([^"\\\x00-\x1f\x80-\xff]*+)"\}'
)


class Wishes(NamedTuple):
    """How and when messages are to be delivered."""

    fleeting: bool = False  # at most once
    effect: int = 0  # seconds; 0: at once
    expire: int = 0  # seconds; 0: never


NO_WISHES = Wishes()
MOST_WISHED_SECONDS = 30 * 24 * 3600  # what the deployed server understands; it ignores others
_FLEETING, _USUAL = 1.0, 2.0  # numbers of JSON


class EnvelopeOrigin(NamedTuple):
    """What messages of one run have in common, as far as the envelope tells."""

    channel: int
    producer: str = ""  # JSON text; empty: there is none
    publisher: str = ""  # the same for people to read
    wishes: Wishes = NO_WISHES


class Opened(NamedTuple):
    origin: EnvelopeOrigin
    payload: bytes
    #: Where in the envelope the payload is, as a string, an object, an array or itself.
    span: tuple[int, int]


# To the broker


def open_json(envelope: bytes, dialect: Dialect = "document") -> Opened:
    """What a client put into an envelope."""
    try:
        text = envelope.decode()
        found = members(text)
        origin = _origin(text, found)
        if dialect == "bitmq":
            origin = origin._replace(wishes=_wishes(found))
        if "data" not in found:
            raise ValueError("there are no data")
        payload = _payload_of(text, found["data"])
        origin.publisher.encode()  # half a surrogate pair is no text
    except ValueError as error:
        raise Refusal(Code.MALFORMED, f"the envelope is malformed: {error}") from None
    return Opened(origin, payload, _span(text, found["data"]))


def open_data(value: bytes) -> bytes | None:
    """The payload that this JSON value is; None: it is not one value that can be."""
    try:
        text = value.decode()
        found, end = value_at(text, 0)
        return _payload_of(text, Member(found, 0, end)) if end == len(text) else None
    except ValueError:
        return None


def open_binary(envelope: bytes) -> Opened:
    if len(envelope) < U32.size:
        raise Refusal(Code.MALFORMED, "the envelope has no channel id")
    (channel,) = U32.unpack_from(envelope)
    return Opened(EnvelopeOrigin(channel), envelope[U32.size :], (U32.size, len(envelope)))


def close_json(channel: int, payloads: Sequence[bytes], producer: str = "") -> list[bytes]:
    """Envelopes for the broker, as our own client writes them."""
    before = f'{{"consumer_id":{channel},'
    if producer:
        before += f'"{PRODUCER}":{producer},'
    start = before.encode() + b'"data":'
    try:
        return [b"%b%b}" % (start, quoted(payload.decode()).encode()) for payload in payloads]
    except UnicodeDecodeError:
        raise Refusal(
            Code.MALFORMED, "BMTP's JSON envelope carries text; its binary envelope carries bytes"
        ) from None


def binary_bodies(channel: int, payloads: Sequence[bytes]) -> list[bytes]:
    """Envelopes for either side."""
    start = U32.pack(channel)
    return [start + payload for payload in payloads]


# To a subscriber


def json_bodies(
    channel: int,
    payloads: Sequence[bytes],
    offsets: Sequence[int],
    timestamp: int,
    producer: str = "null",
) -> list[bytes]:
    """`timestamp` is in microseconds, like a batch's. `producer` is JSON; empty: left out."""
    named = f',"{PRODUCER}":{producer}' if producer else ""
    common = f'{named},"consumer_id":{channel},"create":{timestamp // 1000},"data":'
    start = b'{"msg_id":%d' + common.encode().replace(b"%", b"%%")
    if _are_plain(b"".join(payloads)):
        whole = start + b'"%b"}'
        return [whole % pair for pair in zip(offsets, payloads, strict=True)]
    whole = start + b"%b}"
    data = map(_data, payloads)
    return [whole % pair for pair in zip(offsets, data, strict=True)]


def json_fits(origin: EnvelopeOrigin, payload: bytes, most: int) -> bool:
    """Has an envelope of `most` bytes to a subscriber room for this payload, whatever offset and
    time it will have?"""
    producer = origin.producer or "null"
    (empty,) = json_bodies(origin.channel, [b""], [_HIGHEST], _HIGHEST, producer)
    return len(empty) - len('""') + len(_data(payload)) <= most


def _are_plain(joined: bytes) -> bool:
    return joined.isascii() and len(joined.translate(None, _NOT_PLAIN)) == len(joined)


def open_delivered(envelope: bytes) -> Opened:
    """What a broker put into an envelope."""
    if plain := _PLAIN_DELIVERY.fullmatch(envelope):
        producer, channel, payload = plain.groups()
        if int(channel) <= HIGHEST_CHANNEL:
            name = "" if producer == b"null" else producer.decode()
            start, end = plain.span(3)
            return Opened(
                EnvelopeOrigin(int(channel), name, name[1:-1]), payload, (start - 1, end + 1)
            )
    return parse_delivered(envelope)


def parse_delivered(envelope: bytes) -> Opened:
    """The same; this is its definition, and that a shortcut for the usual case."""
    opened = open_json(envelope)
    if b'"encoding"' not in envelope:
        return opened
    encoding = members(envelope.decode()).get("encoding")
    if encoding is None or encoding.value != "base64":
        return opened
    try:
        return opened._replace(payload=b64decode(opened.payload, validate=True))
    except binascii.Error:
        raise Refusal(Code.MALFORMED, "the data are not base64") from None


def as_scalar(text: str) -> str:
    """A producer_id as JSON: what is a scalar already, or else a string."""
    try:
        value, end = value_at(text, 0)
    except ValueError:
        return quoted(text) if text else ""
    return text if end == len(text) and not isinstance(value, dict | list) else quoted(text)


def producer_of(headers: Headers) -> str:
    return dict(headers).get(PRODUCER, "")


def _data(payload: bytes) -> bytes:
    if is_container(payload):
        return payload
    try:
        return quoted(payload.decode()).encode()
    except UnicodeDecodeError:
        return b'"%b","encoding":"base64"' % b64encode(payload)


def _origin(text: str, found: dict[str, Member]) -> EnvelopeOrigin:
    if "consumer_id" not in found:
        raise ValueError("there is no consumer_id")
    channel = parse_channel(_raw(text, found["consumer_id"]))
    if channel is None:
        raise ValueError("the consumer_id is not a channel")
    if PRODUCER not in found:
        return EnvelopeOrigin(channel)
    value, raw = found[PRODUCER].value, _raw(text, found[PRODUCER])
    if isinstance(value, dict | list):
        raise ValueError("the producer_id is not a scalar")
    if value is None:
        return EnvelopeOrigin(channel)
    return EnvelopeOrigin(channel, raw, value if isinstance(value, str) else raw)


def _wishes(found: dict[str, Member]) -> Wishes:
    mode: object = found["delivery_mode"].value if "delivery_mode" in found else _USUAL
    if not isinstance(mode, float) or mode not in (_FLEETING, _USUAL):
        raise ValueError("the delivery_mode is neither 1 nor 2")
    return Wishes(mode == _FLEETING, _seconds(found, "effect"), _seconds(found, "expire"))


def _seconds(found: dict[str, Member], name: str) -> int:
    value: object = found[name].value if name in found else 0.0
    if not isinstance(value, float) or not 0 <= value <= MOST_WISHED_SECONDS:
        return 0
    return int(value)


def _payload_of(text: str, data: Member) -> bytes:
    if isinstance(data.value, str):
        return data.value.encode()
    if isinstance(data.value, dict | list):
        return _raw(text, data).encode()
    raise ValueError("the data are neither a string nor an object nor an array")


def _span(text: str, data: Member) -> tuple[int, int]:
    """In bytes, while the text counts characters."""
    start = len(text[: data.start].encode())
    return start, start + len(_raw(text, data).encode())


def _raw(text: str, member: Member) -> str:
    return text[member.start : member.end]
