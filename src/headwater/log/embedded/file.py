"""Reading files at a position, from several threads at once.

A file stays open as long as anyone holds its File, whatever happens to its name: readers go on in
a segment that retention has dropped or sealing has replaced.
"""

import contextlib
import errno
import os
from pathlib import Path


class LogFile:
    """An open file; it is closed when the last holder lets go of it."""

    __slots__ = ("fd", "path")

    def __init__(self, path: Path, flags: int = os.O_RDONLY) -> None:
        self.path = path
        self.fd = -1  # so that __del__ finds it when the next line fails
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self.fd)

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, position: int, length: int) -> bytes:
        """`length` bytes from `position` on; fewer only where the file ends."""
        data = os.pread(self.fd, length, position)
        # Linux hands out at most 2 GiB in one go.
        while 0 < len(data) < length:
            more = os.pread(self.fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def write(self, position: int, parts: list[memoryview], flags: int = 0) -> None:
        """All of `parts`, one behind the other, from `position` on; uses the list up."""
        while parts:
            written = os.pwritev(self.fd, parts, position, flags)
            position += written
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            if parts:
                parts[0] = parts[0][written:]

    def write_durably(self, position: int, parts: list[memoryview]) -> None:
        """Write, and have that on the disk; of what was written before, nothing need be."""
        if _DURABLY:
            try:
                return self.write(position, parts, _DURABLY)
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # some file systems cannot do both at once
                    raise
        self.write(position, parts)
        return self.sync()

    def sync(self) -> None:
        """Have everything written so far on the disk, and the length of the file too."""
        _sync(self.fd)

    def cut(self, length: int) -> None:
        """Shorten the file, for good."""
        os.ftruncate(self.fd, length)
        os.fsync(self.fd)


class ForgivingFile(LogFile):
    """A file on a failing disk: what cannot be read is zeros, so that the rest can be saved."""

    __slots__ = ()

    def read(self, position: int, length: int) -> bytes:
        try:
            return super().read(position, length)
        except OSError:
            end = min(position + length, self.size)
            pieces = range(position, end, _BLOCK)
            return b"".join([self._block(at, min(_BLOCK, end - at)) for at in pieces])

    def _block(self, position: int, length: int) -> bytes:
        try:
            return super().read(position, length)
        except OSError:
            return bytes(length)


# What a disk loses at once.
_BLOCK = 4096

# macOS has no fdatasync, and only Linux writes and syncs in one call.
_sync = getattr(os, "fdatasync", os.fsync)
_DURABLY: int = getattr(os, "RWF_DSYNC", 0)


class ReadWindow:
    """A file seen through the piece read last, so that small reads in a row become one."""

    __slots__ = ("_data", "_file", "_size", "_start")

    def __init__(self, file: LogFile, size: int) -> None:
        self._file, self._size = file, size
        self._start, self._data = 0, memoryview(b"")

    def get(self, position: int, length: int) -> memoryview:
        """`length` bytes from `position` on; fewer only where the file ends."""
        at = position - self._start
        if at < 0 or at + length > len(self._data):
            self._data = memoryview(self._file.read(position, max(length, self._size)))
            self._start, at = position, 0
        return self._data[at : at + length]
