"""A segment: one file of the log, named after the offset of its first record.

    +--------+-------+-------+-- - - --+                          active, or not yet sealed
    | header | frame | frame |         |
    +--------+-------+-------+-- - - --+--------+---------+       sealed
    | header | frame | frame |         | footer | trailer |
    +--------+-------+-------+-- - - --+--------+---------+

    header      8  magic            "HWATERLG"             u-numbers are little-endian
                2  version          u16, 1
                2  sealed           u16, 0 or 1
                4  identity         u32, the same in all files of one log (see frame.py)
                8  base offset      u64, the same as in the file's name
                4  schema length    u32
                n  schema           of a frame's message, as an Arrow IPC message
                4  crc32c           u32, over all of the above

    footer         the index (see index.py), as an Arrow IPC message

    trailer     8  footer position  u64
                4  footer length    u32
                4  footer crc32c    u32, begun with the identity
                8  end offset       u64, behind the last record
                8  last timestamp   i64, microseconds; 0 if no record has one
                4  crc32c           u32, over the above, begun with the identity
                4  magic            "HWLG"

Rules:
- Every byte of a sealed file is covered by a checksum or has exactly one value that is right.
- A file changes only by growing (the active one) or by being replaced as a whole (sealing,
  repair). What comes into being half is written under another name first.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

import pyarrow as pa
from crc32c import crc32c

from headwater.errors import LogDamaged, LogError
from headwater.files import sync_directory
from headwater.log import record
from headwater.log.embedded import frame, index
from headwater.log.embedded.file import LogFile
from headwater.log.embedded.index import Index

MAGIC = b"HWATERLG"
VERSION = 1
TRAILER_MAGIC = b"HWLG"

_FIXED = Struct("<8sHHIQI")
_TRAILER = Struct("<QIIQq")
_TRAILER_END = Struct("<I4s")
_CRC = Struct("<I")
_SCHEMA: bytes = record.SCHEMA.serialize().to_pybytes()

#: Of the headers written here; the schema of another version of Arrow can be longer.
HEADER_BYTES = _FIXED.size + len(_SCHEMA) + _CRC.size
_HEADER_LIMIT = 4096
TRAILER_BYTES = _TRAILER.size + _TRAILER_END.size

SUFFIX = ".log"
#: What is being written and has no meaning yet; removed when the log is opened.
TEMPORARY = ".tmp"
_NAME = re.compile(r"(\d{20})\.log")


class Header(NamedTuple):
    base: int
    sealed: bool
    identity: int
    #: The position of the first frame.
    start: int


class Trailer(NamedTuple):
    position: int
    length: int
    crc: int
    end: int
    last_timestamp: int


class Segment:
    """What is known of a segment without its index. Only that of the active one changes."""

    __slots__ = ("base", "end", "held", "last_timestamp", "path", "sealed", "size")

    def __init__(
        self, path: Path, base: int, end: int, size: int, last_timestamp: int, *, sealed: bool
    ) -> None:
        self.path = path
        self.base, self.end = base, end
        self.size = size
        #: 0 if no record has one.
        self.last_timestamp = last_timestamp
        self.sealed = sealed
        #: Set while it must stay open: the index of the active segment grows in memory.
        self.held: OpenSegment | None = None

    @property
    def name(self) -> str:
        return self.path.name

    def damaged(self, first: int, end: int | None, what: str) -> LogDamaged:
        """The error that names what is wrong from `first` up to and without `end`."""
        return LogDamaged(self.name, first, None if end is None else end - 1, what)

    def __repr__(self) -> str:
        return f"Segment({self.name}, {self.base}..{self.end}, sealed={self.sealed})"


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A segment's file and index, for reading."""

    file: LogFile
    index: Index


class Replaced(Exception):
    """The file is not, or no longer, the one that the segment describes: look again."""


def path_of(directory: Path, base: int) -> Path:
    return directory / f"{base:020}{SUFFIX}"


def base_of(path: Path) -> int | None:
    """The base offset in a file's name; None if it is not the name of a segment."""
    match = _NAME.fullmatch(path.name)
    return int(match[1]) if match else None


def files(directory: Path) -> list[Path]:
    """The segments' files in the order of their offsets."""
    return sorted(path for path in directory.iterdir() if base_of(path) is not None)


def encode_header(base: int, identity: int, *, sealed: bool) -> bytes:
    data = _FIXED.pack(MAGIC, VERSION, sealed, identity, base, len(_SCHEMA)) + _SCHEMA
    return data + _CRC.pack(crc32c(data))


