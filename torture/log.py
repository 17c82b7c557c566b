"""What is stored, read from the files of a broker that has stopped. What it has recorded itself is
left out: nobody published that."""

from collections.abc import Iterator
from pathlib import Path

from headwater.actions import AUDIT
from headwater.log.embedded.view import View
from headwater.message import Run


def stored_runs(data: Path) -> Iterator[Run]:
    log = View.open(data / "log")
    offset = log.start
    while offset < log.end:
        batches, offset = log.read(offset, _is_clients, 8 << 20, log.end)
        yield from (batch.run for batch in batches)


def _is_clients(topic: str) -> bool:
    return not topic.startswith(f"{AUDIT}/")


def stored_payloads(data: Path) -> Iterator[bytes]:
    for run in stored_runs(data):
        yield from run.payloads
