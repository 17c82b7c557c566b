"""PSMB's bytes: the words, and MSG frames in bulk.

"MSG" | length: u64 | payload          big-endian, like all integers of PSMB
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from headwater.errors import Code, ProtocolViolation
from headwater.message import Tiles
from headwater.protocols.bulk import TILED, alike, with_headers

NAME: Final = "psmb"
VERSIONS = (1, 2)

MAGIC = b"PSMB"
UNSUPPORTED = b"UNSUPPORTED PROTOCOL\0"  # message 2
OK = b"OK\0"  # message 7
BAD_COMMAND = b"BAD COMMAND\0"  # message 6
FAILED = b"FAILED\0"  # message 8
PUB: Final = b"PUB"
SUB: Final = b"SUB"
MSG: Final = b"MSG"
NOP: Final = b"NOP"
BYE: Final = b"BYE"
NIL: Final = b"NIL"

ERROR_BYTES = 128  # message 8: "read up to 128 bytes including the terminating NUL"
ALLOW_HISTORY = 1  # bit 0 of the options of SUB

HANDSHAKE = Struct(">4sII")
U32 = Struct(">I")
U64 = Struct(">Q")
WELCOME = OK + U32.pack(0)  # message 3


def message_header(size: int) -> bytes:
    return MSG + U64.pack(size)


def read_messages(data: bytes, position: int, limit: int) -> tuple[Sequence[bytes], int]:
    """The payloads of the MSG frames from `position` on, and where they end."""
    payloads: list[bytes] = []
    while len(data) - position >= 11 and data.startswith(MSG, position):
        (size,) = U64.unpack_from(data, position + 3)
        end = position + 11 + size
        if size > limit and not payloads:  # told before anything is allocated for it
            raise ProtocolViolation(
                Code.TOO_LARGE,
                f"a message of {size} bytes is over the limit of {limit}",
                limit="message_bytes",
            )
        if size > limit or end > len(data):
            break
        header = data[position : position + 11]
        count = alike(data, position, header, size) if data.startswith(header, end) else 1
        end = position + count * (11 + size)
        if count >= TILED:
            if payloads:
                break  # the next call takes them as they are
            return Tiles(data[position:end], 11, size), end
        payloads += [
            data[start + 11 : start + 11 + size] for start in range(position, end, 11 + size)
        ]
        position = end
    return payloads, position


def message_size(data: bytes, position: int) -> int:
    """How many bytes an incomplete MSG frame needs to be complete."""
    if len(data) - position < 11:
        return 11
    return 11 + int(U64.unpack_from(data, position + 3)[0])


def encode_messages(payloads: Sequence[bytes]) -> bytes:
    """MSG frames for all payloads."""
    return with_headers(payloads, message_header)
