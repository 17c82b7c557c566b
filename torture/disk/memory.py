"""Directories in memory, where the system has some: what is written and read thousands of times and
then thrown away need not wear out a disk."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")


@contextmanager
def in_memory() -> Iterator[Path]:
    where = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="headwater-torture-", dir=where) as made:
        yield Path(made)
