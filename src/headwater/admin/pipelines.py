"""What pipelines say of themselves: kept in memory, for those who look at the broker.

A pipeline reports every few seconds; what it reported last is shown. One that has not reported for
a while is stale: it may have stopped, or lost its way to the broker.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.control import Handler
from headwater.errors import Code, Refusal

MOST_PIPELINES = 32
MOST_NAME_BYTES = 256
MOST_STATE_BYTES = 64 * 1024
STALE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class PipelineReport:
    """The last word of one pipeline."""

    pipeline: str
    state: dict[str, Any]
    reported: int  # microseconds since 1970
    stale: bool

    def as_dict(self) -> dict[str, Any]:
        return {
            "pipeline": self.pipeline,
            "reported": self.reported,
            "stale": self.stale,
            "state": self.state,
        }


class PipelineReports:
    """Any thread may use it."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, dict[str, Any]]] = {}  # the oldest report first

    def report(self, pipeline: str, state: dict[str, Any]) -> None:
        """Keep what a pipeline says in place of what it said before."""
        if not pipeline or len(pipeline.encode(errors="replace")) > MOST_NAME_BYTES:
            raise Refusal(
                Code.MALFORMED, f"the name of a pipeline has 1 to {MOST_NAME_BYTES} bytes"
            )
        if _size(state) > MOST_STATE_BYTES:
            raise Refusal(Code.TOO_LARGE, f"a report has at most {MOST_STATE_BYTES} bytes")
        with self._lock:
            self._last.pop(pipeline, None)
            self._last[pipeline] = (self._clock(), state)
            while len(self._last) > MOST_PIPELINES:
                del self._last[next(iter(self._last))]

    def reports(self) -> list[PipelineReport]:
        now = self._clock()
        with self._lock:
            return [
                PipelineReport(name, state, int(at * 1e6), now - at > STALE_SECONDS)
                for name, (at, state) in sorted(self._last.items())
            ]


class PipelineHandlers:
    def __init__(self, reports: PipelineReports) -> None:
        self._reports = reports

    def handlers(self) -> dict[str, Handler]:
        return {"pipelines.list": self.list_pipelines}

    async def list_pipelines(self) -> list[dict[str, Any]]:
        return [report.as_dict() for report in self._reports.reports()]


def _size(state: dict[str, Any]) -> int:
    try:
        return len(json.dumps(state, allow_nan=False))
    except (ValueError, RecursionError):
        raise Refusal(
            Code.MALFORMED, "a report has no numbers such as NaN, and is not nested so deep"
        ) from None
