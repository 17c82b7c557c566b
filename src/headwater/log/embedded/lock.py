"""Who may write to a log: one process, the one that holds the lock on the file LOCK.

The file also tells what must be there: the log's identity (see frame.py), in case no segment's
header can be read, and its extent, without which nobody would miss a first or a last segment.

    identity      8 hexadecimal digits | newline
    extent        20 digits, first offset | space | 20 digits, end | space
                  8 hexadecimal digits, crc32c of these 42 bytes, begun with the identity | newline

The extent is written in place after every sync, and not synced itself: that costs next to nothing
and needs no room on a full disk. After a crash of the machine it may be that of a moment before,
which holds as well, but for what was dropped since: before that happens, it is synced.
"""

import fcntl
import os
import secrets
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from headwater.errors import LogDamaged, LogLocked
from headwater.files import sync_directory
from headwater.log.embedded import segment
from headwater.log.embedded.file import ForgivingFile

_NAME = "LOCK"
_IDENTITY_BYTES = 9
_EXTENT_BYTES = 51
# How often to look again, as a broker may just be writing it.
_ATTEMPTS = 3


class Extent(NamedTuple):
    """Everything from `start` up to and without `end` was on the disk. There may be more."""

    start: int
    end: int


class Lock:
    """The right to write to the log in a directory; held until `release`."""

    def __init__(self, directory: Path) -> None:
        _make(directory)
        self._directory = directory
        self._fd = os.open(directory / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise LogLocked(
                f"the log in {directory} is in use by another process; stop that broker first"
            ) from None

    def identity(self) -> int:
        """The identity of the log; a new log gets one now. Raises LogDamaged."""
        known = identity(self._directory)
        if known is None:
            _check_empty(self._directory)
            known = secrets.randbits(32)
        text = f"{known:08x}\n".encode()
        if os.pread(self._fd, _IDENTITY_BYTES, 0) != text:
            os.pwrite(self._fd, text, 0)
            os.fsync(self._fd)
            sync_directory(self._directory)
        return known

    def note(self, extent: Extent, identity: int) -> None:
        os.pwrite(self._fd, _encode(extent, identity), _IDENTITY_BYTES)

    def sync(self) -> None:
        """Have what was noted on the disk."""
        os.fsync(self._fd)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _make(directory: Path) -> None:
    """Make the directory, and those above it, for good."""
    if not directory.is_dir():
        _make(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)


def identity(directory: Path) -> int | None:
    """The identity of the log in a directory, if it can be found out.

    One file that was copied here from another log must not make all others look foreign.
    """
    noted = _noted(directory)
    votes: Counter[int] = Counter()
    for path in segment.files(directory):
        try:
            header = segment.read_header(ForgivingFile(path), None)
        except FileNotFoundError:
            continue  # retention has dropped it meanwhile
        if isinstance(header, str):
            continue
        if header.identity == noted:
            return noted
        votes[header.identity] += 1
    return votes.most_common(1)[0][0] if votes else noted


def extent(directory: Path, identity: int) -> Extent:
    """What the log must hold; nothing, if that was never noted."""
    for _ in range(_ATTEMPTS):
        data = _read(directory)[_IDENTITY_BYTES:][:_EXTENT_BYTES]
        try:
            noted = Extent(int(data[:20]), int(data[21:41]))
        except ValueError:
            continue
        if data == _encode(noted, identity):
            return noted
    return Extent(0, 0)


def _encode(extent: Extent, identity: int) -> bytes:
    text = b"%020d %020d " % extent
    return b"%b%08x\n" % (text, crc32c(text, identity))


def _noted(directory: Path) -> int | None:
    try:
        return int(_read(directory)[:_IDENTITY_BYTES].decode("ascii", "replace"), 16)
    except ValueError:
        return None


def _read(directory: Path) -> bytes:
    try:
        return (directory / _NAME).read_bytes()
    except FileNotFoundError:
        return b""


def _check_empty(directory: Path) -> None:
    """With a new identity, no frame that is there already could ever be trusted again."""
    for path in segment.files(directory):
        if path.stat().st_size >= segment.HEADER_BYTES:
            what = "no header can be read, and the file LOCK is missing"
            raise LogDamaged(path.name, segment.base_of(path) or 0, None, what)
