"""Keeps packages out of a process that has no use for them.

Arrow imports numpy, and pandas at its first conversion, where they are installed. The broker needs
neither: an empty one has some 50 MB less without them.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

#: What a broker goes without.
BROKERS = ("numpy", "pandas")


class _Without(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = frozenset(packages)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in self._packages:
            raise ImportError(f"{name} is not imported here", name=name)
        return None


def keep_out(packages: Sequence[str]) -> None:
    """Call this before others import them; those that can go on without do so."""
    sys.meta_path.insert(0, _Without(packages))
