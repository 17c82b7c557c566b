"""Walking over a segment in whatever state it is: what can be read of it, and what cannot."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from headwater.log.embedded import frame, segment
from headwater.log.embedded.file import ForgivingFile
from headwater.log.embedded.frame import Frame, Scan
from headwater.log.embedded.segment import Header, Trailer
from headwater.log.record import FrameRows


class Gap(NamedTuple):
    """A part of a file that no frame could be read from."""

    position: int
    stop: int
    #: The offsets that should be there; `end` is None if nobody knows how far they went.
    first: int
    end: int | None
    what: str


class Whole(NamedTuple):
    """A frame that can be read."""

    frame: Frame
    rows: FrameRows


class Wreck:
    """A segment's file, and what its header and trailer still tell."""

    def __init__(
        self, path: Path, identity: int, following: int | None, noted_end: int = 0
    ) -> None:
        self.path = path
        self.base = segment.base_of(path) or 0
        self.following = following
        #: The last segment must reach up to here.
        self.noted_end = noted_end
        self.file = ForgivingFile(path)
        self.size = self.file.size
        self.identity = identity
        self.header = segment.read_header(self.file, identity)
        self.trailer = self._read_trailer()

    def _read_trailer(self) -> Trailer | str | None:
        """None if the file is not sealed."""
        trailer = segment.read_trailer(self.file, self.identity)
        if isinstance(self.header, Header):
            return trailer if self.header.sealed else None
        # The header does not tell; what ends in a good trailer was sealed.
        return None if isinstance(trailer, str) else trailer

    @property
    def unfinished(self) -> bool:
        """Whether what follows the last frame can be a write that was not finished."""
        return self.following is None and self.trailer is None

    @property
    def unbegun(self) -> bool:
        """Whether a crash can have left it behind while it was made."""
        return self.unfinished and self.size < segment.HEADER_BYTES and self.base >= self.noted_end

    def pieces(self) -> Iterator[Whole | Gap]:
        """Everything between header and trailer, in order."""
        start = self.header.start if isinstance(self.header, Header) else segment.HEADER_BYTES
        stop = self.trailer.position if isinstance(self.trailer, Trailer) else self.size
        scan = Scan(self.file, start, stop, self.base, self.identity)
        while True:
            for found in scan:
                yield _decoded(found)
            if scan.fault is None:
                break
            found_later = frame.find(self.file, scan.position, stop, scan.expected, self.identity)
            later = next(found_later, None)
            if later is None:
                break
            if later.position > scan.position:  # otherwise it was being written
                yield Gap(scan.position, later.position, scan.expected, later.base, scan.fault)
            scan = Scan(self.file, later.position, stop, later.base, self.identity)
        yield from self._rest(scan, stop)

    def _rest(self, scan: Scan, stop: int) -> Iterator[Gap]:
        """What is missing behind the last frame."""
        end = self._known_end(scan.expected)
        last = "the log ends there, and held more"
        between = "there is nothing up to the next segment"
        what = scan.fault or (last if self.following is None else between)
        if end is None:
            if scan.fault is not None and not frame.only_zeros(self.file, scan.position, stop):
                yield Gap(scan.position, stop, scan.expected, None, what)
        elif scan.position < stop or scan.expected < end:
            yield Gap(scan.position, stop, scan.expected, max(end, scan.expected), what)

    def _known_end(self, reached: int) -> int | None:
        """Up to where there should be something; None if nobody knows."""
        if self.following is not None:
            return self.following
        sealed = self.trailer.end if isinstance(self.trailer, Trailer) else 0
        known = max(sealed, self.noted_end)
        return known if sealed or reached < known else None


def _decoded(found: Frame) -> Whole | Gap:
    try:
        return Whole(found, FrameRows(found.message(), found.base, found.records))
    except (pa.ArrowException, OSError) as error:
        what = f"a frame cannot be decoded ({error})"
        return Gap(found.position, found.stop, found.base, found.end, what)
