"""What is stored, read from the files of a broker that has stopped."""

from collections.abc import Iterator
from pathlib import Path

from headwater.log.embedded.view import View
from headwater.message import Run


def stored_runs(data: Path) -> Iterator[Run]:
    log = View.open(data / "log")
    offset = log.start
    while offset < log.end:
        batches, offset = log.read(offset, lambda topic: True, 8 << 20, log.end)
        for batch in batches:
            yield batch.run


def stored_payloads(data: Path) -> Iterator[bytes]:
    for run in stored_runs(data):
        yield from run.payloads
