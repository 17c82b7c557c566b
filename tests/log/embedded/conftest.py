"""Fixtures for the tests of files."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log.helpers import memory_directory


@pytest.fixture
def memory_path() -> Iterator[Path]:
    with memory_directory() as path:
        yield path
