"""Files and directories that have to be there after a crash of the machine."""

import os
import stat
from contextlib import suppress
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


def make_private(directory: Path) -> None:
    """As `make_directories`; the last one is for its owner only if it is made."""
    if not directory.is_dir():
        make_directories(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        sync_directory(directory.parent)


def close_to_others(directory: Path) -> bool:
    """Let nobody but the owner read or enter a directory and all in it, as far as it is ours.
    Returns whether others could enter it."""
    was_open = _close(directory)
    for folder, folders, names in os.walk(directory):
        for name in (*folders, *names):
            with suppress(FileNotFoundError):  # SQLite's come and go
                _close(Path(folder, name))
    return was_open


def _close(path: Path) -> bool:
    status = path.lstat()
    ours = status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
    if not ours or status.st_mode & 0o077 == 0:
        return False
    path.chmod(stat.S_IMODE(status.st_mode) & 0o700)
    return True
