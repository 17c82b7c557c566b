"""A frame: one Arrow message with its place in the log, and the means to trust it.

    byte  0        4        8             16            24      28
          +--------+--------+-------------+-------------+-------+--------------------------------+
          | length | crc32c | base offset | durable     | count | Arrow IPC record batch message |
          +--------+--------+-------------+-------------+-------+--------------------------------+
            u32      u32      u64           u64           u32     FF FF FF FF, metadata, body

All numbers are little-endian, as in Arrow.

    length        of the whole frame, these 28 bytes included
    crc32c        over everything else in the frame, begun with the identity of the log
    base offset   of the first record
    durable       the offset before which everything was known to be on the disk when this frame
                  was written; tells damage from a write that was not finished (see recovery.py)
    count         of records; with a message that has no rows they are lost (see repair.py)

Rules:
- Frames follow each other without a gap, and so do their offsets.
- The identity is a random number of the log. It keeps bytes that a client published from passing
  for a frame when a damaged file is searched for the next good one, and frames of another log too.
"""

import re
from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

from crc32c import crc32c

from headwater.log.embedded.file import LogFile, ReadWindow

HEADER = Struct("<IIQQI")
_CRC = Struct("<I")

# The header and the smallest thing that can be called an Arrow message.
_SHORTEST = HEADER.size + 16
_SCAN_BYTES = 1 << 20
_HEADERS_BYTES = 64 << 10

# Where an Arrow message begins: the marker, and the length of the metadata, which is below 64 KiB.
# Without the second half a payload full of FF would be a candidate at every byte.
_MARKER = re.compile(rb"\xff\xff\xff\xff(?=..\x00\x00)", re.DOTALL)


class Frame(NamedTuple):
    """A frame that was found whole."""

    position: int
    base: int
    durable: int
    records: int
    data: memoryview

    @property
    def end(self) -> int:
        """The offset behind its last record."""
        return self.base + self.records

    @property
    def stop(self) -> int:
        """The position behind its last byte."""
        return self.position + len(self.data)

    def message(self) -> bytes:
        # A copy of its own is aligned, as Arrow wants it, and does not keep all that was read
        # along with it in memory.
        return bytes(self.data[HEADER.size :])


def header(message: Any, base: int, durable: int, count: int, identity: int) -> bytes:
    """What stands before `message` in its frame."""
    length = HEADER.size + len(message)
    bare = HEADER.pack(length, 0, base, durable, count)
    crc = crc32c(message, crc32c(bare[8:], crc32c(bare[:4], identity)))
    return HEADER.pack(length, crc, base, durable, count)


def intact(data: memoryview, identity: int) -> bool:
    """Whether these bytes, a frame by its length, are what was written."""
    crc: int = _CRC.unpack_from(data, 4)[0]
    return crc32c(data[8:], crc32c(data[:4], identity)) == crc


class Scan:
    """Walks over frames in order and stops at the end or at the first one that is not whole.

    Then `position` is where it stopped, `expected` the offset that should have come, and `fault`
    says what is wrong (None at the end).
    """

    def __init__(
        self, file: LogFile, position: int, stop: int, expected: int, identity: int
    ) -> None:
        self.position, self.expected = position, expected
        self.fault: str | None = None
        self._stop, self._identity = stop, identity
        self._window = ReadWindow(file, _SCAN_BYTES)

    def __iter__(self) -> Iterator[Frame]:
        while self.position < self._stop:
            head = self._window.get(self.position, HEADER.size)
            self.fault, length, count = check_header(
                head, self.expected, self._stop - self.position
            )
            if self.fault is not None:
                return
            data = self._window.get(self.position, length)
            if len(data) < length or not intact(data, self._identity):
                self.fault = "the checksum does not fit"
                return
            durable = HEADER.unpack(head)[3]
            yield Frame(self.position, self.expected, durable, count, data)
            self.position += length
            self.expected += count


def check_header(head: memoryview, expected: int, room: int) -> tuple[str | None, int, int]:
    """What is wrong with a frame's header, if anything, and the frame's length and count."""
    if len(head) < HEADER.size:
        return "a frame is cut off", 0, 0
    length, _, base, _, count = HEADER.unpack(head)
    if not _SHORTEST <= length <= room:
        return "a frame is longer than the rest of the file or has no length", 0, 0
    if base != expected or not count:
        return f"a frame says offset {base} where {expected} should be", 0, 0
    return None, length, count


def headers(file: LogFile, position: int, stop: int, base: int) -> Iterator[tuple[int, int]]:
    """The end offset and end position of every frame, as the headers say; nothing is checked."""
    window = ReadWindow(file, _HEADERS_BYTES)
    while position < stop:
        fault, length, count = check_header(
            window.get(position, HEADER.size), base, stop - position
        )
        if fault is not None:
            return
        base, position = base + count, position + length
        yield base, position


def find(file: LogFile, position: int, stop: int, expected: int, identity: int) -> Iterator[Frame]:
    """The whole frames from `position` on that hold `expected` or later offsets."""
    for candidate in _candidates(file, position, stop):
        if candidate < position:
            continue  # inside the frame before
        frame = whole(file, candidate, stop, identity)
        if frame is not None and frame.base >= expected:
            yield frame
            position = frame.stop


def last(file: LogFile, start: int, stop: int, identity: int) -> Frame | None:
    """The whole frame that ends exactly at `stop`, found from behind."""
    reach = _HEADERS_BYTES
    while True:
        begin = max(start, stop - reach)
        for candidate in _candidates(file, begin, stop):
            length = HEADER.unpack(file.read(candidate, HEADER.size))[0]
            if candidate + length == stop:
                frame = whole(file, candidate, stop, identity)
                if frame is not None:
                    return frame
        if begin == start:
            return None
        reach *= 16


def whole(file: LogFile, position: int, stop: int, identity: int) -> Frame | None:
    """The frame that begins at `position`, if one does and its checksum fits."""
    head = file.read(position, HEADER.size)
    if len(head) < HEADER.size:
        return None
    length, _, base, durable, count = HEADER.unpack(head)
    if not count or not _SHORTEST <= length <= stop - position:
        return None
    data = memoryview(file.read(position, length))
    return Frame(position, base, durable, count, data) if intact(data, identity) else None


def only_zeros(file: LogFile, position: int, stop: int) -> bool:
    """Whether there is nothing but zeros: room for frames to come."""
    while position < stop:
        data = file.read(position, min(_SCAN_BYTES, stop - position))
        if not data or data.count(0) < len(data):
            return False
        position += len(data)
    return True


def _candidates(file: LogFile, position: int, stop: int) -> Iterator[int]:
    """Positions where a frame could begin, judged by the marker of its Arrow message."""
    overlap = HEADER.size + 8
    while position + overlap <= stop:
        data = file.read(position, min(_SCAN_BYTES, stop - position))
        if len(data) < overlap:
            return  # the file has become shorter
        for match in _MARKER.finditer(data, HEADER.size):
            yield position + match.start() - HEADER.size
        position += len(data) - overlap + 1
