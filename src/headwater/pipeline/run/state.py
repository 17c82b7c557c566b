"""The state of a running pipeline, table by table.

It is shown on a terminal, printed as JSON, written to state/status.json and posted to the broker.
"""

import json
import os
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from headwater.pipeline.tables.delta import CommitResult


Phase = Literal["running", "waiting", "done", "failed"]
#: Over how many seconds a rate is taken.
_RATE_SECONDS = 10.0
STATUS_FILE = "status.json"


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class TableState:
    name: str
    kind: str
    query: str
    state: Phase = "waiting"
    rows: int = 0
    rows_per_second: float = 0.0
    #: Behind the last offset of the log that was read for it.
    offset: int | None = None
    #: The number of records behind the log, or of rows behind the table that it reads.
    lag: int | None = None
    batch: int | None = None
    last_batch: int | None = None
    error: str | None = None
    #: Offsets that the log had dropped before they were read.
    gap: str | None = None


@dataclass(slots=True)
class _Rate:
    """Rows written in the last seconds."""

    written: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, rows: int) -> None:
        self.written.append((time.monotonic(), rows))

    def value(self) -> float:
        since = time.monotonic() - _RATE_SECONDS
        while self.written and self.written[0][0] < since:
            self.written.popleft()
        return sum(rows for _, rows in self.written) / _RATE_SECONDS


class PipelineState:
    """The state of all tables of a pipeline. Any thread may use it."""

    def __init__(self, name: str, mode: Literal["continuous", "once"]) -> None:
        self.name, self.mode, self.started = name, mode, now()
        self.log: dict[str, int] | None = None
        self._lock = threading.Lock()
        self._tables: dict[str, TableState] = {}
        self._rates: dict[str, _Rate] = {}

    def add(self, table: TableState) -> None:
        with self._lock:
            self._tables[table.name] = table
            self._rates[table.name] = _Rate()

    def wrote(self, name: str, batch: int, result: "CommitResult", replaced: bool = False) -> None:
        with self._lock:
            table = self._tables[name]
            table.batch, table.last_batch, table.error = batch, now(), None
            if not result.repeated:
                table.rows = result.rows if replaced else table.rows + result.rows
                self._rates[name].add(result.rows)

    def set(self, names: list[str], **changes: Any) -> None:
        with self._lock:
            for name in names:
                for key, value in changes.items():
                    setattr(self._tables[name], key, value)

    def get(self, name: str) -> TableState:
        return self._tables[name]

    def as_dict(self) -> dict[str, Any]:
        with self._lock:
            for name, table in self._tables.items():
                table.rows_per_second = round(self._rates[name].value(), 1)
            return {
                "name": self.name,
                "mode": self.mode,
                "started": self.started,
                "updated": now(),
                "log": self.log,
                "tables": [asdict(table) for table in self._tables.values()],
            }


def save(directory: Path, state: dict[str, Any]) -> None:
    """Replace the file in one step: a reader never sees half of it."""
    directory.mkdir(parents=True, exist_ok=True)
    written = directory / f".{STATUS_FILE}"
    written.write_text(json.dumps(state))
    os.replace(written, directory / STATUS_FILE)


def load(directory: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((directory / STATUS_FILE).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return found
