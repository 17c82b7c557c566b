"""Keeps pandas out of a process that has no use for it.

Arrow imports pandas at its first conversion where that is installed, as it is for Spark. An empty
broker had 147 MB with it and has 111 MB without.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ImportError("pandas is not imported here", name=name)
        return None


def keep_pandas_out() -> None:
    """Call this before Arrow is imported; Arrow goes on without pandas then."""
    sys.meta_path.insert(0, _WithoutPandas())
