"""File descriptors for the moment when connections have taken all others."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

# A new segment needs one for itself, and one to sync the directory with.
_KEPT = 4


class Reserve:
    """Used by one thread."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self._fill()

    def spend(self, work: Callable[[], T], save: Callable[[], None]) -> T:
        """Do something that opens files, with those kept here if there are no others. `save` lets
        go of files that are not needed."""
        try:
            return work()
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        self.close()
        save()
        try:
            return work()
        finally:
            self._fill()

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    def _fill(self) -> None:
        with suppress(OSError):
            while len(self._held) < _KEPT:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
