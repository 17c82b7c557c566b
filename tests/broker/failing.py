"""A log whose reads fail when a test says so, as files and disks do."""

import errno
import os
from collections.abc import Hashable

import pytest

from headwater.broker import cursor
from headwater.log.embedded.engine import EmbeddedEngine
from headwater.log.engine import Wanted
from headwater.message import Batch


class FailingEngine(EmbeddedEngine):
    #: So many of the next reads fail, with this error.
    failures = 0
    error: Exception = OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def read(
        self, offset: int, wanted: Wanted, max_bytes: int, reader: Hashable = None
    ) -> tuple[list[Batch], int]:
        if self.failures > 0:
            self.failures -= 1
            raise self.error
        return await super().read(offset, wanted, max_bytes, reader)


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the pause behind a read that failed."""
    monkeypatch.setattr(cursor, "FIRST_PAUSE_SECONDS", 0.0005)
    monkeypatch.setattr(cursor, "LONGEST_PAUSE_SECONDS", 0.002)
