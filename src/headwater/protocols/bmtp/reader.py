"""Opening envelopes fast. What that means is defined in `envelope.py`; the outcome is the same.

A client writes all its envelopes the same way, and mostly to a few channels. So the JSON reader
remembers what stood before and behind the data. Where the same stands again, only the data are new:
a string without escapes is taken as it is, anything else is parsed by itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from headwater.protocols.bmtp.envelope import (
    SURE_BYTES,
    EnvelopeOrigin,
    json_fits,
    open_binary,
    open_data,
    open_json,
)
from headwater.protocols.bmtp.settings import Dialect, EnvelopeName
from headwater.protocols.bmtp.wire import U32

MOST_SHAPES = 64
# What surrounds the data is remembered up to this size.
LONGEST_SHAPE = 256

# Bytes that mean themselves in a JSON string. Those of other scripts do too, if they are UTF-8.
_QUIET = bytes(value for value in range(0x20, 0x100) if value not in b'"\\')


# How many envelopes are looked at together.
FEWEST_TOGETHER, MOST_TOGETHER = 4, 64


class Shape(NamedTuple):
    """Envelopes that differ in their payload only, which stands in them as it is."""

    before: bytes
    behind: bytes
    origin: EnvelopeOrigin


class EnvelopeReader(ABC):
    #: That of the last envelope, if it has one.
    shape: Shape | None = None
    _few = FEWEST_TOGETHER

    @abstractmethod
    def open(self, data: bytes, start: int, end: int) -> tuple[EnvelopeOrigin, bytes]:
        """The origin and payload of the envelope in this part of `data`."""

    @abstractmethod
    def accepts(self, payloads: Sequence[bytes]) -> bool:
        """Can these payloads stand in the shape as they are?"""

    @abstractmethod
    def fits(self, origin: EnvelopeOrigin, payload: bytes, most: int) -> bool:
        """Has an envelope of `most` bytes to a subscriber room for the payload?"""

    def more(
        self, data: bytes, position: int, first: int, header: int, most: int
    ) -> tuple[list[bytes], bytes, int]:
        """The payloads and stream ids of PUBs from `position` on that have the last envelope's
        shape, this first byte and payloads of up to `most` bytes, and where they end.

        That is a few; after a success, twice as many the next time. So little is looked at in
        vain where payloads are often not accepted.
        """
        if self.shape is None:
            return [], b"", position
        payloads, streams = self._alike(data, position, first, header, most, self.shape)
        if self.accepts(payloads):
            if len(payloads) == self._few:
                self._few = min(self._few * 2, MOST_TOGETHER)
        else:
            self._few = FEWEST_TOGETHER
            payloads = list(takewhile(lambda payload: self.accepts([payload]), payloads))
        around = header + len(self.shape.before) + len(self.shape.behind)
        end = position + around * len(payloads) + sum(map(len, payloads))
        return payloads, streams[: len(payloads)], end

    def _alike(
        self, data: bytes, position: int, first: int, header: int, most: int, shape: Shape
    ) -> tuple[list[bytes], bytes]:
        payloads: list[bytes] = []
        streams = bytearray()
        before, behind, _ = shape
        around = len(before) + len(behind)
        longest = min(most + around, SURE_BYTES - header)
        while (start := position + header) <= len(data) and len(payloads) < self._few:
            size = data[start - 2] << 8 | data[start - 1]
            end = start + size
            last = end - len(behind)
            if (
                data[position] != first
                or end > len(data)
                or not around <= size <= longest
                or not data.startswith(before, start)
                or not data.startswith(behind, last)
            ):
                break
            payloads.append(data[start + len(before) : last])
            streams.append(data[position + 1])
            position = end
        return payloads, bytes(streams)


class Known(NamedTuple):
    """What has been before and behind the data, whatever those were."""

    prefix: bytes
    suffix: bytes
    shape: Shape


class JsonReader(EnvelopeReader):
    def __init__(self, dialect: Dialect = "document") -> None:
        self._dialect: Dialect = dialect
        self._last: Known | None = None
        self._known: dict[bytes, Known] = {}
        self._prefix_sizes: set[int] = set()

    def open(self, data: bytes, start: int, end: int) -> tuple[EnvelopeOrigin, bytes]:
        known = self._last
        if known is None or not data.startswith(known.prefix, start):
            known = self._find(data, start)
        if known is not None and data.startswith(known.suffix, end - len(known.suffix)):
            value = data[start + len(known.prefix) : end - len(known.suffix)]
            self._last = known
            if value[:1] == value[-1:] == b'"' and len(value) > 1 and self.accepts([value[1:-1]]):
                self.shape = known.shape
                return known.shape.origin, value[1:-1]
            payload = open_data(value)
            if payload is not None:
                self.shape = None
                return known.shape.origin, payload
        return self._parse(data[start:end])

    def accepts(self, payloads: Sequence[bytes]) -> bool:
        # A line end can be in none of them, and in no character of several bytes.
        lines = b"\n".join(payloads)
        if lines.translate(None, _QUIET) != b"\n" * (len(payloads) - 1):
            return False
        return lines.isascii() or _is_utf8(lines)

    def fits(self, origin: EnvelopeOrigin, payload: bytes, most: int) -> bool:
        return json_fits(origin, payload, most)

    def _find(self, data: bytes, start: int) -> Known | None:
        for size in self._prefix_sizes:
            known = self._known.get(data[start : start + size])
            if known is not None:
                return known
        return None

    def _parse(self, envelope: bytes) -> tuple[EnvelopeOrigin, bytes]:
        self.shape = None
        origin, payload, (start, end) = open_json(envelope, self._dialect)
        if len(envelope) - (end - start) <= LONGEST_SHAPE:
            known = self._learn(envelope[:start], envelope[end:], origin)
            if envelope[start + 1 : end - 1] == payload:  # a string without escapes
                self.shape = known.shape
        return origin, payload

    def _learn(self, prefix: bytes, suffix: bytes, origin: EnvelopeOrigin) -> Known:
        if len(self._known) >= MOST_SHAPES and prefix not in self._known:
            self._known.clear()
            self._prefix_sizes.clear()
        shape = Shape(prefix + b'"', b'"' + suffix, origin)
        self._prefix_sizes.add(len(prefix))
        self._last = self._known[prefix] = Known(prefix, suffix, shape)
        return self._last


class BinaryReader(EnvelopeReader):
    def open(self, data: bytes, start: int, end: int) -> tuple[EnvelopeOrigin, bytes]:
        shape = self.shape
        if shape is None or end - start < U32.size or not data.startswith(shape.before, start):
            origin = open_binary(data[start:end]).origin
            shape = self.shape = Shape(data[start : start + U32.size], b"", origin)
        return shape.origin, data[start + U32.size : end]

    def accepts(self, payloads: Sequence[bytes]) -> bool:
        return True

    def fits(self, origin: EnvelopeOrigin, payload: bytes, most: int) -> bool:
        return True  # it is the same both ways


def reader_of(envelope: EnvelopeName, dialect: Dialect) -> EnvelopeReader:
    return JsonReader(dialect) if envelope == "json" else BinaryReader()


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
