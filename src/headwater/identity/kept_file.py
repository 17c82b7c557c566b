"""A small JSON file that commands, the console and the broker share.

It is for its owner only, and replaced as a whole: whoever reads it sees it before a change or
behind it, also after a crash. One change is made at a time. Its checksum tells when a bit of it was
flipped; who changes it by hand takes that line out.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from crc32c import crc32c

from headwater.errors import HeadwaterError, Refusal
from headwater.files import make_private, sync_directory

T = TypeVar("T")

#: No name begins so.
SUM = "$crc32c"


class KeptFile(Generic[T]):
    """`read` makes something of what the file holds, `write` goes the other way, and `nothing` is
    there before the file is."""

    def __init__(
        self,
        path: Path,
        *,
        read: Callable[[Any], T],
        write: Callable[[T], dict[str, Any]],
        nothing: Callable[[], T],
    ) -> None:
        self.path = path
        self._read = read
        self._write = write
        self._nothing = nothing

    def load(self) -> T:
        try:
            content = json.loads(self.path.read_bytes())
            if content.pop(SUM, None) not in (None, _sum_of(content)):
                raise ValueError("something has changed in it")
            return self._read(content)
        except FileNotFoundError:
            return self._nothing()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, Refusal):
            raise HeadwaterError(
                f"{self.path} cannot be read: it is damaged, or was changed by hand; "
                "repair or remove it"
            ) from None

    @property
    def version(self) -> tuple[int, ...]:
        """Changes when the file does, also twice within one tick of the file system's clock: it is
        another file each time."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return ()
        return found.st_mtime_ns, found.st_ino, found.st_size

    @contextmanager
    def changing(self) -> Iterator[T]:
        """What the file holds, to be changed; it is written when the block ends well."""
        make_private(self.path.parent)
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = self.load()
            yield content
            written = self._write(content)
            self._replace(json.dumps(written | {SUM: _sum_of(written)}, indent=2))
        finally:
            os.close(lock)

    def _replace(self, text: str) -> None:
        temporary = f"{self.path}.new"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, self.path)
        sync_directory(self.path.parent)


def _sum_of(content: dict[str, Any]) -> str:
    return f"{crc32c(json.dumps(content, sort_keys=True).encode()):08x}"
