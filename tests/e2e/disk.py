"""A real disk that is small."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, megabytes: int, otherwise: str) -> Iterator[Path]:
    """Mounted at a new directory. Where that is not allowed, the test is skipped; `otherwise` says
    what is tested all the same."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "headwater-test", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip(f"mounting a small disk needs root; {otherwise}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
