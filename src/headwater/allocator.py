"""Where Arrow takes its memory from: said before anything imports it.

What threads of Flight have let go of goes back to the system with jemalloc. mimalloc, Arrow's usual
one, keeps it: 500 MiB after a hundred readers that took nothing. The variable counts for all that
is Arrow's; `pyarrow.set_memory_pool` counts for what Python makes, and not for what Flight does.
"""

import os
import sys

_VARIABLE = "ARROW_DEFAULT_MEMORY_POOL"


def choose() -> None:
    """Someone who has chosen before knows why."""
    if sys.platform == "linux":  # where Arrow's packages have it
        os.environ.setdefault(_VARIABLE, "jemalloc")