def read_header(file: LogFile, identity: int | None) -> Header | str:
    """The header, or what is wrong with it; for any log if `identity` is None."""
    data = file.read(0, _HEADER_LIMIT)
    if len(data) < HEADER_BYTES:
        return "the header is cut off"
    magic, version, sealed, owner, base, length = _FIXED.unpack_from(data)
    until = _FIXED.size + length
    if until + _CRC.size > len(data) or crc32c(data[:until]) != _CRC.unpack_from(data, until)[0]:
        return "the checksum of the header does not fit"
    if magic != MAGIC or base != base_of(file.path):
        return "the header does not belong to this file"
    if identity is not None and owner != identity:
        return "the file belongs to another log"
    schema = pa.ipc.read_schema(pa.py_buffer(data[_FIXED.size : until]))
    if version != VERSION or sealed > 1 or not schema.equals(record.SCHEMA):
        raise LogError(
            f"segment {file.path.name} was written by another version of Headwater "
            f"(format {version}; this one reads format {VERSION})"
        )
    return Header(base, bool(sealed), owner, until + _CRC.size)


def encode_trailer(trailer: Trailer, identity: int) -> bytes:
    data = _TRAILER.pack(*trailer)
    return data + _TRAILER_END.pack(crc32c(data, identity), TRAILER_MAGIC)


def read_trailer(file: LogFile, identity: int) -> Trailer | str:
    """The trailer of a sealed file, or what is wrong with it."""
    size = file.size
    if size < HEADER_BYTES + TRAILER_BYTES:
        return "the trailer is cut off"
    data = file.read(size - TRAILER_BYTES, TRAILER_BYTES)
    if len(data) < TRAILER_BYTES:  # of the active segment: the room at its end is gone
        return "the trailer is cut off"
    crc, magic = _TRAILER_END.unpack_from(data, _TRAILER.size)
    if magic != TRAILER_MAGIC or crc32c(data[: _TRAILER.size], identity) != crc:
        return "the checksum of the trailer does not fit"
    trailer = Trailer(*_TRAILER.unpack_from(data))
    if trailer.position + trailer.length + TRAILER_BYTES != size:
        return "the trailer does not belong to this file"
    return trailer


def load_footer(file: LogFile, trailer: Trailer, identity: int) -> Any | str:
    """The footer of a sealed file, or what is wrong with it."""
    data = file.read(trailer.position, trailer.length)
    if crc32c(data, identity) != trailer.crc:
        return "the checksum of the footer does not fit"
    try:
        return index.read_footer(data)
    except pa.ArrowException as error:
        return f"the footer cannot be read ({error})"


def open_segment(segment: Segment, identity: int) -> OpenSegment:
    """The segment's file and index, for reading. Raises Replaced and LogDamaged."""
    try:
        file = LogFile(segment.path)
    except FileNotFoundError:
        raise Replaced from None
    header = read_header(file, identity)
    if isinstance(header, str):
        raise segment.damaged(segment.base, segment.end, header)
    if header.sealed != segment.sealed:
        raise Replaced
    return OpenSegment(file, _index(segment, file, header, identity))


def _index(segment: Segment, file: LogFile, header: Header, identity: int) -> Index:
    if not segment.sealed:
        made = Index(header.base, header.start)
        for end, stop in frame.headers(file, header.start, segment.size, header.base):
            made.add(end, stop)
        return made
    trailer, footer = ending_of(segment, file, identity)
    return index.from_footer(footer, trailer.end, trailer.position)


def ending_of(segment: Segment, file: LogFile, identity: int) -> tuple[Trailer, Any]:
    """Trailer and footer (a record batch) of a sealed segment. Raises LogDamaged."""
    trailer = read_trailer(file, identity)
    if isinstance(trailer, str):
        raise segment.damaged(segment.base, segment.end, trailer)
    footer = load_footer(file, trailer, identity)
    if isinstance(footer, str):
        raise segment.damaged(segment.base, segment.end, footer)
    return trailer, footer


def create(directory: Path, base: int, identity: int) -> Segment:
    """A new, empty segment, on disk with its name when this returns."""
    path = path_of(directory, base)
    temporary = path.with_suffix(SUFFIX + TEMPORARY)
    try:
        file = LogFile(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        file.write(0, [memoryview(encode_header(base, identity, sealed=False))])
        os.fsync(file.fd)
        os.replace(temporary, path)
        sync_directory(directory)
    except BaseException:
        # Left behind, it would stand in the way of the records that go to the old segment now.
        temporary.unlink(missing_ok=True)
        path.unlink(missing_ok=True)
        raise
    file.path = path
    segment = Segment(path, base, base, HEADER_BYTES, 0, sealed=False)
    segment.held = OpenSegment(file, Index(base, HEADER_BYTES))
    return segment
