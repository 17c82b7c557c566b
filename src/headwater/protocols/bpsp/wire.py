"""BPSP: one kind of frame, eight opcodes, text headers.

     0        2        3      4              8                 8 + V                 8 + V + D
    +--------+--------+------+--------------+------------------+---------------------+
    | V: u16 | opcode | flag | D: u32       | variable headers | data                |
    +--------+--------+------+--------------+------------------+---------------------+

    variable headers:  "key""value";"key""value";      where \\" is the only escape

    opcode      sent by   meaning
    1 INFO      broker    greeting, once, as soon as the connection is there
    2 CONNECT   client    who it is
    3 PUB       client    a message for x-topic
    4 SUB       client    a subscription of x-topic, named x-sub-tag
    5 UNSUB     client    the end of that subscription
    6 MSG       broker    a message for a subscription
    7 +OK       broker    done, where the request's flag asked for an answer
    8 -ERR      broker    not done; x-status-code says why

Integers are big-endian. A client without the ACK flag hears of a failure only if it ends the
connection; then it always does, before the end.
"""

import re
from struct import Struct
from typing import Final

from headwater.errors import Code, Refusal
from headwater.message import Headers

NAME: Final = "bpsp"

INFO: Final = 1
CONNECT: Final = 2
PUB: Final = 3
SUB: Final = 4
UNSUB: Final = 5
MSG: Final = 6
OK: Final = 7
ERR: Final = 8
OPCODES = {1: "INFO", 2: "CONNECT", 3: "PUB", 4: "SUB", 5: "UNSUB", 6: "MSG", 7: "+OK", 8: "-ERR"}
ACK: Final = 0x80  # the client wants +OK or -ERR
ECHO: Final = 0x40  # the publisher's own subscriptions get the message too

TOPIC, ORIGIN, TAG, FROM, STATUS = (
    "x-topic",
    "x-origin-topic",
    "x-sub-tag",
    "x-from",
    "x-status-code",
)
DEFAULT_TAG = "_0"

STATUS_OF = {
    Code.MALFORMED: 400,
    Code.NOT_PERMITTED: 403,
    Code.NOT_FOUND: 404,
    Code.UNKNOWN_COMMAND: 405,
    Code.ALREADY_EXISTS: 409,
    Code.BUSY: 423,
    Code.TOO_LARGE: 413,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.NO_SPACE: 507,
}
CODE_OF = {str(status): code for code, status in STATUS_OF.items()}

HEADERS_LIMIT: Final = 0xFFFF

FIXED = Struct(">HBBI")
HEADERS_SIZE = Struct(">H")
DATA_SIZE = Struct(">I")
# Possessive, so that a backslash before a quote is an escape on every attempt.
_PAIR = re.compile(r'"((?:\\"|[^"])*+)""((?:\\"|[^"])*+)";', re.DOTALL)


def parse_headers(raw: bytes) -> Headers:
    """The pairs in their order; of a repeated key, the last value."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise Refusal(Code.MALFORMED, "the headers are not UTF-8") from None
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            raise Refusal(Code.MALFORMED, f"malformed headers at character {position}")
        key, value = pair.groups()
        found[key.replace('\\"', '"')] = value.replace('\\"', '"')
        position = pair.end()
    return tuple(found.items())


def format_headers(headers: Headers) -> bytes:
    """Pairs whose text ends in a backslash are left out: nothing can stand for that character
    before a closing quote."""
    text = "".join([f'"{key}""{value}";' for key, value in headers])
    if "\\" in text or text.count('"') != 4 * len(headers):
        text = "".join([_escaped(key, value) for key, value in headers])
    return text.encode()


def _escaped(key: str, value: str) -> str:
    if key.endswith("\\") or value.endswith("\\"):
        return ""
    return '"{}""{}";'.format(key.replace('"', '\\"'), value.replace('"', '\\"'))


def frame(opcode: int, headers: bytes = b"", data: bytes = b"", flag: int = 0) -> bytes:
    if len(headers) > HEADERS_LIMIT:
        raise Refusal(Code.TOO_LARGE, f"the headers are over {HEADERS_LIMIT} bytes")
    return FIXED.pack(len(headers), opcode, flag, len(data)) + headers + data
