"""Scripts that read tables as users do, in processes of their own."""

import subprocess
from typing import Any

from tests.budget import count_retry

_ABORTED = (-6, 128 + 6)  # by itself, and below a shell
_TRIES = 5


def run_reading(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run what only reads. deltalake's own reader calls Python from Arrow's threads, and one of
    these that is still at it when Python ends takes the process down with it: on a busy machine,
    one time in twenty. That is no news of the tables, so it is run again, and counted: a run of the
    tests tells how often that was, and fails when it was more than a few times."""
    for _ in range(_TRIES):
        done = subprocess.run(command, capture_output=True, text=True, **options)
        said = "terminate called without an active exception" in done.stderr
        if done.returncode not in _ABORTED or not said:
            break
        count_retry()
    return done
