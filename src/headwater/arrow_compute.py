"""Arrow's functions on arrays (`pyarrow.compute`), imported when the first of them is called.

Importing them takes 9 MB and 40 ms, and a broker that nobody uses needs none.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    function = globals()[name] = getattr(pyarrow.compute, name)
    return function
