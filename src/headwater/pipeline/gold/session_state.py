"""The operator that keeps the state of sessions. Spark calls it, for one publisher at a time.

Each call of the state is a message to Spark and back, so there are as few as possible: a timer is
set when a session begins, and when it expires while the session goes on, it is set anew.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headwater.pipeline.gold.sessions import SPANS, SessionLimits, joined
from headwater.spark import daemon

_TIMES = ("first_seen", "last_seen")

# The process in which Spark asks for the columns of the state imports this file early.
daemon.quieten_state_worker()


class Sessions(StatefulProcessor):
    """The state is the span of the session that a publisher has. A silent one has no state."""

    def __init__(self, limits: SessionLimits, state: str) -> None:
        self._limits, self._schema = limits, state

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._session = handle.getValueState("session", self._schema)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        new = pa.Table.from_pandas(pd.concat(rows), preserve_index=False)
        known = self._known(key)
        every = pa.concat_tables([known, new.select(SPANS.names).cast(SPANS)])
        spans = joined(self._limits, every).to_pylist()
        self._session.update(tuple(spans[-1][name] for name in SPANS.names[2:]))
        if not len(known):
            self._handle.registerTimer(self._due(spans[-1]))
        yield _frame(spans[:-1], "silent", spans[-1:], "active")

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        (span,) = self._known(key).to_pylist()
        if (due := self._due(span)) > timerValues.getCurrentWatermarkInMs():
            self._handle.registerTimer(due)
        else:
            self._session.clear()
            yield _frame([span], "silent")

    def close(self) -> None:
        pass

    def _known(self, key: Any) -> Any:
        """A table of the span so far, or of nothing."""
        span = self._session.get()
        if span is None:
            return SPANS.empty_table()
        return pa.table([[value] for value in (*key, *span)], schema=SPANS)

    def _due(self, span: dict[str, Any]) -> int:
        """When the session is over, unless there are more messages: milliseconds since 1970."""
        return int(span["last_seen"] + self._limits.silence) // 1000 + 1


def _frame(*parts: Any) -> pd.DataFrame:
    """Rows of the table; given are spans, and the state that these are in, by turns."""
    rows = [
        {**span, "state": state}
        for spans, state in zip(parts[::2], parts[1::2], strict=True)
        for span in spans
    ]
    made = pd.DataFrame(rows, columns=[*SPANS.names, "state"])
    for name in _TIMES:
        made[name] = pd.to_datetime(made[name], unit="us", utc=True)
    made["largest_gap"] = made["largest_gap"] / 1e6
    return made
