"""Files and directories that have to be there after a crash of the machine."""

import os
from pathlib import Path


def sync_directory(directory: Path) -> None:
    """Have the names of new, replaced and removed files on the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_directories(directory: Path) -> None:
    """As `mkdir -p`; each one that is made is on the disk."""
    if not directory.is_dir():
        make_directories(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)
