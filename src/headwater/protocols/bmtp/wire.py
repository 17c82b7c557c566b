"""BMTP's bytes: nine packets, eight of them of a fixed size.

    first byte       then                                      sent by
    ──────────────── ───────────────────────────────────────── ───────
    0001 version     "BMTP"                          CONN      client
    0010 status                                      CONNACK   broker
    0011 dup r qos   stream:u8 length:u16 payload    PUB       both
    0100 status      stream:u8                       PUBACK    both
    0101 reserved    channel:u32                     SUB       client
    0110 status      channel:u32                     SUBACK    broker
    1100 reserved                                    PING      client
    1101 reserved                                    PINGACK   broker
    1110 reserved                                    DISCONN   both

Integers are big-endian. A packet has at most 65,536 bytes, so the payload of a PUB cannot be as
long as its length field could say. In the dialect "bitmq", a PUB with QoS 0 has no stream id.
"""

from collections.abc import Sequence
from functools import partial
from struct import Struct

from headwater.errors import Code
from headwater.message import AT_MOST_ONCE, EXACTLY_ONCE, Headers
from headwater.protocols.bmtp.settings import Dialect
from headwater.protocols.bulk import TILED, alike, with_headers

NAME = "bmtp"

#: Message types, the upper half of a packet's first byte.
CONN, CONNACK, PUB, PUBACK, SUB, SUBACK, PING, PINGACK, DISCONN = 1, 2, 3, 4, 5, 6, 12, 13, 14
TYPES = {
    CONN: "CONN",
    CONNACK: "CONNACK",
    PUB: "PUB",
    PUBACK: "PUBACK",
    SUB: "SUB",
    SUBACK: "SUBACK",
    PING: "PING",
    PINGACK: "PINGACK",
    DISCONN: "DISCONN",
}

VERSION = 1
MAGIC = b"BMTP"
HELLO = bytes([CONN << 4 | VERSION]) + MAGIC
A_PING, A_PINGACK, A_DISCONN = (bytes([kind << 4]) for kind in (PING, PINGACK, DISCONN))

DUP = 0x08  # may be a repeat
QOS_BITS = 0x03
NO_QOS = 3  # there are only 0, 1 and 2
#: How the QoS of a message travels through the broker.
QOS_HEADERS: dict[int, Headers] = {0: (AT_MOST_ONCE,), 1: (), 2: (EXACTLY_ONCE,)}

#: Status codes.
DONE, MALFORMED, NOT_PERMITTED, TOO_LARGE = 0, 1, 4, 5  # PUBACK and SUBACK
UNSUPPORTED_VERSION, UNAVAILABLE = 1, 2  # CONNACK

#: In the dialect "bitmq", of a PUBACK.
BITMQ_MALFORMED = 2

STATUS_OF = {
    code: {Code.MALFORMED: MALFORMED, Code.NOT_PERMITTED: NOT_PERMITTED}.get(code, TOO_LARGE)
    for code in Code
}


def puback_status(code: Code, dialect: Dialect) -> int:
    status = STATUS_OF[code]
    return BITMQ_MALFORMED if dialect == "bitmq" and status == MALFORMED else status


MOST_PACKET_BYTES = 65_536
HIGHEST_CHANNEL = 0xFFFF_FFFF

U32 = Struct(">I")
CHANNEL = Struct(">BI")  # SUB and SUBACK
_WITH_STREAM = Struct(">BBH")
_WITHOUT_STREAM = Struct(">BH")


def header_size(first: int, dialect: Dialect) -> int:
    """How many bytes of a PUB come before its payload."""
    return 3 if dialect == "bitmq" and not first & QOS_BITS else 4


def connack(status: int) -> bytes:
    return bytes([CONNACK << 4 | status])


def subscribe(channel: int) -> bytes:
    return CHANNEL.pack(SUB << 4, channel)


def suback(status: int, channel: int) -> bytes:
    return CHANNEL.pack(SUBACK << 4 | status, channel)


def pubacks(status: int, streams: bytes) -> bytes:
    """A PUBACK for each stream."""
    if len(streams) == 1:
        return bytes((PUBACK << 4 | status, streams[0]))
    answers = bytearray(2 * len(streams))
    answers[0::2] = bytes([PUBACK << 4 | status]) * len(streams)
    answers[1::2] = streams
    return bytes(answers)


def encode_pubs(first: int, bodies: Sequence[bytes], header: int) -> bytes:
    """A PUB for each body; the stream ids, where there are any, are 0."""
    if header == 4:
        return with_headers(bodies, partial(_WITH_STREAM.pack, first, 0))
    return with_headers(bodies, partial(_WITHOUT_STREAM.pack, first))


def with_streams(pubs: bytes, first: int, streams: bytes) -> bytes:
    """The same PUBs with these stream ids and another first byte."""
    count = len(streams)
    step = 4 + int.from_bytes(pubs[2:4])
    patched = bytearray(pubs)
    if step * count == len(pubs) and alike(pubs, 0, pubs[:4], step - 4) == count:
        patched[0::step] = bytes([first]) * count
        patched[1::step] = streams
        return bytes(patched)
    position = 0
    for stream in streams:
        patched[position] = first
        patched[position + 1] = stream
        position += 4 + (patched[position + 2] << 8 | patched[position + 3])
    return bytes(patched)


def count_alike(
    data: bytes, position: int, head: bytes, tail: bytes, step: int, stream: int | None
) -> int:
    """How many PUBs of `step` bytes, from `position` on, begin with `head` and end in `tail`,
    whatever the byte `stream` of theirs is. It may be more than are found.

    As in `alike`, whole columns of bytes are compared, and each attempt covers a few times what
    has worked before. For a few packets that is not worth it.
    """
    columns = [(index, head[index : index + 1]) for index in range(len(head)) if index != stream]
    ends = enumerate(tail, step - len(tail))
    columns += [(index, bytes([value])) for index, value in ends]
    start = position
    attempt = TILED
    while (count := min(attempt, (len(data) - position) // step)) >= TILED:
        stop = position + count * step
        for column, value in columns:
            if data[position + column : stop : step] != value * count:
                return (position - start) // step
        position, attempt = stop, attempt * 4
    return (position - start) // step
